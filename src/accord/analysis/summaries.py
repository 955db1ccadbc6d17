"""What a site says of its rows before a joint fit: counts, moments, extremes and categories.

No row leaves a site, but a summary of few rows tells much of them, and of a single row all.

``summarise`` runs where the rows are and sees one site's frame; ``merged`` runs at the server and sees
summaries only. Requests and summaries travel as JSON, every float exactly.

Means and sums of squares are merged in the parallel form of T. F. Chan, G. H. Golub and R. J. LeVeque,
"Algorithms for Computing the Sample Variance", The American Statistician 37, 1983. A mean is kept as
the sum of two floats: at a mean of 1e8 and a deviation of 1, one float would lose half of the digits of
what sites differ by.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accord.data.frames import listed, missing

MODELS = ("linear", "logistic", "softmax", "poisson", "huber")
WAYS = ("error", "mean", "drop", "indicator")

VERSION = 1
LARGEST = 1e150
"""Numbers beyond it, whose squares overflow, are refused as infinite ones are."""

_ISO = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$"


@dataclass(frozen=True)
class Request:
    """What the server asks of every site before a fit, and how the table will be encoded.

    ``target`` is the column to explain, or None; ``features`` are the columns that explain it, None
    for all but the target and those of ``exclude``. Columns of ``categorical`` hold codes: their
    numbers are taken as categories. ``missing`` says what becomes of missing values: "error" refuses
    them; "drop" drops incomplete rows; "mean" fills in the mean of all clients' observed values, or
    the most frequent category; "indicator" does so too and adds a column of 0 and 1 that tells where a
    number was missing, and makes missing categories a category. A column may have up to
    ``max_categories`` categories, and no more than so many texts of it leave a site.

    ``intercept`` and ``standardise`` say how columns are scaled (see ``Schema``). ``model`` is
    "linear", "logistic", "softmax", "poisson" or "huber", or None: from the target.
    """

    target: str | None
    features: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    missing: str = "error"
    max_categories: int = 100
    intercept: bool = True
    standardise: bool = True
    model: str | None = None

    def __post_init__(self):
        for name in ("features", "exclude", "categorical"):
            columns = getattr(self, name)
            if isinstance(columns, str) or not (columns is None or np.iterable(columns)):
                raise TypeError(f"{name}: got {columns!r}; accepted is a list of column names")
            if columns is not None or name != "features":
                object.__setattr__(self, name, tuple(str(c) for c in columns or ()))
        if self.target is not None:
            object.__setattr__(self, "target", str(self.target))
        for name in ("intercept", "standardise"):
            given = getattr(self, name)
            if not isinstance(given, bool | np.bool_):
                raise TypeError(f"{name}: got {given!r}; accepted are True and False")
            object.__setattr__(self, name, bool(given))
        features = self.features or ()
        twice = sorted({f for f in features if features.count(f) > 1})
        if twice:
            raise ValueError(f"features: {listed(twice)} given twice; name each column once")
        for name, known in (("missing", WAYS), ("model", (None, *MODELS))):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name}: got {getattr(self, name)!r}; accepted are "
                    f"{', '.join(repr(k) for k in known)}"
                )
        limit = self.max_categories
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 2:
            raise ValueError(f"max_categories: got {limit!r}; accepted is a whole number >= 2")
        if self.target is None:
            if self.model:
                raise ValueError(f"model: got {self.model!r} without a target; name the target")
            return
        for name in ("features", "exclude", "categorical"):
            if self.target in (getattr(self, name) or ()):
                raise ValueError(f"{name}: {self.target!r} is the target; leave it out")

    def chosen(self, names: Sequence[str]) -> list[str]:
        """Those of a site's columns that are features, in the order asked for or that of the site."""
        left_out = {self.target, *self.exclude}
        asked = names if self.features is None else [f for f in self.features if f in names]
        return [name for name in asked if name not in left_out]

    def to_json(self) -> str:
        """The request as JSON."""
        return to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "Request":
        """The request of ``to_json``; ``ValueError`` for anything else."""
        return from_json(cls, text, lambda fields: cls(**fields))


