"""``accord network``: methods on a network, where neighbours agree without a server."""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

import accord
from accord.algorithms import literal, parse_methods
from accord.cli.app import app
from accord.cli.shared import (
    L2,
    Bars,
    Intercept,
    Output,
    Rounds,
    Seed,
    Table,
    check_numbers,
    deliver,
    places,
    table_file,
)
from accord.core.checks import closest, is_number

GRAPHS = {
    "ring": (1, "nodes"),
    "path": (1, "nodes"),
    "grid": (2, "rows:columns"),
    "torus": (2, "rows:columns"),
    "complete": (1, "nodes"),
    "star": (1, "nodes"),
    "erdos_renyi": (2, "nodes:probability"),
    "random_geometric": (1, "nodes[:radius]"),
    "barabasi_albert": (1, "nodes[:attachments]"),
    "small_world": (1, "nodes[:neighbours[:rewiring]]"),
}
"""Families on the command line: the fewest numbers they want, and their names."""

ROUGH = 1e-4
"""The share of the error at the start that an answer may keep before more rounds are advised."""

NETWORK_METHODS = "PDMM,PDMM:relaxation=0.5,EXTRA,GradientTracking,DGD"


@app.command(
    epilog="Examples: accord network --graph grid:6:6"
    "\n\naccord network --data stations.csv --node station --at longitude,latitude --value temperature"
    "\n\naccord network --data stations.csv --node station --at longitude,latitude --target temperature "
    "--features elevation,year --activation asynchronous --loss 0.3"
)
def network(
    graph: Annotated[
        str | None,
        typer.Option(help=f"A family and its numbers, as ring:20, grid:6:6: {', '.join(GRAPHS)}."),
    ] = None,
    edges: Annotated[
        Path | None, typer.Option(help="A .csv of edges instead: a header, two columns of node names.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help="Two columns of positions: each node is joined to its nearest ones."),
    ] = None,
    neighbours: Annotated[int, typer.Option(help="How many nearest ones, with --at.")] = 3,
    data: Annotated[
        Path | None,
        typer.Option(help="A .csv or .parquet table, or a data set's name; default: random ones."),
    ] = None,
    node: Annotated[str | None, typer.Option(help="The table's column of nodes.")] = None,
    value: Annotated[
        str | None, typer.Option(help="Average this column: a node's reading is its rows' mean.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Least squares of this column on the features.")
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="The features, with commas between; default: all others.")
    ] = None,
    standardise: Annotated[
        bool, typer.Option(help="Fit on features of mean 0 and deviation 1; told in their own units.")
    ] = True,
    l2: L2 = 0.0,
    intercept: Intercept = True,
    methods: Annotated[
        str, typer.Option(help="Names with commas between; parameters as NAME:penalty=0.5.")
    ] = NETWORK_METHODS,
    rounds: Rounds = 300,
    seed: Seed = 0,
    activation: Annotated[
        str,
        typer.Option(help="synchronous, asynchronous, clocks, or the share of nodes in a round."),
    ] = "synchronous",
    loss: Annotated[
        str, typer.Option(help="Share of messages lost, or TO_BAD:TO_GOOD for bursts.")
    ] = "0",
    broadcast: Annotated[
        bool, typer.Option(help="A node sends its model once to all neighbours.")
    ] = False,
    stop: Annotated[
        float | None,
        typer.Option(
            help="End a run where consensus error, dual residual and gradient norm are so small."
        ),
    ] = None,
    output: Output = Path("network/report.html"),
    csv: Table = None,
) -> None:  # fmt: skip
    """Run methods on a network, where neighbours agree without a server."""
    from accord import report
    from accord.graph import METHODS as KNOWN
    from accord.graph.drawing import PLACED

    check_numbers(rounds, seed, stop)
    activated, lossy = _activation(activation), _loss(loss)
    if methods == NETWORK_METHODS:
        methods = _fitting(activated == "synchronous" and lossy == 0, target is None)
    chosen = parse_methods(methods, KNOWN)
    data = None if data is None else table_file(data)
    task = _task(data, node, value, target, features, l2, intercept, standardise, at)
    net = _network(graph, edges, neighbours, task, seed)
    if task is None:
        task = _averaging(np.random.default_rng(seed).normal(10, 4, len(net)), None, None)
    output = places(output, csv)
    few = np.size(task.problem.initial()) * len(net) <= 2000
    with Bars(rounds) as bars:
        comparison = report.compare(
            chosen, task.problem, rounds, seed, network=net, progress=bars.show,
            activation=activated, loss_probability=lossy, weights="problem",
            communication="broadcast" if broadcast else "unicast", record=("x",) if few else (),
            tolerance=stop,
        )  # fmt: skip
    shown = graph or (edges.name if edges else f"{len(net)} sites")
    extra: dict[str, Callable[[Path], Path]] = {
        "nodes": lambda folder: _write_models(comparison, task, net, folder)
    }
    if len(net) <= PLACED:
        extra["network"] = lambda folder: _draw(net, task.readings, value or "reading", folder)
    title = f"{shown}: {len(chosen)} methods on {task.problem.name}"
    deliver(comparison, output, csv, title, extra)
    _tell(comparison, task)


