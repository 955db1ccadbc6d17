"""What commands that run methods share: options, methods by name, progress, and what they deliver."""

import math
import os
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from accord.engines.job import check_whole
from accord.files import write_whole

Rounds = Annotated[int, typer.Option(help="Rounds.")]
Seed = Annotated[int, typer.Option(help="The seed of all random numbers.")]
L2 = Annotated[float, typer.Option(help="The weight of (l2/2) ||x||^2.")]
Intercept = Annotated[bool, typer.Option(help="Fit an intercept, free of l2.")]
Output = Annotated[Path, typer.Option(help="The report; pictures go beside it.")]
Table = Annotated[Path | None, typer.Option(help="Write the table here too.")]


def keep_programs() -> None:
    """Keeps compiled programs on disk between runs of the command, unless JAX was told where."""
    import jax

    from accord.files import cache_folder

    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def check_numbers(rounds: int, seed: int, stop: float | None) -> None:
    """Refuses what no method could run with, before anything is read or made."""
    check_whole("rounds", rounds, 1, 31)
    check_whole("seed", seed, 0, 63)
    if stop is not None and not 0 < stop < math.inf:
        raise ValueError(f"stop: got {stop:g}; accepted is a number > 0")


def places(output: Path, csv: Path | None) -> Path:
    """The report's path, where it and the table can be written; folders are made by ``deliver``."""
    output = output if output.suffix == ".html" else output / "report.html"
    check_places(output, csv)
    return output


def check_places(*files: Path | None) -> None:
    """Raises where one of the files could not be written, before any work is done for it."""
    for path in filter(None, files):
        if path.is_dir():
            raise ValueError(f"{path} is a folder; give the path of a file")
        above = next(p for p in path.absolute().parents if p.exists())
        if not above.is_dir() or not os.access(above, os.W_OK):
            raise ValueError(f"{path}: nothing can be written to {above}; give another path")


def write_file(path: Path, content: str | bytes) -> Path:
    """Writes a file whole, in a folder that is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_whole(path, content)


def deliver(comparison, output: Path, csv: Path | None, title: str, extra=None) -> None:
    """Report, pictures and perhaps a CSV file on disk, then the table on the terminal.

    ``extra`` maps names to functions that write a further file into a folder and give its path.
    """
    from rich.console import Console

    for path in (output, *([csv] if csv else [])):
        path.parent.mkdir(parents=True, exist_ok=True)
    comparison.report(output, title)
    pictures = comparison.plots(output.parent)
    written: dict[str, Any] = {"report": output, "pictures": ", ".join(map(str, pictures))}
    written |= {name: write(output.parent) for name, write in (extra or {}).items()}
    if csv:
        written["table"] = comparison.write_csv(csv)
    typer.echo(err=True)
    comparison.print(Console())
    for name, told in written.items():
        typer.echo(f"{name:<9} {told}")


def table_file(data: str | Path) -> Path:
    """The path of a table, or of the data set of that name where there is no such file."""
    from accord.data import CARDS, fetching

    named = str(data) in CARDS and not Path(data).exists()
    return fetching.path(str(data)) if named else Path(data)


class Bars:
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
        apart = [n for n in ("consensus", "residual") if "messages" in row and n in row]
        norm = f"|grad F| {row['gradient_norm']:.1e}"
        if apart:
            norm = f"{apart[0]} {row[apart[0]]:.1e}"
        self._progress.update(self._tasks[name], completed=row["round"], norm=norm)

    def _end(self) -> None:
        """Ends the method that is running; without a single row it was refused."""
        for task in self._progress.tasks:
            self._progress.stop_task(task.id)
            if not task.completed:
                self._progress.update(task.id, norm="refused")

    def __exit__(self, *error):
        self._end()
        # Bad input ends in one line: bars of what was refused are wiped off.
        self._progress.live.transient = error[0] is not None
        self._progress.stop()
        self._caught.__exit__(*error)
