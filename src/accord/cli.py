"""The command ``accord``: list and compare methods, on a star or a network; check one's own; cite."""

import ast
import dataclasses
import inspect
import os
import sys
import warnings
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from typer.core import TyperGroup

import accord
from accord import oracles, sources
from accord.core.checks import closest

METHODS = (
    "GradientDescent,FedAvg,FedProx,SCAFFOLD,Scaffnew,FedDyn,ADMM,FedPD,FedPD:skip_probability=0.3,"
    "PDMM,FedSplit,InexactFedSplit:start=primal,InexactFedSplit:start=dual,GPDMM,AGPDMM"
)
MODELS = ("softmax", "logistic", "least_squares", "poisson", "huber")


_TRACEBACK = "ACCORD_TRACEBACK"


class _Group(TyperGroup):
    """Commands whose bad input ends in one line and exit status 2.

    With ``ACCORD_TRACEBACK`` in the environment the traceback is shown instead.
    """

    def main(self, *args, standalone_mode=True, **options):
        try:
            code = super().main(*args, standalone_mode=False, **options)
        except typer.Abort:
            sys.exit(1)
        except Exception as error:
            told = getattr(error, "format_message", None)
            expected = told or isinstance(error, ValueError | TypeError | OSError)
            if _TRACEBACK in os.environ or not expected:
                raise
            line = " ".join(str(told() if told else error).split())
            typer.echo(f"accord: {line}", err=True)
            sys.exit(2)
        sys.exit(code if isinstance(code, int) else 0)


app = typer.Typer(cls=_Group, add_completion=False, pretty_exceptions_enable=False)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"accord {accord.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True, epilog="Example: accord compare --rounds 100")
def main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """Primal-dual federated and distributed optimisation."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("list", epilog="Example: accord list")
def list_methods() -> None:
    """List the methods: what they need, what they send, whether they reach the optimum."""
    from rich.console import Console
    from rich.markup import escape

    from accord.report.terminal import Block, stack

    rows = [_described(cls) for cls in accord.REGISTRY.values()]
    columns = {name: [escape(row[name]) for row in rows] for name in rows[0]}
    key = Block(["method"], [columns.pop("method")], right=False)
    blocks = [Block([name], [cells], right=False) for name, cells in columns.items()]
    console = Console()
    stack(console, key, blocks)
    console.print(
        "up, down: vectors of the model's size that a client sends and receives in a round. exact: "
        "reaches the optimum of F. partial: with clients absent. needs: of every objective; prox "
        "can be had from gradient steps.",
        style="dim",
        highlight=False,
    )


def _described(cls) -> dict[str, str]:
    """A method in words, its messages as the engine counts them on a small problem."""
    from accord.engines import Star, make_job

    rng = np.random.default_rng(0)
    arrays = [(rng.standard_normal((8, 64)), rng.standard_normal(8)) for _ in range(2)]
    problem = accord.problems.least_squares(accord.Clients.from_arrays(arrays), l2=1.0)
    job = make_job(cls(), problem)
    up, down = (size / job.x0.nbytes for size in Star(job).message_bytes)
    exact = job.algorithm.exact
    partial = "exact" if exact.reaches and exact.absent else "inexact"
    summary = (sys.modules[cls.__module__].__doc__ or cls.__name__).splitlines()[0].rstrip(".")
    return {
        "method": cls.__name__,
        "summary": summary.split(": ", 1)[-1],
        "up": f"{up:.2g}",
        "down": f"{down:.2g}",
        "exact": "yes" if exact.reaches else "no",
        "partial": "no" if cls.absent is None else partial,
        "needs": ", ".join(sorted(job.algorithm.needs)),
        "source": cls.source,
        "exact with": exact.when,
    }


@app.command(
    epilog="Examples: accord compare --methods GPDMM,AGPDMM,FedPD:skip_probability=0.3 --rounds 100"
    "\n\naccord compare --data patients.csv --target outcome --client hospital --model logistic"
)
def compare(
    data: Annotated[str, typer.Option(help="digits, or the path of a .csv or .parquet table.")]
    = "digits",
    target: Annotated[str | None, typer.Option(help="The table's column to predict.")] = None,
    client: Annotated[str | None, typer.Option(help="The table's column of clients.")] = None,
    model: Annotated[
        str | None, typer.Option(help=f"{', '.join(MODELS)}; softmax for digits.")
    ] = None,
    l2: Annotated[float, typer.Option(help="The weight of (l2/2) ||x||^2.")] = 1e-2,
    intercept: Annotated[bool, typer.Option(help="Fit an intercept, free of l2.")] = False,
    methods: Annotated[
        str, typer.Option(help="Names with commas between; parameters as NAME:local_steps=5.")
    ] = METHODS,
    rounds: Annotated[int, typer.Option(help="Communication rounds.")] = 300,
    seed: Annotated[int, typer.Option(help="The seed of all random numbers.")] = 0,
    participation: Annotated[float, typer.Option(help="The share of clients in a round.")] = 1.0,
    stop: Annotated[
        float | None, typer.Option(help="End a run at this gradient norm of F.")
    ] = None,
    test_every: Annotated[
        int, typer.Option(help="Hold out each so-many-th row of every client (a table: or 0).")
    ] = 5,
    output: Annotated[Path, typer.Option(help="The report; pictures go beside it.")]
    = Path("comparison/report.html"),
    csv: Annotated[Path | None, typer.Option(help="Write the table here too.")] = None,
) -> None:  # fmt: skip
    """Run methods on one problem and write a table, pictures and a report."""
    from accord import report

    algorithms = parse_methods(methods)
    problem, test = _problem(data, target, client, model, l2, intercept, test_every)
    output = _places(output, csv)
    bound = None if stop is None else accord.Stop(gradient_norm=stop)
    with _Bars(rounds) as bars:
        comparison = report.compare(
            algorithms, problem, rounds, seed, test=test, participation=participation, stop=bound,
            progress=bars.show,
        )  # fmt: skip
    _deliver(
        comparison, output, csv, f"{Path(data).name}: {len(algorithms)} methods on {problem.name}"
    )


def _places(output: Path, csv: Path | None) -> Path:
    """The report's path, its folder made."""
    output = output if output.suffix == ".html" else output / "report.html"
    for path in (output, *([csv] if csv else [])):
        path.parent.mkdir(parents=True, exist_ok=True)
    return output


