"""Tables in a terminal: as many columns side by side as its width allows, then the next part."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

_GAP = 2


class Block(NamedTuple):
    """Columns that stay together: headers, and per column its cells; ``right``: numbers."""

    headers: Sequence[str]
    columns: Sequence[Sequence[str]]
    right: bool = True


def _width(header: str, cells: Sequence[str]) -> int:
    from rich.text import Text

    texts = [Text.from_markup(part) for part in (header, *cells)]
    return max(len(line) for text in texts for line in text.plain.split("\n"))


def _needs(block: Block) -> int:
    pairs = zip(block.headers, block.columns, strict=True)
    return sum(_width(h, c) + _GAP for h, c in pairs)


def stack(console, key: Block, blocks: Sequence[Block]) -> None:
    """Prints tables that start with the key columns and hold as many blocks as fit, in order."""
    from rich import box
    from rich.table import Table

    left = list(blocks)
    while left:
        taken, room = [key], console.width + _GAP - _needs(key)
        while left and (len(taken) == 1 or _needs(left[0]) <= room):
            taken.append(left.pop(0))
            room -= _needs(taken[-1])
        table = Table(
            box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0)
        )
        for block in taken:
            for header in block.headers:
                table.add_column(header, justify="right" if block.right else "left")
        for row in zip(*(column for block in taken for column in block.columns), strict=True):
            table.add_row(*row)
        console.print(table)
        console.print()


def show(comparison, console=None) -> None:
    """Prints a comparison."""
    from rich.console import Console
    from rich.markup import escape

    console = console or Console()
    table = comparison.table()
    names = [escape(_folded(row["method"], console.width)) for row in table]
    blocks = []
    for _, group in groupby(comparison.columns, lambda c: c.group):
        columns = list(group)
        heads = [f"{c.group}\n{c.head}" for c in columns]
        blocks.append(Block(heads, [_emphasised(c, table) for c in columns]))
    split = 2 + (comparison.test is not None)
    states = [_coloured(row["status"]) for row in table]
    blocks.insert(split, Block(["\nstatus"], [states], right=False))
    stack(console, Block(["\nmethod"], [names], right=False), blocks)
    for line in comparison.notes():
        console.print(escape(line), style="dim", highlight=False)


def _folded(name: str, width: int) -> str:
    """A long name on two lines where the terminal is narrow."""
    return name.replace("(", "\n  (", 1) if width < 100 and len(name) > 20 else name


def _emphasised(column, table) -> list[str]:
    """The cells of a column, the best in bold."""
    best = column.best_text(table)
    texts = [column.text(row[column.key]) for row in table]
    return [f"[bold]{t}[/bold]" if t == best else t for t in texts]


def _coloured(status: str) -> str:
    colour = {"converged": "green", "budget_spent": ""}.get(status, "red")
    return f"[{colour}]{status}[/{colour}]" if colour else status
