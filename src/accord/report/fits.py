"""A fit from tables, and its validation: on a terminal, as one HTML page, and as pictures."""

from html import escape as html_escape
from pathlib import Path

import numpy as np

from accord.files import write_whole
from accord.report.fit_charts import charts
from accord.report.labels import spelled
from accord.report.page import filled, html_notes, html_papers, html_table, page
from accord.report.style import at_most, chance, cut, measured, scientific, share, short, size
from accord.report.terminal import Block, stack
from accord.theory import DENSE_LIMIT

PRINTED_CLIENTS = 20
PRINTED_COEFFICIENTS = 40
LISTED = 3000
"""The most rows of a table on the page."""

REVEALS = {
    "constants": "bounds on the curvature of its loss: two numbers",
    "measures": "value and gradient of its loss at the model",
    "schema": "of each column a count, the missing, mean, squared deviations, least and greatest value, or "
    "its categories with their counts; then the encoding that all agree on, back to everyone",
    "certificate": "the gradient and the Hessian at the model, its rounding, and a bound on the Hessian "
    "nearby: of a client with few rows, much of its columns",
    "results": "of each client its rows, its loss and what its measure is made of, as sums",
}
"""What a client says of itself in each part of a fit but the fitting."""

MEASURED = "measured fit"
"""The part of a fit whose rounds also measure the objective, as where rows stay at the sites."""

_PROOF = (
    "This is not a comparison of runs: gradient and curvature of the objective at the model leave its "
    "minimiser no other place, rounding included."
)


_OWN = (
    "own: a model of the client's rows alone, measured on these very rows, where it cannot but look good; "
    "accord validate measures on rows not seen."
)