def _deliver(comparison, output: Path, csv: Path | None, title: str) -> None:
    """The table on the terminal; report, pictures and perhaps a CSV file on disk."""
    from rich.console import Console

    typer.echo(err=True)
    comparison.print(Console())
    comparison.report(output, title)
    pictures = comparison.plots(output.parent)
    typer.echo(f"report    {output}")
    typer.echo(f"pictures  {', '.join(str(p) for p in pictures)}")
    if csv:
        comparison.write_csv(csv)
        typer.echo(f"table     {csv}")


def parse_methods(text: str, known: dict = accord.REGISTRY) -> list:
    """Instances from ``"GPDMM,FedPD:skip_probability=0.3"``, of the classes that are known by name."""
    return [_method(entry.strip(), known) for entry in text.split(",")]


def _method(entry: str, classes: dict):
    name, *given = entry.split(":")
    if name not in classes:
        raise ValueError(closest(name, classes, "methods"))
    cls = classes[name]
    known = [field.name for field in dataclasses.fields(cls)]
    chosen = {}
    for parameter in given:
        key, found, value = parameter.partition("=")
        if not found:
            raise ValueError(f"methods: {entry!r}: write parameters as {name}:parameter=value")
        if key not in known:
            raise ValueError(closest(key, known, f"methods: {name}"))
        chosen[key] = _oracle(value) if key == "oracle" else _literal(value)
    return cls(**chosen)


def _literal(text: str):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _oracle(name: str):
    solvers = [n for n in oracles.__all__ if n not in ("Oracle", "Solution", "steps")]
    if name not in solvers:
        raise ValueError(closest(name, solvers, "methods: oracle"))
    return getattr(oracles, name)()


def _problem(data, target, client, model, l2, intercept, test_every):
    """(problem, held-out clients or None)."""
    if model is not None and model not in MODELS:
        raise ValueError(closest(model, MODELS, "model"))
    if data == "digits":
        if target or client:
            raise ValueError("target, client: the digits have theirs; leave both out")
        train, test = accord.data.digits(test_every)
        model = model or "softmax"
    else:
        for name, value in (("target", target), ("client", client)):
            if value is None:
                raise ValueError(f"{name}: {data} is a table; say --{name} COLUMN")
        if model is None:
            raise ValueError(f"model: say which fits the column {target!r}: {', '.join(MODELS)}")
        clients = accord.data.read_table(data, target=target, client=client)
        train, test = _held_out(clients, test_every) if test_every else (clients, None)
    make = getattr(accord.problems, model)
    return make(train, l2=l2, intercept=intercept), test


