"""Tables -> clients: CSV and Parquet files, pandas and polars data frames."""

from collections.abc import Sequence

import numpy as np

from accord.data.clients import Clients
from accord.data.frames import check_there, joined, kind, listed, missing, opened, owners


def read_table(
    path_or_frame, target: str, client: str, features: Sequence[str] | None = None
) -> Clients:
    """Clients from one table: a row per observation, a column that names its client.

    ``path_or_frame`` is the path of a CSV or Parquet file, or a pandas or polars DataFrame; the
    dialects of CSV are those of ``read_sites``. ``target`` and ``features`` are numeric or boolean
    columns; ``features=None`` takes every column but the other two, in the table's order. Each client
    holds the rows of one value of the column ``client``, in the table's order; clients come in sorted
    order (numbers by size, text alphabetically) and ``clients.names`` are the values.

    Features become float64 (rows x features); targets keep whole numbers whole, and true and false
    become 1 and 0. Nothing is encoded, filled or scaled: text, a missing value, an unknown or
    duplicate column raises ``ValueError``.
    """
    names, load = opened(path_or_frame, "path_or_frame")
    target, client, features = _chosen(names, target, client, features)
    frame, parts, clients = _by_client(load, target, client, features)
    X = np.column_stack([frame[f].cast(float).to_numpy() for f in features])
    y = frame[target]
    whole = y.cast(int, strict=False)  # null where a number is beyond 64 bits
    fractional = y.dtype.is_float() or y.dtype.is_decimal() or whole.null_count() > 0
    y = y.cast(float) if fractional else whole
    return Clients.from_pooled(X, y.to_numpy(), parts, clients)


def read_columns(
    path_or_frame, columns: Sequence[str], client: str
) -> tuple[list[str], list[np.ndarray]]:
    """(names, one array (rows, columns) of each): numeric columns of a table, by client.

    The table, the order of clients and what is refused are those of ``read_table``.
    """
    names, load = opened(path_or_frame, "path_or_frame")
    check_there(names, {"columns": columns, "client": [client]}, "path_or_frame")
    *features, target = columns
    frame, parts, clients = _by_client(load, target, client, features)
    X = np.column_stack([frame[c].cast(float).to_numpy() for c in columns])
    return clients, [X[part] for part in parts]


def _by_client(load, target: str, client: str, features: list[str]):
    """(frame, rows of each client, their names), checked: complete, numeric, every row owned."""
    frame = load([*features, target, client], client)
    if not frame.height:
        raise ValueError("path_or_frame: the table has no rows; at least one is needed")
    _check_numeric(frame, target, features)
    parts, clients = owners(frame[client])
    _check_complete(frame, [*features, target], parts, clients)
    return frame, parts, clients


def _chosen(names, target, client, features) -> tuple[str, str, list[str]]:
    """The columns as text, every one of them in the table, once."""
    if isinstance(features, str) or (features is not None and not np.iterable(features)):
        raise TypeError(f"features: got {features!r}; accepted is a list of column names")
    target, client = str(target), str(client)
    asked = {"target": [target], "client": [client]}
    if features is not None:
        asked["features"] = [str(f) for f in features]
    check_there(names, asked, "path_or_frame")
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
        raise ValueError(f"features: {listed(twice)} given twice; name each column once")
    return target, client, features


def _check_numeric(frame, target: str, features: list[str]) -> None:
    import polars as pl

    def is_numeric(name):
        dtype = frame[name].dtype
        return dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)

    if not is_numeric(target):
        raise ValueError(
            f"target: the column {target!r} is not numeric ({kind(frame[target])}); recode it, "
            "as 0 and 1 for two classes"
        )
    wrong = [f"{f!r} ({kind(frame[f])})" for f in features if not is_numeric(f)]
    if wrong:
        raise ValueError(
            f"features: not numeric: {joined(wrong)}; encode them as numbers, or leave them out"
        )


def _check_complete(frame, columns: list[str], parts, clients) -> None:
    """Raises where cells are missing, and counts them by client and column."""
    holes = {c: m for c in columns if (m := missing(frame[c]).to_numpy()).any()}
    if not holes:
        return
    found = []
    for part, client in zip(parts, clients, strict=True):
        counts = {c: int(m[part].sum()) for c, m in holes.items()}
        told = [f"{c!r} {count}" for c, count in counts.items() if count]
        if told:
            found.append(f"client {client!r}: {joined(told)} of {len(part)}")
    raise ValueError(
        f"path_or_frame: missing values, {joined(found, '; ')}; drop or fill these rows first"
    )
