"""HTML pages that load nothing from elsewhere: what all share, and a comparison as one."""

import dataclasses
import json
import platform
from base64 import b64encode
from html import escape
from importlib import metadata, resources
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

import numpy as np

from accord import sources
from accord.report.labels import spelled
from accord.report.scores import kind_of_score
from accord.report.style import limits, look, reach, share

LISTED_CLIENTS = 300
"""The most clients whose scores are listed one by one."""

_POINTS = 600
_MARKS = 8

_PIXELS = 1.8
"""Pixels of a picture to one of the page, for screens of a high resolution."""


def page(title: str, subtitle: str, facts, sections: str, data: dict) -> str:
    """A page: title and subtitle, facts as (name, value), sections in HTML, and what its script draws.

    ``data`` has ``charts``: each an ``id`` of an element, plotly's ``data`` and ``layout``, and perhaps
    ``choices`` with the ``views`` they select; and ``legend``, the buttons that hide curves.
    """
    parts = {
        "title": escape(title),
        "subtitle": escape(subtitle),
        "facts": "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts),
        "sections": sections,
        "versions": escape(_versions()),
        "data": json.dumps(data, allow_nan=False).replace("<", "\\u003c"),
        "plotly": _plotly(),
    }
    return filled("page.html", parts)


def filled(template: str, parts: dict[str, str]) -> str:
    """A template of this folder with its parts in place."""
    text = (resources.files("accord.report") / template).read_text(encoding="utf-8")
    pieces = text.split("{{")
    done = [pieces[0]]
    for piece in pieces[1:]:
        name, rest = piece.split("}}", 1)
        done += [parts[name], rest]
    return "".join(done)


def _plotly() -> str:
    """The script, from the package's file where it is in its place: plotly itself is not needed."""
    spec = find_spec("plotly")
    for folder in spec.submodule_search_locations or () if spec else ():
        path = Path(folder) / "package_data" / "plotly.min.js"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def render(comparison, title: str | None = None) -> str:
    """The page of a comparison."""
    words, formula = comparison.measures[comparison.measure]
    boxes = (
        f'<div><h3>against {escape(comparison.axes[axis])}</h3><div class="chart" id="{axis}"></div></div>'
        for axis in comparison.axes
        if any(axis in c.axes for c in comparison.curves)
    )
    parts = {
        "results": _results(comparison),
        "notes": html_notes(comparison.notes()),
        "measure": words,
        "formula": escape(formula),
        "charts": "".join(boxes),
        "figures": _figures(comparison),
        "held_out": _held_out(comparison) if comparison.scores else "",
        "parameters": _parameters(comparison),
        "statuses": _statuses(comparison),
        "papers": html_papers(e.algorithm for e in comparison.entries),
    }
    return page(
        title or f"{len(comparison.entries)} methods on {comparison.problem.name}",
        comparison.subtitle,
        comparison.facts(),
        filled("comparison.html", parts),
        _data(comparison, words),
    )


def html_notes(notes) -> str:
    """Sentences, a paragraph each."""
    return "".join(f'<p class="note">{escape(n)}</p>' for n in notes)


def html_table(head: str, rows) -> str:
    """A table of a head and rows of cells, in HTML."""
    body = "".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"


def row_name(name: str) -> str:
    """The first cell of a row, which stays in sight."""
    return f'<th scope="row">{escape(name).replace("(", "<wbr>(", 1)}</th>'


def _results(comparison) -> str:
    groups = [list(g) for _, g in groupby(comparison.columns, lambda c: c.group)]
    first = {g[0].key for g in groups}
    over = "".join(
        f'<th class="first" colspan="{len(g)}">{escape(g[0].words)}</th>' for g in groups
    )
    under = "".join(
        f'<th class="number{" first" if c.key in first else ""}">{escape(c.head)}</th>'
        for c in comparison.columns
    )
    head = (
        f'<tr><th rowspan="2">method</th>{over}<th class="first" rowspan="2">status</th></tr>'
        f"<tr>{under}</tr>"
    )
    table = comparison.table()
    best = {c.key: c.best_text(table) for c in comparison.columns}
    rows = []
    for row in table:
        cells = [row_name(row["method"])]
        for c in comparison.columns:
            text = c.text(row[c.key])
            kinds = "number" + " first" * (c.key in first) + " best" * (text == best[c.key])
            cells.append(f'<td class="{kinds}">{escape(text)}</td>')
        cells.append(f'<td class="first">{_status(row["status"])}</td>')
        rows.append(cells)
    return html_table(head, rows)


