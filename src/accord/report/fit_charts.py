"""What the pictures of a fit show, and their form for plotly on the page."""

from html import escape
from typing import Any, NamedTuple

import numpy as np

from accord.report.page import base_layout, rounded, thinned
from accord.report.style import COLOURS, cut, short

TERMS = 60
"""The most terms in the picture of the coefficients."""

CLIENTS_NAMED = 40
"""The most clients that have a line with their name; of more, each is a point."""

JOINT, OWN = COLOURS[0], COLOURS[1]
_GREY = "#7f8794"
_NAME = 26


class Effects(NamedTuple):
    """Coefficients as drawn: by class, ``estimates`` and ``errors`` (half intervals, or None) on the table's
    scale; ``deviations`` of the ``terms``; ``all_terms``: how many terms there are."""

    terms: list[str]
    labels: list[str]
    estimates: np.ndarray
    errors: np.ndarray | None
    deviations: np.ndarray
    all_terms: int


class Sites(NamedTuple):
    """Clients as drawn, the largest last: by measure its ``joint`` and ``own`` values (or None)."""

    names: list[str]
    rows: np.ndarray
    joint: dict[str, np.ndarray]
    own: dict[str, np.ndarray] | None


class Charts(NamedTuple):
    """The charts for the page, and the words above each."""

    charts: list[dict[str, Any]]
    effects_words: str
    clients_words: str
    convergence_words: str


def charts(fit) -> Charts:
    """The charts of a fit."""
    shown, sites = effects(fit), clients(fit)
    return Charts(
        [_effects_chart(fit, shown), _clients_chart(fit, sites), _convergence_chart(fit)],
        _effects_words(fit, shown),
        _clients_words(fit, sites),
        convergence_words(fit),
    )


def effects(fit) -> Effects:
    """The coefficients but the intercept, those of the largest effects where there are many terms."""
    scales = {t.name: t.deviation for t in fit.model.schema.terms}
    labels = list(dict.fromkeys(c.label for c in fit.coefficients))
    found = [c for c in fit.coefficients if c.term in scales]
    shape = (len(labels), len(scales))
    estimates = np.reshape([c.estimate for c in found], shape)
    errors = None
    if all(c.low is not None for c in found):
        errors = np.reshape([(c.high - c.low) / 2 for c in found], shape)
    deviations = np.array(list(scales.values()))
    largest = abs(estimates * deviations).max(0)
    kept = np.sort(np.argsort(-largest, kind="stable")[:TERMS])
    terms = [list(scales)[k] for k in kept]
    return Effects(
        terms, labels, estimates[:, kept], None if errors is None else errors[:, kept],
        deviations[kept], len(scales),
    )  # fmt: skip


def clients(fit) -> Sites:
    """The clients with rows, the largest last."""
    sites = sorted((s for s in fit.sites if s.rows), key=lambda s: s.rows)
    pairs = {fit.metric: ("score", "local_score"), "mean loss": ("loss", "local_loss")}

    def values(name):
        return np.array([np.nan if (v := getattr(s, name)) is None else v for s in sites], float)

    joint = {words: values(names[0]) for words, names in pairs.items()}
    own = None
    if any(s.local_loss is not None for s in sites):
        own = {words: values(names[1]) for words, names in pairs.items()}
    return Sites([s.client for s in sites], np.array([s.rows for s in sites]), joint, own)


def history(fit) -> tuple[np.ndarray, np.ndarray]:
    """(rounds, gradient norms), the start first; what is zero is drawn at the least number above it."""
    run = fit.solution.run
    rounds = np.concatenate([[0], run.history["round"]])
    norms = np.concatenate([[run.start["gradient_norm"]], run.history["gradient_norm"]])
    return rounds, np.maximum(norms, 1e-18)


def outcome(fit, label: str) -> str:
    """What a coefficient changes, in words."""
    name = cut(fit.model.schema.target.name, _NAME)
    if fit.model.kind == "logistic":
        return f"the log-odds of {name} = {cut(str(fit.model.classes[1]), _NAME)}"
    if fit.model.kind == "softmax":
        return f"the {'log-odds' if ' against ' in label else 'score'} of {cut(label, 2 * _NAME)}"
    return f"the log of the expected {name}" if fit.model.kind == "poisson" else name


