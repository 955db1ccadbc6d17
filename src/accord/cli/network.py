"""``accord network``: methods on a network, where neighbours agree without a server."""

import inspect
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import accord
from accord.cli.app import app
from accord.cli.shared import (
    L2,
    Bars,
    Intercept,
    Output,
    Rounds,
    Seed,
    Table,
    deliver,
    literal,
    parse_methods,
    places,
)
from accord.core.checks import closest

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
        typer.Option(help="A family and its numbers, as ring:20, grid:6:6, erdos_renyi:50:0.1."),
    ] = None,
    edges: Annotated[
        Path | None, typer.Option(help="A .csv of edges instead: two columns of node names.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help="Two columns of positions: each node is joined to its nearest ones."),
    ] = None,
    neighbours: Annotated[int, typer.Option(help="How many nearest ones, with --at.")] = 3,
    data: Annotated[
        Path | None, typer.Option(help="A .csv or .parquet table; default: random readings.")
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
    output: Output = Path("network/report.html"),
    csv: Table = None,
) -> None:  # fmt: skip
    """Run methods on a network, where neighbours agree without a server."""
    from accord import report
    from accord.graph import METHODS as KNOWN

    known = KNOWN if value or not target else {n: m for n, m in KNOWN.items() if n != "Gossip"}
    disturbed = activation != "synchronous" or loss != "0"
    if disturbed and methods == NETWORK_METHODS:
        # The methods that mix models are synchronous and want every message.
        methods = "PDMM,PDMM:relaxation=0.5"
    elif methods == NETWORK_METHODS and not target:
        methods += ",Gossip"
    chosen = parse_methods(methods, known)
    problem, names, positions = _readings(data, node, value, target, features, l2, intercept, at)
    net = _network(graph, edges, neighbours, names, positions, seed)
    if problem is None:
        problem = accord.problems.averaging(np.random.default_rng(seed).standard_normal(len(net)))
    output = places(output, csv)
    single = np.size(problem.initial()) * len(net) <= 2000
    with Bars(rounds) as bars:
        comparison = report.compare(
            chosen, problem, rounds, seed, network=net, progress=bars.show,
            activation=_activation(activation), loss_probability=_loss(loss),
            communication="broadcast" if broadcast else "unicast", weights="problem",
            record=("x",) if single else (),
        )  # fmt: skip
    shown = graph or (edges.name if edges else f"{len(net)} sites")
    deliver(comparison, output, csv, f"{shown}: {len(chosen)} methods on {problem.name}")
    if len(net) <= 2000:
        net.draw(path=output.parent / "network.png")
        typer.echo(f"network   {output.parent / 'network.png'}")


def _readings(data, node, value, target, features, l2, intercept, at):
    """(problem, the nodes' names, their positions): None where they are not given."""
    if data is None:
        if node or value or target or at:
            raise ValueError("data: say which table has these columns, with --data")
        return None, None, None
    if (value is None) == (target is None):
        raise ValueError(
            f"value, target: say --value COLUMN to average {data.name}, or --target COLUMN for least squares"
        )
    if node is None:
        raise ValueError(f"node: say which column of {data.name} names the nodes")
    read = accord.data.read_table
    places = None
    if at is not None:
        columns = [c.strip() for c in at.split(",")]
        if len(columns) != 2:
            raise ValueError(f"at: got {at!r}; expected two columns, as --at longitude,latitude")
        sites = read(data, target=columns[0], client=node, features=columns)
        places = np.array([X.mean(0) for X, _ in sites])
    if value is not None:
        rows = read(data, target=value, client=node, features=[value])
        means = np.array([y.mean() for _, y in rows])
        return accord.problems.averaging(means), rows.names, places
    chosen = None if features is None else [f.strip() for f in features.split(",")]
    rows = read(data, target=target, client=node, features=chosen)
    return accord.problems.least_squares(rows, l2, intercept=intercept), rows.names, places


def _network(graph, edges, neighbours, names, positions, seed):
    from accord.graph import Network

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
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    if not rows or any(len(row) != 2 for row in rows):
        raise ValueError(f"edges: {path.name}: expected a header and two columns of node names")
    return [(a.strip(), b.strip()) for a, b in rows[1:]]


def _activation(text: str):
    from accord.graph import PoissonClock, RandomSubset

    if text == "clocks":
        return PoissonClock()
    share = literal(text)
    if isinstance(share, int | float):
        return RandomSubset(share)
    return text


def _loss(text: str):
    from accord.graph import GilbertElliott

    parts = [literal(part) for part in text.split(":")]
    if len(parts) > 2 or any(isinstance(p, str) for p in parts):
        raise ValueError(
            f"loss: got {text!r}; accepted is a share as 0.3, or TO_BAD:TO_GOOD as 0.05:0.3"
        )
    return parts[0] if len(parts) == 1 else GilbertElliott(*parts)
