"""``accord list``, ``cite`` and ``check``: what there is, where it comes from, whether it holds."""

import sys
from itertools import groupby
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import accord
from accord import sources
from accord.cli.app import app
from accord.core.checks import closest


@app.command("list", epilog="Example: accord list")
def list_methods() -> None:
    """List the methods: what they need, what they send, whether they reach the optimum."""
    from rich.console import Console

    console = Console()
    console.print("[bold]Over a star[/]: accord.run, accord compare\n")
    _print_table(
        console,
        [_described(cls) for cls in accord.REGISTRY.values()],
        "up, down: vectors of the model's size P that a client sends and receives in a round. exact: "
        "reaches the optimum of F. partial: with clients absent. needs: of every objective; prox "
        "can be had from gradient steps.",
    )
    console.print("\n[bold]On a network[/]: accord.graph.run, accord network\n")
    _print_table(
        console,
        [_described_on_network(cls) for cls in accord.graph.METHODS.values()],
        "sends: vectors of the model's size that a node sends to each neighbour in a round; with "
        "--broadcast once to all of them. exact: reaches the optimum of sum_i f_i. asynchronous: nodes "
        "may act one by one, and messages may be lost.",
    )


def _print_table(console, rows: list[dict[str, str]], note: str) -> None:
    from rich.markup import escape

    from accord.report.terminal import Block, stack

    columns = {name: [escape(row[name]) for row in rows] for name in rows[0]}
    key = Block(["method"], [columns.pop("method")], right=False)
    stack(console, key, [Block([name], [cells], right=False) for name, cells in columns.items()])
    console.print(note, style="dim", highlight=False)


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
        "up": _vectors(up, job.x0.size),
        "down": _vectors(down, job.x0.size),
        "exact": "yes" if exact.reaches else "no",
        "partial": "no" if cls.absent is None else partial,
        "needs": ", ".join(sorted(job.algorithm.needs)),
        "source": cls.source,
        "exact with": exact.when,
    }


def _described_on_network(cls) -> dict[str, str]:
    """A graph method in words, its messages as the engine counts them on a small network."""
    from accord.graph import Machine, Network, make_job

    network, problem = Network.ring(3), accord.problems.averaging(np.eye(3))
    sent = np.asarray(Machine(make_job(cls(), network, problem, 1)).setup.sizes)[0]
    return {
        "method": cls.__name__,
        "summary": (cls.__doc__ or cls.__name__).splitlines()[0].rstrip("."),
        "sends": f"{sent / (network.degrees[0] * 3):.2g}",
        "exact": "yes" if cls.exact else "no",
        "asynchronous": "yes" if cls.on_edges else "no",
        "source": cls.source,
    }


def _vectors(count: float, size: int) -> str:
    """A number of vectors; a message with a matrix in it grows with their size P."""
    return f"{count - size:.2g} + P" if count >= size else f"{count:.2g}"


@app.command(epilog="Example: accord cite AGPDMM")
def cite(
    name: Annotated[str, typer.Argument(help="A method, or the key of a source.")],
) -> None:
    """Print the BibTeX entry of the paper that a method comes from."""
    known = accord.graph.METHODS | accord.REGISTRY
    if name not in (*known, *sources.SOURCES):
        raise ValueError(closest(name, known, "name"))
    method = known.get(name)
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
