"""Any table -> a polars frame: dialects of CSV, Parquet, pandas, polars; what readers check alike."""

import csv
import difflib
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accord.data.partition import by_column

MENTIONED = 8
"""The most columns, clients or rows that an error lists."""

MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "?", ".")
"""What stands for a missing value in a CSV file, with or without quotes and blanks around it."""

SUFFIXES = (".csv", ".tsv", ".parquet")
"""The files that hold a table."""

SAMPLE = 65536
"""The characters of a CSV file from which its separator is told."""


def opened(table, argument: str) -> tuple[list[str], Callable[..., Any]]:
    """(column names, ``load``): ``load(wanted, text=None)`` is a polars frame of the columns wanted.

    ``text`` names a column that a CSV file gives as it is written: "7" and "007" are two clients. It
    becomes numbers only where every entry is a whole number as Python writes it. ``argument`` is the
    caller's name of ``table``, for errors.
    """
    import polars as pl

    if isinstance(table, pl.DataFrame):
        return table.columns, lambda wanted, text=None: table.select(wanted)
    if hasattr(table, "iloc") and hasattr(table, "columns"):
        names = [str(c) for c in table.columns]
        return names, lambda wanted, text=None: pl.DataFrame(
            [_from_pandas(table.iloc[:, names.index(c)], c) for c in wanted]
        )
    if not isinstance(table, str | Path):
        raise TypeError(
            f"{argument}: got {type(table).__name__}; accepted are the path of a CSV or Parquet "
            "file, or a pandas or polars DataFrame"
        )
    path = Path(table)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(
            f"{argument}: got {str(path)!r}; accepted are .csv, .tsv and .parquet files"
        )
    check_file(path, argument)
    if suffix != ".parquet":
        return _opened_csv(path, argument)
    with readable(path, argument):
        names = list(pl.read_parquet_schema(path))

    def load(wanted, text=None):
        with readable(path, argument):
            return pl.read_parquet(path, columns=wanted)

    return names, load


def check_file(path: Path, argument: str) -> None:
    """Raises where there is no such file, or nothing in it."""
    if not path.is_file():
        raise ValueError(f"{argument}: there is no file {str(path)!r}; check the path")
    if not path.stat().st_size:
        raise ValueError(f"{argument}: {str(path)!r} is empty; expected a table with a header")


@contextmanager
def readable(path: Path, argument: str):
    """Tells in one line what goes wrong while a file is read."""
    import polars as pl

    try:
        yield
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{argument}: {str(path)!r} cannot be read: line {line} is not UTF-8 "
            f"(byte 0x{error.object[error.start]:02x}); save the file as UTF-8"
        ) from None
    except (pl.exceptions.PolarsError, OSError, csv.Error) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{argument}: {str(path)!r} cannot be read: {reason}") from None


def _opened_csv(path: Path, argument: str):
    with readable(path, argument):
        content = path.read_bytes()
        sample = content.decode("utf-8-sig").lstrip("\r\n ")[:SAMPLE]
        header, separator = _header(sample, len(sample) == SAMPLE)
        content = content.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n ")
    if not header:
        raise ValueError(f"{argument}: {str(path)!r} is empty; expected a table with a header")

    def load(wanted, text=None):
        with readable(path, argument):
            return _csv_frame(content, header, separator, text).select(wanted)

    return [name.strip() for name in header], load


def _header(sample: str, cut: bool) -> tuple[list[str], str]:
    """(the fields of the header as written, the separator).

    The separator is the one that splits the header into most fields, and before this one with which
    the lines below have as many: the header "weight, kg;height, cm" has two fields.
    """
    found = []
    for separator in (";", "\t", ","):
        lines = sample.splitlines(keepends=True)
        rows = list(csv.reader(lines[: -1 if cut else None], delimiter=separator))
        rows = [row for row in rows if any(field.strip() for field in row)]
        header = rows[0] if rows else []
        even = all(len(row) == len(header) for row in rows) and len(header) > 1
        found.append((even, len(header), header, separator))
    # Of equals, the first: a comma may be a decimal mark.
    _, _, header, separator = max(found, key=lambda f: f[:2])
    return (header, separator) if len(header) > 1 else (found[-1][2], ",")