def units(fit, shown: Effects) -> dict[str, tuple[str, np.ndarray]]:
    """By the words of a choice: the words on the axis, and the factor for every term."""
    return {
        "one standard deviation": ("per standard deviation", shown.deviations),
        "one unit": ("per unit", np.ones(len(shown.terms))),
    }


def fitting_range(values, least: float = -1.0) -> tuple[list[float] | None, int]:
    """(range, how many values lie outside) of an axis that a few extreme values would stretch."""
    values = values[np.isfinite(values)]
    if not len(values):
        return None, 0
    low, high = max(values.min(), least), values.max()
    ordinary = np.quantile(values, 0.99)
    if ordinary > 0 and high > 4 * ordinary:
        high = 1.5 * ordinary
    room = 0.04 * (high - low) or 0.05
    outside = int(((values < low) | (values > high)).sum())
    return [float(low - room), float(high + room)], outside


def opening(sites: Sites) -> int:
    """The measure shown first: the metric, unless a fifth of the clients has none."""
    joint = next(iter(sites.joint.values()))
    return int(np.isnan(joint).mean() > 0.2) if len(joint) else 0


def sizes(rows) -> np.ndarray:
    """Diameters whose squares grow with the rows, within limits."""
    return np.clip(20 * np.sqrt(rows / max(rows.max(initial=1), 1)), 5, 20)


def _effects_words(fit, shown: Effects) -> str:
    words = "Each point is a coefficient times the standard deviation of its column over all rows, so that "
    words += "columns with different units can be compared; the effect of one unit can be chosen. "
    if shown.errors is not None:
        words += "Bars are 95 % intervals. "
    elif fit.log_likelihood is None:
        why = "penalties" if fit.model.kind != "huber" else "penalties or with Huber's loss"
        words += f"There are no intervals: with {why} standard errors do not apply. "
    zeros = int((np.array([c.estimate for c in fit.coefficients]) == 0).sum())
    if zeros:
        words += f"{zeros} of {len(fit.coefficients)} coefficients are zero (hollow). "
    if shown.all_terms > len(shown.terms):
        words += f"Of {shown.all_terms} columns those with the {len(shown.terms)} largest effects are drawn. "
    return words.strip()


def _clients_words(fit, sites: Sites) -> str:
    words = "The measure of the joint model on each client's rows"
    if sites.own is None:
        return words + "; larger points have more rows."
    words += (
        ", beside that of a model fitted to these rows alone; larger points have more rows. The own model "
        "has seen nothing but the rows it is measured on, so that it does better here says nothing of "
        "new ones: accord validate tells of those."
    )
    if len(sites.names) > CLIENTS_NAMED:
        words += " On the line both do equally well."
    return words


def convergence_words(fit) -> str:
    """What the curve says."""
    rounds, norms = history(fit)
    last = fit.solution.run.history["gradient_norm"][-1]
    told = (
        f"The norm of the objective's gradient after each round: {short(norms[0])} at the start, "
    )
    told += f"{short(last)} after "
    if len(rounds) == 2 and rounds[-1] == 1:
        return told + "the one round that was needed."
    return told + f"{int(rounds[-1])} rounds."