def _status(name: str) -> str:
    bad = "" if name in ("converged", "budget_spent") else ' class="bad"'
    return f"<span{bad}>{escape(name)}</span>"


def _statuses(comparison) -> str:
    head = (
        "<tr><th>method</th><th>status</th><th>sentence</th>"
        '<th class="number">rounds</th><th class="number">seconds</th>'
        '<th class="number">compiling</th></tr>'
    )
    rows = []
    for entry in comparison.entries:
        run = entry.run
        numbers = (
            ("-", "-", "-") if run is None
            else (str(run.history["round"][-1]), f"{run.seconds:.2f}", f"{run.compile_seconds:.2f}")
        )  # fmt: skip
        rows.append(
            [
                row_name(entry.name),
                f"<td>{_status(entry.status)}</td>",
                f'<td class="words">{escape(entry.sentence)}</td>',
                *(f'<td class="number">{n}</td>' for n in numbers),
            ]
        )
    return html_table(head, rows)


def _parameters(comparison) -> str:
    """One column per hyper-parameter that any of the methods has."""
    used = [(e, e.algorithm if e.run is None else e.run.algorithm) for e in comparison.entries]
    columns = list(dict.fromkeys(
        f.name for _, a in used for f in dataclasses.fields(a) if getattr(a, f.name) is not None
    ))  # fmt: skip
    head = "<tr><th>method</th>" + "".join(f"<th>{escape(c)}</th>" for c in columns) + "</tr>"
    rows = []
    for entry, algorithm in used:
        cells = [row_name(entry.name)]
        for column in columns:
            if not hasattr(algorithm, column):
                cells.append("<td></td>")
                continue
            text = escape(spelled(getattr(algorithm, column)))
            chosen = getattr(entry.algorithm, column) is None and text != "None"
            cells.append(f"<td>{f'<i>{text}</i>' if chosen else text}</td>")
        rows.append(cells)
    return html_table(head, rows)


def html_papers(algorithms) -> str:
    """The papers of algorithms, an item each."""
    keys = dict.fromkeys(getattr(a, "source", "") for a in algorithms)
    known = [sources.SOURCES[key] for key in keys if key in sources.SOURCES]
    return "".join(f"<li>{escape(source.reference())}</li>" for source in known)


def _versions() -> str:
    packages = ("accord", "jax", "numpy", "scipy", "plotly")
    told = [f"{p} {metadata.version(p)}" for p in packages]
    return f"Made with {', '.join(told)} on Python {platform.python_version()}."


def _held_out(comparison) -> str:
    kind = kind_of_score(comparison.problem)
    named = _scores(comparison)
    text = (
        f"<h2>Held-out {kind} of each client</h2>"
        '<p class="note">One point a client: how well the common model predicts the rows that the '
        "client held out; the box holds the middle half of the clients.</p>"
        f'<div id="clients" style="height:{len(named) * 2.3 + 6}rem"></div>'
    )
    if len(comparison.test) > LISTED_CLIENTS:
        return text
    head = "<tr><th>client</th><th>rows</th>" + "".join(
        f'<th class="number">{escape(n)}</th>' for n in named
    ) + "</tr>"  # fmt: skip
    rows = [
        [row_name(client), f"<td>{comparison.test.sizes[i]}</td>"]
        + [f'<td class="number">{share(s.clients[i])}</td>' for s in named.values()]
        for i, client in enumerate(comparison.test.names)
    ]
    return (
        f"{text}<details><summary>The same as a table</summary>"
        f'<div class="scroll">{html_table(head, rows)}</div></details>'
    )


def _scores(comparison):
    best = comparison.optimum_score
    return ({} if best is None else {"the optimum x*": best}) | comparison.scores


def _figures(comparison) -> str:
    """Further pictures, inside the page; below 0.6 of its size, where text ends, one is scrolled."""
    shown = []
    for title, caption, png in comparison.figures():
        width = round(int.from_bytes(png[16:20], "big") / _PIXELS)
        shown.append(
            f'<h2>{escape(title)}</h2><p class="note">{escape(caption)}</p><div class="wide">'
            f'<img class="picture" style="width:{width}px;min-width:{0.6 * width:.0f}px" '
            f'alt="{escape(title)}" src="data:image/png;base64,{b64encode(png).decode()}"></div>'
        )
    return "".join(shown)