def _held_out(clients, every: int):
    """(train, test): of every client, each ``every``-th row is held out."""
    if every < 2:
        raise ValueError(f"test-every: got {every}; accepted is 0, or a whole number >= 2")
    halves: tuple[list, list] = ([], [])
    for X, y in clients:
        held = np.arange(1, len(y) + 1) % every == 0
        halves[0].append((X[~held], y[~held]))
        halves[1].append((X[held], y[held]))
    train, test = (accord.Clients.from_arrays(half, clients.names) for half in halves)
    return train, test


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
    l2: Annotated[float, typer.Option(help="The weight of (l2/2) ||x||^2.")] = 0.0,
    intercept: Annotated[bool, typer.Option(help="Fit an intercept, free of l2.")] = True,
    methods: Annotated[
        str, typer.Option(help="Names with commas between; parameters as NAME:penalty=0.5.")
    ] = NETWORK_METHODS,
    rounds: Annotated[int, typer.Option(help="Rounds.")] = 300,
    seed: Annotated[int, typer.Option(help="The seed of all random numbers.")] = 0,
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
    output: Annotated[Path, typer.Option(help="The report; pictures go beside it.")]
    = Path("network/report.html"),
    csv: Annotated[Path | None, typer.Option(help="Write the table here too.")] = None,
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
    output = _places(output, csv)
    single = np.size(problem.initial()) * len(net) <= 2000
    with _Bars(rounds) as bars:
        comparison = report.compare(
            chosen, problem, rounds, seed, network=net, progress=bars.show,
            activation=_activation(activation), loss_probability=_loss(loss),
            communication="broadcast" if broadcast else "unicast", weights="problem",
            record=("x",) if single else (),
        )  # fmt: skip
    shown = graph or (edges.name if edges else f"{len(net)} sites")
    _deliver(comparison, output, csv, f"{shown}: {len(chosen)} methods on {problem.name}")
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
    values = [_literal(n) for n in numbers]
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
    share = _literal(text)
    if isinstance(share, int | float):
        return RandomSubset(share)
    return text


def _loss(text: str):
    from accord.graph import GilbertElliott

    parts = [_literal(part) for part in text.split(":")]
    if len(parts) > 2 or any(isinstance(p, str) for p in parts):
        raise ValueError(
            f"loss: got {text!r}; accepted is a share as 0.3, or TO_BAD:TO_GOOD as 0.05:0.3"
        )
    return parts[0] if len(parts) == 1 else GilbertElliott(*parts)


class _Bars:
    """One bar per method on stderr, and warnings as single lines there."""

    def __init__(self, rounds: int):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=14),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[norm]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._rounds = rounds
        self._tasks: dict[str, Any] = {}
        self._caught = warnings.catch_warnings()

    def __enter__(self):
        self._caught.__enter__()
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_: self._progress.console.print(
            f"warning: {message}", markup=False, highlight=False
        )
        self._progress.start()
        return self

    def show(self, name: str, row: dict) -> None:
        """A method starts (no row yet) or has come to a row."""
        if not row:
            self._end()
            self._tasks[name] = self._progress.add_task(name, total=self._rounds, norm="compiling")
            return
        norm = f"|grad F| {row['gradient_norm']:.1e}"
        self._progress.update(self._tasks[name], completed=row["round"], norm=norm)

    def _end(self) -> None:
        """Ends the method that is running; without a single row it was refused."""
        for task in self._progress.tasks:
            self._progress.stop_task(task.id)
            if not task.completed:
                self._progress.update(task.id, norm="refused")

    def __exit__(self, *error):
        self._end()
        self._progress.stop()
        self._caught.__exit__(*error)


@app.command(epilog="Example: accord cite AGPDMM")
def cite(
    name: Annotated[str, typer.Argument(help="A method, or the key of a source.")],
) -> None:
    """Print the BibTeX entry of the paper that a method comes from."""
    if name not in (*accord.REGISTRY, *sources.SOURCES):
        raise ValueError(closest(name, accord.REGISTRY, "name"))
    method = accord.REGISTRY.get(name)
    typer.echo(sources.bibtex(method.source if method else name))


@app.command(epilog="Example: accord check my_method.py")
def check(
    file: Annotated[Path, typer.Argument(help="A Python file that defines a method.")],
) -> None:
    """Hold the methods that a file defines against the conformance suite."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from accord.conformance import check_file

    with Console(stderr=True).status(f"checking {file}"):
        results = check_file(file)
    console = Console()
    words = {True: "passed", None: "[dim]not for it[/]", False: "[bold red]failed[/]"}
    for name, own in groupby(results, lambda result: result.algorithm):
        table = Table(name, "result", "detail", box=box.SIMPLE_HEAD, show_edge=False)
        for result in own:
            table.add_row(result.name, words[result.passed], Text(result.detail))
        console.print(table)
        console.print()
    failed = sum(result.passed is False for result in results)
    passed = sum(result.passed is True for result in results)
    others = len(results) - passed - failed
    console.print(f"{passed} passed, {failed} failed, {others} not for it")
    if failed:
        raise typer.Exit(1)