def _effects_chart(fit, shown: Effects) -> dict:
    at = list(range(len(shown.terms)))
    views = []
    for label, estimate, error in zip(
        shown.labels,
        shown.estimates,
        shown.labels if shown.errors is None else shown.errors,
        strict=True,
    ):
        for words, factor in units(fit, shown).values():
            data: dict[str, Any] = {
                "x": [rounded(estimate * factor)],
                "marker.symbol": [["circle-open" if e == 0 else "circle" for e in estimate]],
            }
            if shown.errors is not None:
                data["error_x.array"] = [rounded(error * factor)]
            what = outcome(fit, label).replace(" against ", "\nagainst ")
            title = f"change of {what}\n{words}"
            title = escape(title, quote=False).replace("\n", "<br>")
            views.append(
                {"data": data, "layout": {"xaxis.title.text": title, "xaxis.autorange": True}}
            )
    first = views[0]
    lines = first["layout"]["xaxis.title.text"].count("<br>") + 1
    trace: dict[str, Any] = {
        "type": "scatter", "mode": "markers", "y": at, "x": first["data"]["x"][0],
        "text": [escape(cut(t, 80), quote=False) for t in shown.terms],
        "marker": {"color": JOINT, "size": 8, "symbol": first["data"]["marker.symbol"][0]},
        "hovertemplate": "%{text}: %{x:.4g}<extra></extra>",
    }  # fmt: skip
    if shown.errors is not None:
        trace["error_x"] = {
            "type": "data", "array": first["data"]["error_x.array"][0], "color": JOINT,
            "thickness": 1.5, "width": 0,
        }  # fmt: skip
    choices = [{"words": "effect of", "options": list(units(fit, shown))}]
    if len(shown.labels) > 1:
        choices.insert(0, {"words": "class", "options": shown.labels})
    layout = base_layout(
        height=24 * len(at) + 74 + 16 * lines,
        margin={"l": 8, "r": 12, "t": 8, "b": 40 + 16 * lines},
        xaxis={"title": {"text": first["layout"]["xaxis.title.text"]}, "zeroline": False},
        yaxis=_named(shown.terms) | {"range": [len(at) - 0.4, -0.6]},
        shapes=[_line(x0=0, x1=0, y0=0, y1=1, yref="paper")],
    )
    return _chart("coefficients", [trace], layout, choices, views)


def _clients_chart(fit, sites: Sites) -> dict:
    few = len(sites.names) <= CLIENTS_NAMED
    drawn = [(_lines if few else _cloud)(sites, words) for words in sites.joint]
    views = []
    for traces, layout in drawn:
        keys = ("x",) if few else ("x", "y")
        views.append({"data": {k: [t[k] for t in traces] for k in keys}, "layout": _flat(layout)})
    first = opening(sites)
    traces, own = drawn[first]
    height = 30 * len(sites.names) + 110 if few else 460
    layout = base_layout(
        height=height, hovermode="closest",
        margin={"l": 8 if few else 64, "r": 12, "t": 8, "b": 56}, **own,
    )  # fmt: skip
    if few:
        layout |= {"showlegend": sites.own is not None, "margin": layout["margin"] | {"t": 34}}
        layout["legend"] = {
            "orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "itemsizing": "constant",
        }  # fmt: skip
    choices = [{"words": "measure", "options": list(sites.joint), "first": first}]
    return _chart("clients", traces, layout, choices, views)


def _lines(sites: Sites, words: str) -> tuple[list[dict], dict]:
    """One line a client: its joint value, its own, and what lies between."""
    joint, at = sites.joint[words], list(range(len(sites.names)))
    texts = _texts(sites)
    base = {"type": "scatter", "mode": "markers", "y": at, "text": texts}
    traces = []
    if sites.own is not None:
        own = sites.own[words]
        ends = np.column_stack([joint, own, np.full(len(at), np.nan)]).ravel()
        traces.append({
            "type": "scatter", "mode": "lines", "x": rounded(ends), "y": np.repeat(at, 3).tolist(),
            "line": {"color": _GREY, "width": 1.5}, "hoverinfo": "skip", "showlegend": False,
        })  # fmt: skip
        traces.append(base | {
            "x": rounded(own), "name": "own model",
            "marker": {"color": OWN, "size": sizes(sites.rows).tolist(), "symbol": "diamond", "opacity": 1},
            "hovertemplate": "%{text}: own model %{x:.4g}<extra></extra>",
        })  # fmt: skip
    traces.append(base | {
        "x": rounded(joint), "name": "joint model",
        "marker": {"color": JOINT, "size": sizes(sites.rows).tolist(), "symbol": "circle", "opacity": 1},
        "hovertemplate": "%{text}: joint model %{x:.4g}<extra></extra>",
    })  # fmt: skip
    every = joint if sites.own is None else np.concatenate([joint, sites.own[words]])
    reach, outside = fitting_range(every)
    layout = {
        "xaxis": {"title": {"text": _outside(words, outside)}, "range": reach, "zeroline": False},
        "yaxis": _named(sites.names) | {"range": [-0.7, len(at) - 0.3]},
    }
    return traces, layout