def _fitting(undisturbed: bool, averages: bool) -> str:
    """The default methods, those left out told: mixing wants every message, gossip averages."""
    if not undisturbed:
        left_out = "EXTRA, GradientTracking, DGD and Gossip are synchronous and want every message"
        typer.echo(f"left out: {left_out}", err=True)
        return "PDMM,PDMM:relaxation=0.5"
    return NETWORK_METHODS + (",Gossip" if averages else "")


class _Task(NamedTuple):
    """What is solved: ``answer(x)`` is a model in words, as (name, value); ``readings`` (nodes,) or None."""

    problem: Any
    names: Sequence[str] | None
    places: np.ndarray | None
    readings: np.ndarray | None
    answer: Callable[[np.ndarray], dict[str, float]]


def _averaging(readings, names, places) -> _Task:
    problem = accord.problems.averaging(readings)
    return _Task(problem, names, places, readings, lambda x: {"average": float(x[0])})


def _task(data, node, value, target, features, l2, intercept, standardise, at) -> _Task | None:
    """The task of a table; None without one."""
    if data is None:
        if node or value or target or at or features:
            raise ValueError("data: say which table has these columns, with --data")
        return None
    if (value is None) == (target is None):
        raise ValueError(
            f"value, target: say --value COLUMN to average {data.name}, or --target COLUMN for "
            "least squares"
        )
    if node is None:
        raise ValueError(f"node: say which column of {data.name} names the nodes")
    sites = None
    if at is not None:
        columns = [c.strip() for c in at.split(",")]
        if len(columns) != 2:
            raise ValueError(f"at: got {at!r}; expected two columns, as --at longitude,latitude")
        sites = np.array(
            [rows.mean(0) for rows in accord.data.read_columns(data, columns, node)[1]]
        )
    if value is not None:
        names, rows = accord.data.read_columns(data, [value], node)
        return _averaging(np.array([own.mean() for own in rows]), names, sites)
    chosen = None if features is None else [f.strip() for f in features.split(",")]
    clients = accord.data.read_table(data, target=target, client=node, features=chosen)
    names = chosen or [f"feature {k + 1}" for k in range(clients.features[0])]
    return _regression(clients, names, sites, l2, intercept, standardise)


def _regression(clients, features, sites, l2, intercept, standardise) -> _Task:
    """Least squares, its answer in the columns' own units."""
    X = np.concatenate([X for X, _ in clients])
    mean, deviation = np.zeros(X.shape[1]), np.ones(X.shape[1])
    if standardise:
        mean = X.mean(0) if intercept else mean
        deviation = np.where(X.std(0) > 0, X.std(0), 1.0)
    pairs = [((X - mean) / deviation, y) for X, y in clients]
    scaled = accord.Clients.from_arrays(pairs, clients.names)
    problem = accord.problems.least_squares(scaled, l2, intercept=intercept)

    def answer(x):
        slopes = x[: len(features)] / deviation
        told = {"intercept": float(x[-1] - slopes @ mean)} if intercept else {}
        return told | {f: float(s) for f, s in zip(features, slopes, strict=True)}

    return _Task(problem, clients.names, sites, None, answer)


def _best(comparison):
    """The run that came closest, and its name."""
    return min(comparison.runs.items(), key=lambda run: run[1].history[comparison.measure][-1])


def _write_models(comparison, task, net, folder: Path) -> Path:
    """The model that every node holds at the end of the best run, as nodes.csv."""
    import polars

    from accord.files import write_whole

    _, run = _best(comparison)
    rows = [{"node": str(name)} | task.answer(x) for name, x in zip(net.names, run.x, strict=True)]
    return write_whole(folder / "nodes.csv", polars.DataFrame(rows).write_csv())