def _csv_frame(content: bytes, header: list[str], separator: str, text: str | None):
    """The whole table, a column of numbers or of text, without lines that hold no value."""
    import polars as pl

    frame = pl.read_csv(
        content,
        separator=separator,
        infer_schema_length=None,
        null_values=list(MISSING),
        schema_overrides={name: pl.String for name in header if name.strip() == text},
    )
    frame.columns = [name.strip() for name in header]
    columns = []
    for column in frame:
        if column.dtype == pl.String:
            column = column.str.strip_chars()
            column = column.set(column.is_in(MISSING), None)
            column = whole(column) if column.name == text else _numbers(column, separator)
        columns.append(column)
    return pl.DataFrame(columns).filter(~pl.all_horizontal(pl.all().is_null()))


def _numbers(column, separator: str):
    """A column of text as numbers, where every entry is one."""
    forms = [column]
    if separator != "," and not column.str.contains(".", literal=True).any():
        forms.append(column.str.replace(",", ".", literal=True))
    for form in forms:
        numbers = form.cast(float, strict=False)
        if numbers.null_count() == column.null_count():
            return numbers
    return column


def whole(column):
    """A column of text as whole numbers, where every entry is one, written as Python writes it."""
    import polars as pl

    numbers = column.cast(int, strict=False)
    return numbers if numbers.cast(pl.String).equals(column) else column


def _from_pandas(column, name: str):
    """A pandas column as a polars one, without pyarrow; NaN, None and NA become null."""
    import polars as pl

    values = [
        None if missing else value
        for value, missing in zip(column.tolist(), column.isna(), strict=True)
    ]
    return pl.Series(name, values, strict=False)


def missing(column):
    """Whether each entry of a polars column is null or NaN, as a polars column."""
    gone = column.is_null()
    return gone | column.is_nan().fill_null(False) if column.dtype.is_float() else gone


def owners(column, argument: str = "client") -> tuple[list, list[str]]:
    """(the rows of each client in their order, the clients' names) from the column that names them.

    Clients come in sorted order, numbers by size and text alphabetically. A row without a client
    raises ``ValueError``.
    """
    import polars as pl

    orphans = missing(column).arg_true() + 1
    if len(orphans):
        rows = joined([str(row) for row in orphans])
        raise ValueError(
            f"{argument}: {len(orphans)} of {len(column)} rows have no value in the column "
            f"{column.name!r} ({'row' if len(orphans) == 1 else 'rows'} {rows}, the first being 1); "
            "name their client or drop them"
        )
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    parts, _ = by_column(column.rank("dense").to_numpy())
    return parts, [str(value) for value in column.unique().sort()]


def check_there(names, asked, argument: str) -> None:
    """Raises where a column asked for, by the argument that names it, is not there or not alone."""
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ValueError(f"{argument}: duplicate columns {listed(twice)}; rename them")
    for by, columns in asked.items():
        for column in columns:
            if column not in names:
                raise ValueError(f"{by}: there is no column {column!r}; {nearest(column, names)}")


def nearest(column: str, names) -> str:
    """The hint of an error about an unknown column: the closest name, or those there are."""
    near = difflib.get_close_matches(column, names, n=1, cutoff=0.4)
    return f"did you mean {near[0]!r}?" if near else f"accepted are {listed(names)}"


def kind(column) -> str:
    """What a column holds instead of numbers: the first text that is not one, or its type."""
    import polars as pl

    if column.dtype != pl.String:
        return str(column.dtype)
    texts = column.drop_nulls()
    strange = texts.filter(texts.str.strip_chars().cast(float, strict=False).is_null())
    return f"text, as {[*strange[:1], *texts[:1], ''][0]!r}"


def listed(names) -> str:
    """Names in quotes, the first of them where they are many."""
    return joined([repr(n) for n in names])


def joined(told: list[str], separator: str = ", ") -> str:
    """The first of several things to tell, and how many more there are."""
    more = len(told) - MENTIONED
    return separator.join(told[:MENTIONED]) + (f" and {more} more" if more > 0 else "")