def _data(comparison, words) -> dict:
    """What the page's script draws."""
    charts = [_chart(comparison, axis, words) for axis in comparison.axes]
    charts = [c for c in charts if c["data"]]
    if comparison.scores:
        charts.append(_clients_chart(comparison))
    legend = [dict(zip(("colour", "dash"), look(c.place)[:2], strict=True), name=c.name)
              for c in comparison.curves]  # fmt: skip
    return {"charts": charts, "legend": legend}


def base_layout(**parts) -> dict:
    """The layout of every chart, with ``parts`` in place of its own."""
    base = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,
        "margin": {"l": 64, "r": 12, "t": 8, "b": 48},
        "font": {"size": 12},
    }
    return base | parts


def _chart(comparison, axis: str, words: str) -> dict:
    floor = comparison.floor
    curves = [c for c in comparison.curves if axis in c.axes]
    traces = []
    for k, curve in enumerate(curves):
        colour, dash, mark = look(curve.place)
        name = escape(curve.name, quote=False)
        kept = thinned(len(curve.values))
        x, y = curve.axes[axis][kept], np.maximum(curve.values[kept], floor)
        traces.append({
            "type": "scatter", "mode": "lines+markers", "name": curve.name,
            "x": rounded(x), "y": rounded(y),
            "line": {"color": colour, "dash": dash, "width": 2},
            "marker": {"symbol": mark, "color": colour, "size": _sizes(len(kept), k),
                       "opacity": 1, "line": {"width": 0}},
            "hovertemplate": f"{name}<br>%{{x:.4g}}, %{{y:.2e}}<extra></extra>",
        })  # fmt: skip
    low, high = limits([c.values for c in curves], floor)
    right, beyond = reach(curves, axis, floor)
    positive = [v for c in curves for v in c.axes[axis][1:2] if v > 0]
    ranges = {
        "linear": [0, right],
        "log": [float(np.log10(min(positive, default=right / 10))), float(np.log10(right))],
    }
    layout = base_layout(
        xaxis={
            "title": {"text": (axis if axis != "megabytes" else "MB") + beyond},
            "range": ranges["linear"],
        },
        yaxis={
            "title": {"text": words}, "type": "log", "exponentformat": "power",
            "range": [float(np.log10(low)), float(np.log10(high))],
        },
    )  # fmt: skip
    return {
        "id": axis, "data": traces, "layout": layout, "curves": [c.name for c in curves],
        "ranges": ranges,
    }  # fmt: skip


def thinned(length: int) -> np.ndarray:
    """Which points are drawn of a long curve, the ends among them."""
    return np.unique(np.linspace(0, length - 1, min(length, _POINTS)).round().astype(int))


def _sizes(length: int, k: int) -> list[int]:
    """Sizes of the marks: a few along the curve, each curve at other places; elsewhere 0."""
    gap = max(1, length // _MARKS)
    first = int(gap * (0.618 * k % 1))
    return [7 if i % gap == first else 0 for i in range(length)]


def rounded(values) -> list[float | None]:
    """Numbers for the page, with six digits; None where there is none."""
    return [float(f"{v:.6g}") if np.isfinite(v) else None for v in values]


def _clients_chart(comparison) -> dict:
    names = [escape(n, quote=False) for n in comparison.test.names]
    traces = []
    for name, score in _scores(comparison).items():
        place = next((c.place for c in comparison.curves if c.name == name), None)
        colour = "#7f8794" if place is None else look(place)[0]
        traces.append({
            "type": "box", "name": escape(name, quote=False).replace("(", "<br>(", 1),
            "x": rounded(score.clients), "text": names, "orientation": "h",
            "boxpoints": "all", "jitter": 0.5, "pointpos": 0,
            "line": {"color": colour, "width": 1.5},
            "fillcolor": "rgba(0,0,0,0)", "marker": {"color": colour, "size": 5, "opacity": 0.7},
            "hovertemplate": "%{text}: %{x:.3f}<extra></extra>", "hoveron": "points",
        })  # fmt: skip
    kind = kind_of_score(comparison.problem)
    axis: dict = {"title": {"text": f"held-out {kind}"}}
    if any(s.least < -1 for s in _scores(comparison).values()):
        axis["range"] = [-1, 1.05]
    layout = base_layout(
        margin={"l": 8, "r": 12, "t": 8, "b": 48},
        xaxis=axis,
        yaxis={"autorange": "reversed", "automargin": True, "tickfont": {"size": 11}},
    )
    return {"id": "clients", "data": traces, "layout": layout, "curves": None, "ranges": None}