@dataclass(frozen=True)
class Column:
    """What is known of a column, of one site or of all.

    ``kind`` is "number", "boolean", "text" (also dates and codes that were asked for as categories),
    "date", "empty" where every value is missing, or else the name of its type. ``count`` values are
    there, ``missing`` are not.

    Numbers: the mean is ``mean`` + ``rest``, the latter below the precision of the former; ``squares``
    is the sum of squared deviations from it; ``low`` and ``high`` are the extremes; ``whole`` says
    whether all are whole numbers; ``infinite`` counts those that are infinite or beyond 1e150.

    ``values`` are the distinct values, sorted, with their counts; None where there are too many or
    where nobody asked. ``strange`` are texts among what else are numbers.
    """

    kind: str
    count: int = 0
    missing: int = 0
    mean: float = 0.0
    rest: float = 0.0
    squares: float = 0.0
    low: float | None = None
    high: float | None = None
    whole: bool = True
    infinite: int = 0
    values: tuple[tuple[Any, int], ...] | None = None
    strange: tuple[str, ...] = ()


@dataclass(frozen=True)
class Summary:
    """What a site says of its rows: ``rows`` of them count, ``dropped`` were incomplete.

    ``names`` are all its columns; ``columns`` tells of the features, ``target`` of the target (None
    where there is no such column).
    """

    rows: int
    dropped: int
    names: tuple[str, ...]
    columns: dict[str, Column]
    target: Column | None

    def to_json(self) -> str:
        """The summary as JSON."""
        return to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "Summary":
        """The summary of ``to_json``; ``ValueError`` for anything else."""

        def built(fields):
            target = fields.pop("target")
            columns = {name: Column(**c) for name, c in fields.pop("columns").items()}
            return cls(**fields, columns=columns, target=target and Column(**target))

        return from_json(cls, text, built)


def to_json(value) -> str:
    """A dataclass as one line of JSON; ``repr`` writes floats, so that they come back exactly."""
    head = {"format": f"accord {type(value).__name__.lower()}", "version": VERSION}
    return json.dumps(head | dataclasses.asdict(value), allow_nan=False)


def from_json(cls, text: str, build):
    """What ``build`` makes of the fields that ``to_json`` wrote, arrays being tuples."""
    what = cls.__name__.lower()
    try:
        fields = json.loads(text)
        known = fields.pop("format") == f"accord {what}"
        version = fields.pop("version")
        if known and version == VERSION:
            return build({name: _tuples(value) for name, value in fields.items()})
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"text: not the JSON of a {what} ({error})".splitlines()[0]) from None
    if not known:
        raise ValueError(f"text: not the JSON of a {what}; accepted is what its to_json gives")
    raise ValueError(
        f"text: a {what} of version {version!r}; this version of Accord reads {VERSION}: use the one "
        "that wrote it"
    )


def _tuples(value):
    if isinstance(value, dict):
        return {name: _tuples(v) for name, v in value.items()}
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def summarise(frame, request: Request) -> Summary:
    """The summary of one site's frame, a polars DataFrame.

    What is wrong with the data is part of the summary; ``agree`` raises it with the site's name.
    """
    features = request.chosen(frame.columns)
    there = request.target in frame.columns
    used = frame.select([*features, request.target] if there else features)
    if request.missing == "drop":
        used = used.filter(~gaps(used))
    limit = request.max_categories
    # Numbers go together: with many small sites the calls cost more than the rows.
    plain = [f for f in features if used[f].dtype.is_numeric() and f not in request.categorical]
    columns = {f: _number(x) for f, x in zip(plain, numbers(used.select(plain)).T, strict=True)}
    columns |= {
        f: _column(used[f], limit, f in request.categorical) for f in features if f not in columns
    }
    return Summary(
        rows=used.height,
        dropped=frame.height - used.height,
        names=tuple(frame.columns),
        columns={f: columns[f] for f in features},
        target=_target(used[request.target], request) if there else None,
    )


def gaps(frame) -> np.ndarray:
    """Whether each row of a polars frame has a missing value (rows,)."""
    gone = np.zeros(frame.height, bool)
    for column in frame:
        if column.dtype.is_float():
            gone |= np.isnan(column.to_numpy())
        elif column.null_count():
            gone |= column.is_null().to_numpy()
    return gone


def numbers(frame) -> np.ndarray:
    """A polars frame as float64 (rows, columns), missing values as NaN."""
    return frame.cast(float, strict=False).to_numpy().reshape(frame.height, frame.width)


def _number(x: np.ndarray) -> Column:
    there = x[~np.isnan(x)]
    found = Column("number" if len(there) else "empty", len(there), len(x) - len(there))
    return dataclasses.replace(found, **_moments(there)) if len(there) else found