def _cloud(sites: Sites, words: str) -> tuple[list[dict], dict]:
    """One point a client: own value against joint value, or rows against joint value."""
    joint = sites.joint[words]
    trace = {
        "type": "scattergl" if len(joint) > 5000 else "scatter", "mode": "markers",
        "text": _texts(sites), "y": rounded(joint),
        "marker": {"color": JOINT, "size": sizes(sites.rows).tolist(), "opacity": 0.45},
    }  # fmt: skip
    reach, outside = fitting_range(joint)
    y = {"title": {"text": f"joint model: {words}"}, "range": reach, "zeroline": False}
    if sites.own is None:
        trace |= {"x": sites.rows.tolist(), "hovertemplate": "%{text}: %{y:.4g}<extra></extra>"}
        x: dict[str, Any] = {"title": {"text": _outside("rows", outside)}, "type": "log"}
        return [trace], {"xaxis": x, "yaxis": y}
    own = sites.own[words]
    trace |= {
        "x": rounded(own),
        "hovertemplate": "%{text}: joint %{y:.4g}, own %{x:.4g}<extra></extra>",
    }
    across, _ = fitting_range(own)
    outside = 0
    if reach and across:
        gone = [(v < r[0]) | (v > r[1]) for v, r in ((joint, reach), (own, across))]
        outside = int((gone[0] | gone[1]).sum())
    x = {
        "title": {"text": _outside(f"own model: {words}", outside)},
        "range": across,
        "zeroline": False,
    }
    layout: dict[str, Any] = {"xaxis": x, "yaxis": y, "shapes": []}
    if reach and across:
        low, high = max(reach[0], across[0]), min(reach[1], across[1])
        if high > low:
            layout["shapes"] = [_line(x0=low, x1=high, y0=low, y1=high)]
    return [trace], layout


def _convergence_chart(fit) -> dict:
    rounds, norms = history(fit)
    kept = thinned(len(rounds))
    few = len(rounds) <= 60
    trace = {
        "type": "scatter", "mode": "lines+markers" if few else "lines",
        "x": rounded(rounds[kept]), "y": rounded(norms[kept]),
        "line": {"color": JOINT, "width": 2}, "marker": {"color": JOINT, "size": 7},
        "hovertemplate": "round %{x:.0f}: %{y:.2e}<extra></extra>",
    }  # fmt: skip
    xaxis: dict[str, Any] = {"title": {"text": "rounds"}}
    if rounds[-1] <= 10:
        xaxis["dtick"] = 1
    layout = base_layout(
        xaxis=xaxis,
        yaxis={"title": {"text": "gradient norm"}, "type": "log", "exponentformat": "power"},
    )
    return _chart("convergence", [trace], layout)


def _chart(name: str, data, layout, choices=None, views=None) -> dict:
    return {
        "id": name, "data": data, "layout": layout, "curves": None, "ranges": None,
        "choices": choices, "views": views,
    }  # fmt: skip


def _named(names) -> dict:
    """A vertical axis with a name at each whole number."""
    return {
        "tickvals": list(range(len(names))),
        "ticktext": [escape(cut(name, _NAME), quote=False) for name in names],
        "automargin": True, "tickfont": {"size": 11}, "zeroline": False, "showgrid": True,
    }  # fmt: skip


def _texts(sites: Sites) -> list[str]:
    return [
        f"{escape(cut(name, 60), quote=False)} ({rows:,} rows)"
        for name, rows in zip(sites.names, sites.rows, strict=True)
    ]


def _outside(words: str, count: int) -> str:
    return f"{words} ({count} outside the picture)" if count else words


def _line(**ends) -> dict:
    return {
        "type": "line",
        "line": {"color": _GREY, "width": 1.2, "dash": "dot"},
        "layer": "below",
    } | ends


def _flat(layout: dict) -> dict:
    """What changes of a layout with the measure, as plotly's update takes it."""
    flat: dict[str, Any] = {"shapes": layout.get("shapes", [])}
    for axis in ("xaxis", "yaxis"):
        flat[f"{axis}.title.text"] = layout[axis].get("title", {}).get("text", "")
        if layout[axis].get("range"):
            flat[f"{axis}.range"] = layout[axis]["range"]
    return flat
