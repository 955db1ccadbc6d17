"""Tables -> clients: CSV and Parquet files, pandas and polars data frames."""

import csv
import difflib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accord.data.clients import Clients
from accord.data.partition import by_column

MENTIONED = 8
"""The most columns or clients that an error lists."""


def read_table(
    path_or_frame, target: str, client: str, features: Sequence[str] | None = None
) -> Clients:
    """Clients from one table: a row per observation, a column that names its client.

    ``path_or_frame`` is the path of a CSV (UTF-8, commas) or Parquet file, or a pandas or polars
    DataFrame. ``target`` and ``features`` are numeric or boolean columns; ``features=None`` takes
    every column but the other two, in the table's order. Each client holds the rows of one value of
    the column ``client``, in the table's order; clients come in sorted order (numbers by size, text
    alphabetically) and ``clients.names`` are the values. Blank lines of a CSV file are skipped.

    Features become float64 (rows x features); targets keep whole numbers whole, and true and false
    become 1 and 0. Nothing is encoded, filled or scaled: text, a missing value, an unknown or
    duplicate column raises ``ValueError``.
    """
    names, load = _opened(path_or_frame)
    target, client, features = _chosen(names, target, client, features)
    frame, parts, owners = _by_client(load, target, client, features)
    X = np.column_stack([frame[f].cast(float).to_numpy() for f in features])
    y = frame[target]
    whole = y.cast(int, strict=False)  # null where a number is beyond 64 bits
    fractional = y.dtype.is_float() or y.dtype.is_decimal() or whole.null_count() > 0
    y = y.cast(float) if fractional else whole
    return Clients.from_pooled(X, y.to_numpy(), parts, owners)


def read_columns(
    path_or_frame, columns: Sequence[str], client: str
) -> tuple[list[str], list[np.ndarray]]:
    """(names, one array (rows, columns) of each): numeric columns of a table, by client.

    The table, the order of clients and what is refused are those of ``read_table``.
    """
    names, load = _opened(path_or_frame)
    _check_there(names, {"columns": columns, "client": [client]})
    *features, target = columns
    frame, parts, owners = _by_client(load, target, client, features)
    X = np.column_stack([frame[c].cast(float).to_numpy() for c in columns])
    return [str(o) for o in owners], [X[part] for part in parts]


def _by_client(load, target: str, client: str, features: list[str]):
    """(frame, rows of each client, their names), checked: complete, numeric, every row owned."""
    frame = load([*features, target, client])
    if not frame.height:
        raise ValueError("path_or_frame: the table has no rows; at least one is needed")
    _check_numeric(frame, target, features)
    orphans = int(_missing(frame[client]).sum())
    if orphans:
        raise ValueError(
            f"client: {orphans} of {frame.height} rows have no value in the column {client!r}; "
            "name their client or drop them"
        )
    parts, owners = by_column(np.array(frame[client].to_list()))
    _check_complete(frame, [*features, target], parts, owners)
    return frame, parts, owners


def _opened(table) -> tuple[list[str], Callable[[list[str]], Any]]:
    """(column names, a function from the columns wanted to a polars frame of them)."""
    import polars as pl

    if isinstance(table, pl.DataFrame):
        return table.columns, table.select
    if hasattr(table, "iloc") and hasattr(table, "columns"):
        names = [str(c) for c in table.columns]
        return names, lambda wanted: pl.DataFrame(
            [_from_pandas(table.iloc[:, names.index(c)], c) for c in wanted]
        )
    if not isinstance(table, str | Path):
        raise TypeError(
            f"path_or_frame: got {type(table).__name__}; accepted are the path of a CSV or Parquet "
            "file, or a pandas or polars DataFrame"
        )
    path = Path(table)
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise ValueError(f"path_or_frame: got {str(path)!r}; accepted are .csv and .parquet files")
    if not path.is_file():
        raise ValueError(f"path_or_frame: there is no file {str(path)!r}; check the path")
    if not path.stat().st_size:
        raise ValueError(f"path_or_frame: {str(path)!r} is empty; expected a table with a header")
    if path.suffix.lower() == ".csv":
        names = _guarded(_csv_header, path)
        return names, lambda wanted: _guarded(_csv_columns, path, wanted)
    names = list(_guarded(pl.read_parquet_schema, path))
    return names, lambda wanted: _guarded(pl.read_parquet, path, columns=wanted)


def _guarded(read: Callable, path: Path, *args, **options):
    """What ``read`` returns, its failures told in one line."""
    import polars as pl

    try:
        return read(path, *args, **options)
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError, csv.Error) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"path_or_frame: {str(path)!r} cannot be read: {reason}") from None