def _column(column, limit: int, categorical: bool) -> Column:
    """What a site says of a column that is no number: at most ``limit`` texts of it."""
    import polars as pl

    there = column.filter(~missing(column))
    found = Column("empty", len(there), len(column) - len(there))
    if not len(there):
        return found
    if there.dtype.is_nested() or there.dtype in (pl.Binary, pl.Object):
        return dataclasses.replace(found, kind=str(there.dtype))
    values = texts(there)
    temporal = there.dtype.is_temporal() or (there.dtype == pl.String and _are_dates(there))
    if temporal and not categorical:
        return dataclasses.replace(found, kind="date", strange=(values[0],))
    return dataclasses.replace(
        found,
        kind="boolean" if there.dtype == pl.Boolean else "text",
        values=_counted(values, limit),
        strange=() if categorical else _strange(values)[:limit],
    )


def _target(column, request: Request) -> Column:
    """As other columns; numbers are listed only where the model may take them for classes."""
    if not column.dtype.is_numeric():
        return _column(column, request.max_categories, False)
    found = _number(numbers(column.to_frame())[:, 0])
    limits = {None: 2, "logistic": request.max_categories, "softmax": request.max_categories}
    if request.model not in limits or found.infinite:
        return found
    values = column.filter(~missing(column)).cast(float)
    return dataclasses.replace(found, values=_counted(values, limits[request.model]))


def _moments(x: np.ndarray) -> dict[str, Any]:
    infinite = int((~(np.abs(x) <= LARGEST)).sum())
    if infinite:
        return {"infinite": infinite}
    about = float(x.mean())
    deviations = x - about
    offset = float(deviations.mean())
    deviations -= offset
    mean, rest = _sum(about, offset + float(deviations.mean()))
    return {
        "mean": mean,
        "rest": rest,
        "squares": float(deviations @ deviations),
        "low": float(x.min()),
        "high": float(x.max()),
        "whole": bool((x == np.round(x)).all()),
    }


def _sum(a: float, b: float) -> tuple[float, float]:
    """a + b as a float and what it is short of."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def texts(column):
    """A polars column as text, missing values as nulls: whole numbers without a point, true, false."""
    import polars as pl

    if not column.dtype.is_float():
        return column.cast(pl.String)
    codes = column.unique().drop_nulls().drop_nans()
    written = [str(int(v)) if v == round(v) and abs(v) < 1e15 else repr(v) for v in codes]
    return column.replace_strict(codes, written, default=None, return_dtype=pl.String)


def _counted(values, limit: int) -> tuple[tuple[Any, int], ...] | None:
    if values.n_unique() > limit:
        return None
    return tuple(sorted(values.value_counts(name="rows").rows()))


def _strange(values) -> tuple[str, ...]:
    """The first texts that are no numbers, where most are numbers."""
    odd = values.filter(values.cast(float, strict=False).is_null())
    return tuple(odd.unique().sort()[:3]) if 2 * len(odd) < len(values) else ()


def _are_dates(column) -> bool:
    if not column.str.contains(_ISO).all():
        return False
    return column.str.head(10).str.to_date("%Y-%m-%d", strict=False).null_count() == 0


def merged(parts: Sequence[Column], limit: int) -> Column:
    """Several clients' summaries of a column, of one kind or empty, as the summary of all their rows.

    Neither the order of the clients nor the way rows are spread over them matters, up to rounding.
    """
    full = [part for part in parts if part.count] or list(parts[:1])
    kinds = {part.kind for part in full}
    total = Column(
        kind=kinds.pop() if len(kinds) == 1 else "text",
        count=sum(part.count for part in parts),
        missing=sum(part.missing for part in parts),
        values=_union(full, limit),
        strange=tuple(sorted({s for part in full for s in part.strange}))[:3],
    )
    return dataclasses.replace(total, **_together(full)) if total.kind == "number" else total


def _union(parts: Sequence[Column], limit: int) -> tuple[tuple[Any, int], ...] | None:
    counts: dict[Any, int] = {}
    for part in parts:
        if part.values is None:
            return None
        for value, count in part.values:
            counts[value] = counts.get(value, 0) + count
    return tuple(sorted(counts.items())) if len(counts) <= limit else None


def _together(parts: Sequence[Column]) -> dict[str, Any]:
    about = min(part.mean for part in parts)
    offsets = [(part.mean - about) + part.rest for part in parts]
    count = sum(part.count for part in parts)
    offset = math.fsum(p.count * o for p, o in zip(parts, offsets, strict=True)) / count
    between = (p.count * (o - offset) ** 2 for p, o in zip(parts, offsets, strict=True))
    mean, rest = _sum(about, offset)
    return {
        "mean": mean,
        "rest": rest,
        "squares": math.fsum([*(p.squares for p in parts), *between]),
        "low": min(p.low for p in parts if p.low is not None),
        "high": max(p.high for p in parts if p.high is not None),
        "whole": all(part.whole for part in parts),
        "infinite": 0,
    }