def show(fit, console=None) -> None:
    """Prints a fit, in as many parts as the width of the terminal asks for."""
    from rich.console import Console

    console = console or Console()
    _say(console, _headline(fit), "bold")
    _say(console, str(fit.status), "" if fit.status.name == "converged" else "yellow")
    console.print()
    chosen = _largest(fit, PRINTED_COEFFICIENTS)
    _stack(console, *coefficient_blocks(fit, chosen, max(12, console.width // 4), told=False))
    if len(chosen) < len(fit.coefficients):
        _say(
            console,
            f"The {len(chosen)} largest effects of {len(fit.coefficients)} coefficients; all are in the "
            "report.",
        )
    against = _against(fit)
    if against:
        _say(console, f"Coefficients are log-odds of a class{against}.")
    if baselines(fit):
        _say(console, baselines(fit))
    _say(console, certified(fit))
    _say(console, measures(fit))
    console.print()
    largest = _largest_clients(fit.sites, PRINTED_CLIENTS)
    _stack(console, *client_blocks(fit, largest, max(12, console.width // 4)))
    if len(largest) < len(fit.sites):
        left = len(fit.sites) - len(largest)
        _say(console, f"The {len(largest)} largest clients; {left:,} more are in the report.\n")
    if any(s.local_loss is not None for s in fit.sites):
        _say(console, f"{_OWN}\n")
    _stack(console, *exchange_blocks(fit))
    _say(console, method(fit))
    for note in fit.notes:
        _say(console, note, "dim")


def show_validation(found, console=None) -> None:
    """Prints what leaving each client out gave: the largest clients, and all together."""
    from rich.console import Console

    console = console or Console()
    largest = _largest_clients(found.clients, 2 * PRINTED_CLIENTS)
    width = max(12, console.width // 4)
    blocks = [
        Block(["rows"], [[f"{c.rows:,}" for c in largest]]),
        Block(
            ["loss", found.metric],
            [[short(c.loss) for c in largest], [share(c.score) for c in largest]],
        ),
    ]
    _stack(console, Block(["client"], [[cut(c.client, width) for c in largest]], False), blocks)
    if len(largest) < len(found.clients):
        _say(console, f"The {len(largest)} largest of {len(found.clients):,} clients.")
    _say(
        console,
        f"Each client under the model of the others. All together: loss {measured(found.loss)}, "
        f"{found.metric} {share(found.score)}.",
    )
    for c in found.clients:
        if c.note:
            _say(console, f"{c.client}: {c.note}", "dim")


def write_report(fit, path, title: str | None = None) -> Path:
    """Writes a fit as one self-contained HTML file, which loads nothing."""
    return write_whole(Path(path), render(fit, title))


def pictures(fit, folder) -> list[Path]:
    """Writes the page's pictures as PNG files into a folder, which is made if need be."""
    from accord.report.fit_pictures import draw

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return [write_whole(folder / f"{name}.png", png) for name, png in draw(fit).items()]


def render(fit, title: str | None = None) -> str:
    """The page of a fit."""
    drawn, headline = charts(fit), _headline(fit)
    coefficients, clients = fit.coefficients[:LISTED], _largest_clients(fit.sites, LISTED)
    parts = {
        "certificate": html_escape(certified(fit) + " " + _PROOF * (_bound(fit) is not None)),
        "effects": html_escape(drawn.effects_words),
        "baselines": html_escape(baselines(fit)),
        "coefficient_table": _html(*coefficient_blocks(fit, coefficients)),
        "coefficients_left": _left(len(coefficients), len(fit.coefficients), "coefficients"),
        "clients_words": html_escape(drawn.clients_words),
        "client_table": _html(*client_blocks(fit, clients)),
        "clients_left": _left(len(clients), len(fit.sites), "clients"),
        "convergence_words": html_escape(drawn.convergence_words),
        "exchange_table": _html(*exchange_blocks(fit, told=True)),
        "method": html_escape(method(fit)),
        "notes": html_notes(fit.notes) or '<p class="note">None.</p>',
        "papers": html_papers([fit.solution.run.algorithm]),
    }
    return page(
        title or headline[:1].upper() + headline[1:],
        "One model for the rows of all clients, which stay where they are.",
        facts(fit),
        filled("fit.html", parts),
        {"charts": drawn.charts},
    )


def _left(listed: int, total: int, what: str) -> str:
    if listed == total:
        return ""
    return f'<p class="note">{listed:,} of {total:,} {what}; the result in JSON has all.</p>'


def _headline(fit) -> str:
    """Model, target, clients and rows in one line."""
    penalties = [
        f"{name} {value:g}" for name in ("l1", "l2") if (value := fit.model.provenance.get(name))
    ]
    clients = f"{len(fit.sites):,} client" + "s" * (len(fit.sites) != 1)
    parts = [
        f"{fit.model.kind} model of {cut(fit.model.schema.target.name, 40)}",
        clients,
        f"{fit.rows:,} rows",
        *penalties,
    ]
    return ", ".join(parts)


def facts(fit) -> list[tuple[str, str]]:
    """A fit in a few numbers, as (name, value)."""
    schema, run = fit.model.schema, fit.solution.run
    up, down = (sum(getattr(e, way) for e in fit.exchanges) for way in ("up", "down"))
    bound = _bound(fit)
    found = [
        ("model", fit.model.kind),
        ("target", schema.target.name),
        ("clients", f"{len(fit.sites):,}"),
        ("rows", f"{fit.rows:,}"),
        ("coefficients", f"{np.size(fit.model.x):,}"),
        ("status", str(fit.status.name)),
        (fit.metric, share(fit.score)),
        ("mean loss", measured(fit.loss)),
    ]
    if fit.log_likelihood is not None:
        found.append(("log-likelihood", f"{fit.log_likelihood:,.2f}"))
    found += [(n, f"{v:g}") for n in ("l1", "l2") if (v := fit.model.provenance.get(n))]
    if fit.model.kind == "huber":
        found.append(("threshold", f"{fit.model.threshold:g}"))
    return [
        *found,
        ("method", type(run.algorithm).__name__),
        ("rounds", str(int(run.history["round"][-1]))),
        ("sent up, all clients", size(up)),
        ("sent down, all clients", size(down)),
        ("gradient norm", scientific(fit.certificate.gradient_norm)),
        ("certified to", "no bound" if bound is None else at_most(bound)),
    ]


def _bound(fit) -> float | None:
    """The largest bound on a coefficient's error, on the table's scale."""
    bounds = [c.error_bound for c in fit.coefficients]
    return None if not bounds or None in bounds else max(bounds)


def certified(fit) -> str:
    """How close the coefficients are to the pooled fit, or why that is not known."""
    bound, certificate = _bound(fit), fit.certificate
    if bound is not None:
        return f"All coefficients are within {at_most(bound)} of the pooled fit."
    if certificate.distance is not None:
        return (
            f"The coefficients of the encoded columns, together, are within "
            f"{at_most(certificate.distance)} of the pooled fit."
        )
    count = np.size(fit.model.x)
    if count > DENSE_LIMIT:
        why = f"the Hessian of {count:,} coefficients, more than {DENSE_LIMIT}, is not formed"
    elif fit.status.name != "converged":
        why = "the fit ended too far from the optimum for one"
    else:
        why = "the objective is flat to rounding in some direction"
    norm = scientific(certificate.gradient_norm)
    return f"No bound on the distance to the pooled fit: {why}. The gradient norm is {norm}."


def measures(fit) -> str:
    """Likelihood, measure and loss in one line."""
    told = [f"{fit.metric} {share(fit.score)}", f"mean loss {measured(fit.loss)}"]
    if fit.metric == "AUC" and len(fit.sites) > 1:
        told[0] += " (mean of the clients', by rows)"
    if fit.log_likelihood is not None:
        told.insert(0, f"log-likelihood {fit.log_likelihood:,.2f}")
    return ", ".join(told) + "."


def method(fit) -> str:
    """The method with what was chosen for it, and why it was taken."""
    algorithm = fit.solution.run.algorithm
    name, reason = type(algorithm).__name__, fit.choice.reason.rstrip(".")
    if reason.startswith(f"{name}:"):
        reason = reason.split(":", 1)[1].strip()
    return f"Method: {spelled(algorithm).removesuffix('()')}, {reason}."


def _against(fit) -> str:
    """What every class is held against, as the labels of the coefficients say it, or ""."""
    if fit.model.kind != "softmax":
        return ""
    words = f" against {fit.model.classes[0]}"
    return words if all(c.label.endswith(words) for c in fit.coefficients) else ""


def baselines(fit) -> str:
    """The category that the others of its column are held against, or ""."""
    schema = fit.model.schema
    named = {t.column for t in schema.terms if t.kind == "category"}
    firsts = [f"{f.name}: {f.categories[0]}" for f in schema.features if f.name in named]
    return f"Categories are held against {', '.join(firsts)}." if firsts else ""


def _largest(fit, count: int) -> list:
    """The coefficients with the largest effects of a standard deviation, in the order of the fit."""
    scales = {t.name: t.deviation for t in fit.model.schema.terms}
    sizes = [abs(c.estimate) * scales.get(c.term, np.inf) for c in fit.coefficients]
    kept = sorted(np.argsort(-np.array(sizes), kind="stable")[:count])
    return [fit.coefficients[k] for k in kept]


def _largest_clients(sites, count: int) -> list:
    """The clients with the most rows, largest first where not all are shown."""
    return list(sites) if len(sites) <= count else sorted(sites, key=lambda s: -s.rows)[:count]


def coefficient_blocks(
    fit, chosen, width: int = 10_000, told: bool = True
) -> tuple[Block, list[Block]]:
    """(key, blocks) of the table of coefficients, names cut to ``width``; ``told``: with the class that
    others are held against."""
    heads, keys = ["term"], [[cut(c.term, width) for c in chosen]]
    if any(c.label for c in chosen):
        heads.append("class")
        labels = [c.label if told else c.label.removesuffix(_against(fit)) for c in chosen]
        keys.append([cut(label, width) for label in labels])
    estimates = [measured(c.estimate, c.standard_error) for c in chosen]
    blocks = [Block(["estimate"], [estimates])]
    if any(c.standard_error is not None for c in chosen):
        law = "t" if fit.model.kind == "linear" else "z"
        low = [measured(c.low, c.standard_error) for c in chosen]
        high = [measured(c.high, c.standard_error) for c in chosen]
        blocks += [
            Block(["std. error"], [[_error(c.standard_error) for c in chosen]]),
            Block(
                [law, "p value"],
                [[_statistic(c.statistic) for c in chosen], [chance(c.p_value) for c in chosen]],
            ),
            Block(["95 % low", "95 % high"], [low, high]),
        ]
    return Block(heads, keys, right=False), blocks


def _error(value) -> str:
    return measured(value, value)


def _statistic(value) -> str:
    return measured(value) if value is None or abs(value) >= 1e4 else measured(value, 0.1)


def client_blocks(fit, chosen, width: int = 10_000) -> tuple[Block, list[Block]]:
    """(key, blocks) of the table of clients: the joint model, and each client's own."""
    blocks = [
        Block(["\nrows"], [[f"{s.rows:,}" for s in chosen]]),
        Block(
            ["joint\nloss", f"joint\n{fit.metric}"],
            [[short(s.loss) for s in chosen], [share(s.score) for s in chosen]],
        ),
    ]
    if any(s.local_loss is not None for s in fit.sites):
        own = [[short(s.local_loss) for s in chosen], [share(s.local_score) for s in chosen]]
        blocks.append(Block(["own\nloss", f"own\n{fit.metric}"], own))
    return Block(["\nclient"], [[cut(s.client, width) for s in chosen]], right=False), blocks


def exchange_blocks(fit, told: bool = False) -> tuple[Block, list[Block]]:
    """(key, blocks) of the table of what was sent; ``told``: with what it says of a client."""
    parts = fit.exchanges
    blocks = [
        Block(["rounds"], [[str(e.rounds) for e in parts]]),
        Block(
            ["sent up", "sent down"], [[size(e.up) for e in parts], [size(e.down) for e in parts]]
        ),
    ]
    if told:
        each = f"each round: {fit.solution.run.algorithm.reveals}"
        says = REVEALS | {"fit": each, MEASURED: f"{each}; {REVEALS['measures']}"}
        blocks.append(
            Block(["what a client tells"], [[says.get(e.part, "") for e in parts]], False)
        )
    return Block(["part"], [[e.part for e in parts]], right=False), blocks


def _say(console, text: str, style: str = "") -> None:
    from rich.text import Text

    plain = "\n".join(cut(line, 10_000) for line in text.split("\n"))
    console.print(Text(plain, style=style))


def _stack(console, key: Block, blocks) -> None:
    from rich.markup import escape

    def plain(block):
        heads = [escape(h) for h in block.headers]
        return Block(heads, [[escape(c) for c in column] for column in block.columns], block.right)

    stack(console, plain(key), [plain(b) for b in blocks])


def _html(key: Block, blocks) -> str:
    """The same table in HTML."""
    heads, columns, kinds = [], [], []
    for block in (key, *blocks):
        words = any(len(cell) > 60 for column in block.columns for cell in column)
        kind = ' class="number"' if block.right else ' class="words"' if words else ""
        for head, column in zip(block.headers, block.columns, strict=True):
            heads.append(f"<th{kind}>{html_escape(head.replace(chr(10), ' ').strip())}</th>")
            columns.append(column)
            kinds.append(kind)
    rows = [
        [
            f'<th scope="row">{html_escape(cell)}</th>'
            if k == 0
            else f"<td{kinds[k]}>{html_escape(cell)}</td>"
            for k, cell in enumerate(cells)
        ]
        for cells in zip(*columns, strict=True)
    ]
    return html_table(f"<tr>{''.join(heads)}</tr>", rows)