def _draw(net, readings, label: str, folder: Path) -> Path:
    from accord.graph import drawing

    picture = folder / "network.png"
    net.draw(readings, picture, label=label, names=len(net) <= drawing.NAMED)
    return picture


def _tell(comparison, task) -> None:
    """The answer, as the nodes hold it on average, and how far a node is from it, number by number."""
    from accord.report.style import short

    name, run = _best(comparison)
    told = task.answer(run.x.mean(0))
    nodes = [task.answer(x) for x in run.x]
    apart = [short(max(abs(n[key] - told[key]) for n in nodes)) for key in told]
    line = ", ".join(f"{key} {number:.6g}" for key, number in told.items())
    typer.echo(f"answer    {line} ({name}; nodes differ from it by up to {', '.join(apart)})")
    errors = run.history[comparison.measure]
    if errors[-1] > ROUGH * errors[0]:
        typer.echo(
            f"          {errors[-1] / errors[0]:.0e} of the error at the start is left: allow more --rounds"
        )


def _network(graph, edges, neighbours, task, seed):
    from accord.graph import Network

    names, positions = (None, None) if task is None else (task.names, task.places)
    given = [n for n, v in (("graph", graph), ("edges", edges), ("at", positions)) if v is not None]
    if len(given) > 1:
        raise ValueError(f"{', '.join(given)}: give one of them: each says who talks to whom")
    if positions is not None:
        return Network.from_positions(positions, neighbours, names)
    if edges is not None:
        pairs = _pairs(edges)
        nodes = names if names is not None else sorted({name for pair in pairs for name in pair})
        return Network(pairs, nodes)
    if graph is None and names is not None:
        raise ValueError(
            "graph: say who talks to whom: --at X,Y (columns of positions), --edges FILE, or --graph FAMILY"
        )
    family, *numbers = (graph or "random_geometric:40").split(":")
    if family not in GRAPHS:
        raise ValueError(closest(family, GRAPHS, "graph"))
    least, words = GRAPHS[family]
    most = words.count(":") + 1
    values = [literal(n) for n in numbers]
    if not least <= len(values) <= most or any(isinstance(v, str) for v in values):
        raise ValueError(f"graph: got {graph!r}; write {family}:{words}")
    make = getattr(Network, family)
    drawn = "seed" in inspect.signature(make).parameters
    made = make(*values, **({"seed": seed} if drawn else {}))
    if names is not None and len(made) != len(names):
        raise ValueError(
            f"graph: {graph} has {len(made)} nodes, the table {len(names)}; give as many"
        )
    return made


def _pairs(path: Path) -> list[tuple[str, str]]:
    import csv

    if not path.is_file():
        raise ValueError(f"edges: there is no file {str(path)!r}; check the path")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except UnicodeDecodeError:
        raise ValueError(f"edges: {path.name} is not UTF-8 text") from None
    if len(rows) < 2 or any(len(row) != 2 for row in rows):
        raise ValueError(
            f"edges: {path.name}: expected a header, then two columns of node names, at least one pair"
        )
    pairs = [(a.strip(), b.strip()) for a, b in rows]
    nodes = {name for pair in pairs[1:] for name in pair}
    if pairs[0][0] in nodes or pairs[0][1] in nodes:
        raise ValueError(
            f"edges: {path.name}: its first line {rows[0]} looks like an edge; expected a header, as from,to"
        )
    return pairs[1:]


def _activation(text: str):
    from accord.graph import PoissonClock, RandomSubset

    if text == "clocks":
        return PoissonClock()
    if text in ("synchronous", "asynchronous"):
        return text
    share = literal(text)
    if not is_number(share) or not 0 < share <= 1:
        raise ValueError(
            f"activation: got {text!r}; accepted are synchronous, asynchronous, clocks, and the share of "
            "nodes that act in a round, as 0.5"
        )
    return RandomSubset(share)


def _loss(text: str):
    from accord.graph import GilbertElliott

    parts = [literal(part) for part in text.split(":")]
    if len(parts) > 2 or not all(is_number(p) and 0 <= p <= 1 for p in parts) or parts == [1]:
        raise ValueError(
            f"loss: got {text!r}; accepted is a share below 1, as 0.3, or TO_BAD:TO_GOOD, as 0.05:0.3"
        )
    return parts[0] if len(parts) == 1 else GilbertElliott(*parts)
