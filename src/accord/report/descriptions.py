"""A description of a table's clients, on a terminal."""

from accord.report.style import cut, share, short, size
from accord.report.terminal import Block, stack

LISTED_CLIENTS = 30
LISTED_COLUMNS = 12


def show(description, console=None) -> None:
    """Prints a description."""
    from rich.console import Console
    from rich.markup import escape

    console = console or Console()
    schema, summaries = description.schema, description.summaries
    rows = sum(s.rows for s in summaries.values())
    about = f", target {schema.target.name!r} ({schema.model})" if schema.target else ""
    console.print(
        f"{len(summaries)} clients, {rows} rows, {len(schema.columns)} columns{escape(about)}\n"
    )
    largest = sorted(summaries, key=lambda name: -summaries[name].rows)[:LISTED_CLIENTS]
    names = [name for name in summaries if name in set(largest)]
    blocks = [Block(["\nrows"], [[str(summaries[n].rows) for n in names]])]
    blocks += _target(description, names)
    blocks += _pulls(description, names)
    blocks += _means(description, names)
    stack(console, Block(["\nclient"], [[escape(n) for n in names]], right=False), blocks)
    if len(summaries) > len(names):
        console.print(f"The {len(names)} largest of {len(summaries)} clients.\n", style="dim")
    _tell(description, console)


def _target(description, names) -> list[Block]:
    """Per client the mean of the target, or the share of each class."""
    target = description.schema.target
    if target is None:
        return []
    found = {n: description.summaries[n].target for n in names}
    if target.kind == "number":
        return [Block([f"mean\n{_cut(target.name)}"], [[short(found[n].mean) for n in names]])]
    heads, columns = [], []
    for label in (
        target.classes[-1:] if len(target.classes) == 2 else target.classes[:LISTED_COLUMNS]
    ):
        heads.append(f"share\n{_cut(str(label))}")
        columns.append([share(_share(found[n], label)) for n in names])
    return [Block([h], [c]) for h, c in zip(heads, columns, strict=True)]


def _share(column, label) -> float:
    counts = {_plain(value): count for value, count in column.values or ()}
    return counts.get(_plain(label), 0) / column.count if column.count else float("nan")


def _plain(value) -> str:
    """A class as text, however it was read: 1, 1.0 and "1" alike."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _pulls(description, names) -> list[Block]:
    found = description.differences
    if found is None:
        return []
    from rich.markup import escape

    place = {name: k for k, name in enumerate(description.summaries)}
    pulls = [short(found.pulls[place[n]]) for n in names]
    return [
        Block(
            ["\npull", "\nmost at"],
            [pulls, [escape(_cut(found.towards[place[n]])) for n in names]],
        )
    ]


def _means(description, names) -> list[Block]:
    """Per client the means of the numeric columns, and how many values a column lacks."""
    numeric = [f.name for f in description.schema.features if f.kind == "number"]
    blocks = []
    for name in numeric[:LISTED_COLUMNS]:
        columns = [description.summaries[n].columns[name] for n in names]
        blocks.append(
            Block([f"mean\n{_cut(name)}"], [[short(c.mean) if c.count else "-" for c in columns]])
        )
    for name in _lacking(description)[:LISTED_COLUMNS]:
        counts = [f"{description.summaries[n].columns[name].missing:,}" for n in names]
        blocks.append(Block([f"missing\n{_cut(name)}"], [counts]))
    return blocks


def _lacking(description) -> list[str]:
    """The columns in which some client lacks a value."""
    summaries = description.summaries.values()
    columns = next(iter(summaries)).columns
    return [name for name in columns if any(s.columns[name].missing for s in summaries)]


def _cut(name: str) -> str:
    from rich.markup import escape

    return escape(cut(name, 16))


def _tell(description, console) -> None:
    """What the differences mean, the methods, and the one that is taken."""
    from rich.markup import escape

    def say(line):
        console.print(escape(line), highlight=False)

    found = description.differences
    if found is not None:
        say(
            f"Heterogeneity: G = {short(found.dissimilarity)} at the pooled fit; the clients pull "
            f"{short(found.spread)} times as hard as if rows were dealt at random. "
            f"L = {short(found.smoothness)}, kappa = {short(found.condition)}."
        )
        say(
            "pull: the norm of the client's own gradient at the pooled fit, 0 where its rows alone would "
            "choose the same model; most at: its largest entry; G: the largest pull. L: the largest "
            "curvature; kappa: L over the least, and more of it means more rounds."
        )
        if description.schema.missing == "mean" and _lacking(description):
            say("Missing values count as the mean, or the most frequent category, of all clients.")
        if found.note:
            say(found.note)
        console.print()
        options = description.options
        blocks = [
            Block(["rounds"], [[str(o.rounds) for o in options]]),
            Block(
                ["bytes up", "bytes down"],
                [[size(o.up) for o in options], [size(o.down) for o in options]],
            ),
            Block(["what it sends"], [[o.reveals for o in options]], right=False),
        ]
        stack(console, Block(["method"], [[o.method for o in options]], right=False), blocks)
        say("Rounds expected for eight digits; bytes of one client in all of them.")
        say(f"accord fit takes {description.choice.reason}")
    for note in description.schema.notes:
        console.print(escape(note), style="dim", highlight=False)
