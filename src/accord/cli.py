"""The command ``accord``: list and compare methods, check one of your own, cite a paper."""

import ast
import dataclasses
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
    from rich.console import Console

    from accord import report

    algorithms = parse_methods(methods)
    problem, test = _problem(data, target, client, model, l2, intercept, test_every)
    output = output if output.suffix == ".html" else output / "report.html"
    for path in (output, *([csv] if csv else [])):
        path.parent.mkdir(parents=True, exist_ok=True)
    bound = None if stop is None else accord.Stop(gradient_norm=stop)
    with _Bars(rounds) as bars:
        comparison = report.compare(
            algorithms, problem, rounds, seed, test=test, participation=participation, stop=bound,
            progress=bars.show,
        )  # fmt: skip
    typer.echo(err=True)
    comparison.print(Console())
    comparison.report(output, f"{Path(data).name}: {len(algorithms)} methods on {problem.name}")
    pictures = comparison.plots(output.parent)
    typer.echo(f"report    {output}")
    typer.echo(f"pictures  {', '.join(str(p) for p in pictures)}")
    if csv:
        comparison.write_csv(csv)
        typer.echo(f"table     {csv}")


def parse_methods(text: str) -> list:
    """Instances from ``"GPDMM,FedPD:skip_probability=0.3"``."""
    return [_method(entry.strip()) for entry in text.split(",")]


def _method(entry: str):
    name, *given = entry.split(":")
    if name not in accord.REGISTRY:
        raise ValueError(closest(name, accord.REGISTRY, "methods"))
    cls = accord.REGISTRY[name]
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