def _csv_header(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return next((row for row in csv.reader(file) if row), [])


def _csv_columns(path: Path, wanted: list[str]):
    """The columns, numbers written as " 1" or "NaN" among them, without blank lines."""
    import polars as pl

    # The client, last, is read as text: as numbers, "7" and "007" would be one client.
    *numeric, client = wanted
    frame = pl.read_csv(path, infer_schema_length=None, schema_overrides={client: pl.String})
    frame = frame.select(wanted).filter(~pl.all_horizontal(pl.all().is_null()))
    for name in [n for n in numeric if frame[n].dtype == pl.String]:
        numbers = frame[name].str.strip_chars().cast(float, strict=False)
        if numbers.null_count() == frame[name].null_count():
            frame = frame.with_columns(numbers)
    whole = frame[client].cast(int, strict=False)
    if whole.cast(pl.String).equals(frame[client]):
        frame = frame.with_columns(whole)
    return frame


def _from_pandas(column, name: str):
    """A pandas column as a polars one, without pyarrow; NaN, None and NA become null."""
    import polars as pl

    values = [
        None if missing else value
        for value, missing in zip(column.tolist(), column.isna(), strict=True)
    ]
    return pl.Series(name, values, strict=False)


def _chosen(names, target, client, features) -> tuple[str, str, list[str]]:
    """The columns as text, every one of them in the table, once."""
    if isinstance(features, str) or (features is not None and not np.iterable(features)):
        raise TypeError(f"features: got {features!r}; accepted is a list of column names")
    target, client = str(target), str(client)
    asked = {"target": [target], "client": [client]}
    if features is not None:
        asked["features"] = [str(f) for f in features]
    _check_there(names, asked)
    if target == client:
        raise ValueError(f"client: got {client!r}, the target column; accepted is another column")
    if features is None:
        features = [n for n in names if n not in (target, client)]
        if "" in features:
            raise ValueError(
                f"features: column {names.index('') + 1} has no name (an index that was saved "
                "along?); list the features, or name the column"
            )
        if not features:
            raise ValueError("features: the table has only the target and the client column")
        return target, client, features
    features = asked["features"]
    if not features:
        raise ValueError("features: got an empty list; accepted is one column or more")
    for wrong in (target, client):
        if wrong in features:
            raise ValueError(f"features: {wrong!r} is the target or client column; leave it out")
    twice = sorted({f for f in features if features.count(f) > 1})
    if twice:
        raise ValueError(f"features: {_listed(twice)} given twice; name each column once")
    return target, client, features


def _check_there(names, asked) -> None:
    """Raises where a column asked for, by the argument that names it, is not there or not alone."""
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ValueError(f"path_or_frame: duplicate columns {_listed(twice)}; rename them")
    for argument, columns in asked.items():
        for column in columns:
            if column not in names:
                near = difflib.get_close_matches(column, names, n=1, cutoff=0.4)
                hint = f"did you mean {near[0]!r}?" if near else f"accepted are {_listed(names)}"
                raise ValueError(f"{argument}: there is no column {column!r}; {hint}")


def _check_numeric(frame, target: str, features: list[str]) -> None:
    import polars as pl

    def is_numeric(name):
        dtype = frame[name].dtype
        return dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)

    if not is_numeric(target):
        raise ValueError(
            f"target: the column {target!r} is not numeric ({_kind(frame[target])}); recode it, "
            "as 0 and 1 for two classes"
        )
    wrong = [f"{f!r} ({_kind(frame[f])})" for f in features if not is_numeric(f)]
    if wrong:
        raise ValueError(
            f"features: not numeric: {_joined(wrong)}; encode them as numbers, or leave them out"
        )


def _kind(column) -> str:
    """What a column holds instead of numbers: the first text that is not one, or its type."""
    import polars as pl

    if column.dtype != pl.String:
        return str(column.dtype)
    texts = column.drop_nulls()
    strange = texts.filter(texts.str.strip_chars().cast(float, strict=False).is_null())
    return f"text, as {[*strange[:1], *texts[:1], ''][0]!r}"


def _missing(column) -> np.ndarray:
    """Whether each entry of a polars column is null or NaN."""
    missing = column.is_null()
    if column.dtype.is_float():
        missing = missing | column.is_nan().fill_null(False)
    return missing.to_numpy()


def _check_complete(frame, columns: list[str], parts, owners) -> None:
    """Raises where cells are missing, and counts them by client and column."""
    holes = {c: m for c in columns if (m := _missing(frame[c])).any()}
    if not holes:
        return
    found = []
    for part, owner in zip(parts, owners, strict=True):
        counts = {c: int(m[part].sum()) for c, m in holes.items()}
        told = [f"{c!r} {count}" for c, count in counts.items() if count]
        if told:
            found.append(f"client {owner!r}: {_joined(told)} of {len(part)}")
    raise ValueError(
        f"path_or_frame: missing values, {_joined(found, '; ')}; drop or fill these rows first"
    )


def _listed(names) -> str:
    return _joined([repr(n) for n in names])


def _joined(told: list[str], separator: str = ", ") -> str:
    more = len(told) - MENTIONED
    return separator.join(told[:MENTIONED]) + (f" and {more} more" if more > 0 else "")
