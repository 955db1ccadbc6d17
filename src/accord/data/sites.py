"""Sites: the rows of every data holder as a frame of its own, before anything is encoded."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from accord.data.frames import (
    SUFFIXES,
    check_file,
    check_there,
    joined,
    listed,
    opened,
    owners,
    readable,
    whole,
)

if TYPE_CHECKING:
    import polars

LIBSVM = (".svm", ".libsvm", ".txt")


class Site(NamedTuple):
    """One data holder: ``name`` and ``frame``, a polars DataFrame with a row per observation."""

    name: str
    frame: "polars.DataFrame"


def read_sites(
    source,
    client: str | None = None,
    *,
    client_file=None,
    n_features: int | None = None,
    zero_based: bool = False,
) -> list[Site]:
    """The sites of a table with a client column, of a folder of tables, or of a LIBSVM file.

    ``source`` is one of

    - a CSV (.csv, .tsv) or Parquet file, or a pandas or polars DataFrame: ``client`` names the column
      of the clients' names, which the sites' frames no longer have;
    - a folder with one CSV or Parquet file per client, named after it. The columns may come in any
      order and get that of the first file; hidden files are ignored;
    - a LIBSVM file (.svm, .libsvm, .txt): ``client_file`` holds the client of each row, one name a
      line. The columns are x1, x2, ... and ``target``. ``n_features=None`` is the largest index of
      the file; ``zero_based`` says whether indices start at 0.

    Sites come in sorted order of their names (whole numbers by size, text alphabetically), rows in the
    order of the source. Names are read as written: "7" and "007" are two clients.

    CSV files are UTF-8 with commas, semicolons or tabs; with the last two, numbers may have a decimal
    comma. A column is numeric where every value of it is a number, else text. Blanks around values and
    names are cut; an empty field, NA, N/A, NaN, null, ? and . are missing; lines without any value
    are skipped.

    Raises ``ValueError`` in one line for what cannot be read: encoding, separators, an empty source,
    unknown, unnamed or duplicate columns, rows without a client, clients named by fractions, files
    whose columns differ.
    """
    path = Path(source) if isinstance(source, str | Path) else None
    if path is None or (path.suffix.lower() in SUFFIXES and not path.is_dir()):
        _unused("a table with a client column", client_file=client_file, n_features=n_features)
        return _from_table(source, client)
    if path.is_dir():
        _unused("a folder", client=client, client_file=client_file, n_features=n_features)
        return _from_folder(path)
    if path.suffix.lower() in LIBSVM:
        _unused("a LIBSVM file", client=client)
        return _from_libsvm(path, client_file, n_features, zero_based)
    raise ValueError(
        f"source: got {str(path)!r}; accepted are .csv, .tsv, .parquet and LIBSVM ({', '.join(LIBSVM)}) "
        "files, and a folder with one table per client"
    )


def _unused(source: str, **arguments) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name}: got {str(value)!r} with {source}, which has no use for it")


def _from_table(source, client) -> list[Site]:
    names, load = opened(source, "source")
    if client is None:
        raise ValueError(
            f"client: a table wants the column of the clients' names; its columns are {listed(names)}"
        )
    client = str(client)
    check_there(names, {"client": [client]}, "source")
    _check_named(names, "source")
    if len(names) == 1:
        raise ValueError(f"source: the table has only the client column {client!r}")
    frame = load(names, client)
    if not frame.height:
        raise ValueError("source: the table has no rows; at least one is needed")
    _check_names(frame[client])
    return _split(frame.drop(client), frame[client])


def _split(frame, column, argument: str = "client") -> list[Site]:
    """The sites of a frame by a column of their names."""
    parts, names = owners(column, argument)
    return [Site(name, frame[part]) for name, part in zip(names, parts, strict=True)]


def _check_names(column) -> None:
    """Raises where clients are numbered by fractions, or by something that is no name."""
    import polars as pl

    numbers = column
    if column.dtype == pl.String:
        numbers = column.cast(float, strict=False)
        if numbers.null_count() > column.null_count() or column.cast(int, strict=False).equals(
            numbers
        ):
            return
    if numbers.dtype.is_float() or numbers.dtype.is_decimal():
        raise ValueError(
            f"client: the column {column.name!r} holds numbers with fractions, as "
            f"{column.drop_nulls()[0]}; accepted are names or whole numbers"
        )
    if numbers.dtype.is_nested() or numbers.dtype == pl.Null:
        raise ValueError(
            f"client: the column {column.name!r} holds {numbers.dtype}; accepted are names or whole "
            "numbers"
        )


def _check_named(names: list[str], where: str) -> None:
    if "" in names:
        raise ValueError(
            f"{where}: column {names.index('') + 1} has no name (an index that was saved along?); "
            "name it or remove it"
        )


def _from_folder(folder: Path) -> list[Site]:
    import polars as pl

    files = [f for f in sorted(folder.iterdir()) if not f.name.startswith(".")]
    if not files:
        raise ValueError(
            f"source: the folder {str(folder)!r} is empty; expected one .csv or .parquet file per client"
        )
    wrong = [f.name for f in files if f.suffix.lower() not in SUFFIXES or f.is_dir()]
    if wrong:
        raise ValueError(
            f"source: the folder {str(folder)!r} holds {listed(wrong)}; accepted are .csv, .tsv and "
            ".parquet files, one per client"
        )
    stems = [f.stem for f in files]
    twice = sorted({s for s in stems if stems.count(s) > 1})
    if twice:
        raise ValueError(f"source: two files are of one client: {listed(twice)}; keep one of each")
    order = whole(pl.Series(stems)).arg_sort()
    return _aligned([files[i] for i in order])


def _aligned(files: list[Path]) -> list[Site]:
    """The table of each file, with the columns of the first."""
    sites: list[Site] = []
    columns: list[str] = []
    for file in files:
        names, load = opened(file, "source")
        check_there(names, {}, f"source: {file.name}")
        _check_named(names, f"source: {file.name}")
        columns = columns or names
        for ours, theirs, how in ((columns, names, "lacks"), (names, columns, "alone has")):
            differing = [c for c in ours if c not in theirs]
            if differing:
                raise ValueError(
                    f"source: {file.name} {how} the column {joined([repr(c) for c in differing])}, "
                    f"against {files[0].name}; give every file the same columns"
                )
        frame = load(columns)
        if not frame.height:
            raise ValueError(f"source: {file.name} has no rows; fill or remove it")
        sites.append(Site(file.stem, frame))
    return sites


def _from_libsvm(path: Path, client_file, n_features, zero_based: bool) -> list[Site]:
    import polars as pl
    from sklearn.datasets import load_svmlight_file

    if client_file is None:
        raise ValueError(
            f"client_file: {str(path)!r} has no client column; give a file with the client of each "
            "row, one name a line"
        )
    check_file(path, "source")
    clients = Path(client_file)
    check_file(clients, "client_file")
    with readable(clients, "client_file"):
        lines = clients.read_bytes().decode("utf-8-sig").rstrip().splitlines()
    try:
        X, y = load_svmlight_file(str(path), n_features=n_features, zero_based=zero_based)
    except (ValueError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"source: {str(path)!r} cannot be read: {reason}") from None
    if len(lines) != len(y):
        raise ValueError(
            f"client_file: {str(clients)!r} has {len(lines)} lines for {len(y)} rows of "
            f"{path.name}; one a row is expected"
        )
    column = pl.Series("client", [line.strip() or None for line in lines], dtype=pl.String)
    frame = pl.DataFrame(X.toarray(), schema=[f"x{i + 1}" for i in range(X.shape[1])])
    labels = pl.Series("target", y)
    integers = labels.cast(int, strict=False)
    frame = frame.with_columns(integers if integers.equals(labels) else labels)
    return _split(frame, whole(column), "client_file")
