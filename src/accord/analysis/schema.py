"""How every client encodes its rows: the schema that the sites agree on (``accord.analysis.agreement``)."""

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from accord.analysis.summaries import (
    MODELS,
    WAYS,
    from_json,
    gaps,
    numbers,
    texts,
    to_json,
)
from accord.data.frames import check_there, joined, kind, listed, missing, opened

INTERCEPT = "(intercept)"
"""How the intercept is called among the coefficients."""


@dataclass(frozen=True)
class Feature:
    """A column of the table that the model uses.

    ``kind`` is "number" or "category"; ``categories`` are sorted, by size where all are numbers, and
    the first is the baseline. ``fill`` stands in for missing values: a number, or a category.
    """

    name: str
    kind: str
    fill: Any
    categories: tuple[str, ...] = ()


@dataclass(frozen=True)
class Term:
    """A column of the matrix: the number of ``column``, or 0 and 1 for ``category`` or for missing.

    Of the filled table, ``mean`` + ``rest`` is its mean and ``deviation`` its standard deviation (the
    square root of the mean squared deviation), both over all clients' rows.
    """

    column: str
    kind: str
    category: str | None
    mean: float
    rest: float
    deviation: float

    @property
    def name(self) -> str:
        """``age``, ``sex: male`` or ``chol missing``."""
        if self.kind == "category":
            return f"{self.column}: {self.category}"
        return f"{self.column} missing" if self.kind == "missing" else self.column


@dataclass(frozen=True)
class Target:
    """The column to explain: ``kind`` "classes", which are sorted, or "number".

    ``counts`` are the rows of each class; ``mean`` and ``deviation`` those of a number, over all rows.
    """

    name: str
    kind: str
    classes: tuple[Any, ...] = ()
    counts: tuple[int, ...] = ()
    mean: float = 0.0
    deviation: float = 0.0


@dataclass(frozen=True)
class Schema:
    """How every client encodes its rows.

    ``features`` are the columns used, ``terms`` the columns of the encoded matrix, ``target`` and
    ``model`` what is explained and how (None without a target). ``rows`` count at all clients;
    ``notes`` are sentences on what was decided: columns left out, rows dropped, the model.

    A number becomes (x - mean) / deviation; a category one column of 0 and 1 for each but the first,
    with or without an intercept; both these and the indicators of missing values are standardised
    alike. Without an intercept nothing is centred: x / deviation, and a column that is constant, which
    then stays, is not scaled. With ``standardise=False`` numbers stay as they are.
    """

    features: tuple[Feature, ...]
    terms: tuple[Term, ...]
    target: Target | None
    model: str | None
    missing: str
    intercept: bool
    standardise: bool
    rows: int
    notes: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the encoded columns."""
        return tuple(term.name for term in self.terms)

    @property
    def explained(self) -> tuple[Target, str]:
        """(target, model); ``ValueError`` where the request named no target."""
        if self.target is None or self.model is None:
            raise ValueError("target: got None; name the column that the model explains")
        return self.target, self.model

    def to_json(self) -> str:
        """The schema as JSON, every number exactly."""
        return to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "Schema":
        """The schema of ``to_json``; ``ValueError`` for anything else, or another version."""

        def built(fields):
            target = fields.pop("target")
            schema = cls(
                features=tuple(Feature(**f) for f in fields.pop("features")),
                terms=tuple(Term(**t) for t in fields.pop("terms")),
                target=target and Target(**target),
                **fields,
            )
            _check_sound(schema)
            return schema

        return from_json(cls, text, built)

    def kept(self, frame, target: bool = True) -> np.ndarray:
        """Which rows ``encode`` keeps (rows,): all, but with missing="drop" only the complete ones."""
        return self._kept(self._loaded(frame, target))

    def encode(
        self, frame, target: bool = True, unknown: str = "error"
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """(X, y): float64 (rows, columns), and classes 0..C-1 as integers or numbers as float64.

        ``frame`` is a table as ``accord.data.read_sites`` takes it; columns are found by name, others
        are ignored. ``target=False``, or a schema without a target, gives None for y. Missing values
        are dealt with as in the fit; in a column that had none there, also with "indicator", they get
        its mean or most frequent category. ``unknown="baseline"`` takes a category that no client had
        for the baseline; "error" refuses it.
        """
        if unknown not in ("error", "baseline"):
            raise ValueError(f"unknown: got {unknown!r}; accepted are 'error', 'baseline'")
        frame = self._loaded(frame, target)
        kept = self._kept(frame)
        frame = frame if kept.all() else frame.filter(kept)
        X = np.empty((frame.height, len(self.terms)))
        filled = self._filled(frame, unknown)
        for j, term in enumerate(self.terms):
            if term.kind == "missing":
                X[:, j] = missing(frame[term.column]).to_numpy()
            elif term.kind == "category":
                X[:, j] = (filled[term.column] == term.category).to_numpy()
            else:
                X[:, j] = filled[term.column]
        means, rests, scales = self._scaling()
        X -= means
        X -= rests
        X /= scales
        named = self.target if target else None
        return X, None if named is None else _encoded(frame[named.name], named)

    def matrix(self) -> np.ndarray:
        """T of original = T @ scaled, both holding the coefficients and, last, the intercept.

        (d + 1, d + 1), or (d, d) without an intercept. A covariance C becomes T C T'.
        """
        means, _, scales = self._scaling()
        T = np.diag(1 / scales)
        if not self.intercept:
            return T
        last = np.append(-means / scales, 1.0)
        return np.vstack([np.column_stack([T, np.zeros(len(scales))]), last])

    def unscale(self, coefficients, intercept=0.0) -> tuple[np.ndarray, np.ndarray]:
        """(coefficients, intercept) for the filled table on its original scale.

        ``coefficients`` are (d,) or (d, C), the intercept a number or (C,).
        """
        w = np.asarray(coefficients, float)
        if w.shape[:1] != (len(self.terms),):
            raise ValueError(
                f"coefficients: got shape {w.shape}; accepted is ({len(self.terms)},) or "
                f"({len(self.terms)}, classes), one for each of schema.columns"
            )
        means, _, scales = self._scaling()
        w = (w.T / scales).T
        return w, np.asarray(intercept, float) - means @ w

    def _scaling(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(means, their rests, deviations) to subtract and to divide by."""
        rows = [(t.mean, t.rest, t.deviation) for t in self.terms]
        means, rests, scales = np.array(rows, float).reshape(-1, 3).T
        centred = self.intercept and self.standardise
        nothing = np.zeros(len(rows))
        scales = np.where(scales > 0, scales, 1.0) if self.standardise else nothing + 1
        return (means, rests, scales) if centred else (nothing, nothing, scales)

    def _loaded(self, frame, target: bool):
        """The columns that are needed, those of the target last."""
        names, load = opened(frame, "frame")
        lacking = [f.name for f in self.features if f.name not in names]
        if lacking:
            raise ValueError(
                f"frame: there is no column {listed(lacking)}, of those that the model was fitted to; the "
                f"table has {listed(names)}"
            )
        asked = {"frame": [f.name for f in self.features]}
        if target and self.target:
            asked["target"] = [self.target.name]
        check_there(names, asked, "frame")
        return load([column for columns in asked.values() for column in columns])

    def _filled(self, frame, unknown: str) -> dict[str, Any]:
        """The features without gaps: arrays of numbers, polars columns of categories."""
        plain = [f for f in self.features if f.kind == "number"]
        for feature in plain:
            _check_numeric(frame[feature.name], "frame")
        block = numbers(frame.select([f.name for f in plain]))
        block = np.where(np.isnan(block), np.array([f.fill for f in plain]), block)
        filled = {f.name: x for f, x in zip(plain, block.T, strict=True)}
        for name, x in filled.items():
            _check_finite(x, f"frame: the column {name!r}")
        others = [f for f in self.features if f.kind == "category"]
        return filled | {f.name: _categories(frame[f.name], f, unknown) for f in others}

    def _kept(self, frame) -> np.ndarray:
        gone = gaps(frame)
        if self.missing == "drop" or not gone.any():
            return ~gone
        counts = {c.name: n for c in frame if (n := int(missing(c).sum()))}
        if self.missing != "error":
            features = {f.name for f in self.features}
            counts = {name: n for name, n in counts.items() if name not in features}
        if counts:
            told = joined([f"{name!r} {n}" for name, n in counts.items()])
            raise ValueError(
                f"frame: missing values, {told} of {frame.height}; drop or fill these rows first"
            )
        return np.ones(len(gone), bool)


def _check_sound(schema: Schema) -> None:
    """Raises where the parts of a schema that was read do not fit each other."""
    features = {f.name: f for f in schema.features}
    for f in schema.features:
        texts_only = all(isinstance(c, str) for c in (f.name, *f.categories))
        known = f.fill in f.categories if f.kind == "category" else _finite(f.fill)
        if f.kind not in ("number", "category") or not (texts_only and known):
            raise ValueError(f"feature {f.name!r}")
    for t in schema.terms:
        f = features[t.column]
        of = "category" if t.kind == "category" else "number"
        named = t.category in f.categories if of == "category" else t.category is None
        sized = all(map(_finite, (t.mean, t.rest, t.deviation))) and t.deviation >= 0
        if t.kind not in ("number", "category", "missing") or f.kind != of or not (named and sized):
            raise ValueError(f"term {t.column!r}")
    told = schema.target
    wanted = {"logistic": 2, "softmax": 2, None: 0}.get(schema.model, 0)
    count = 0 if told is None else len(told.classes)
    if (
        (told is None) != (schema.model is None)
        or (told and told.kind != ("classes" if wanted else "number"))
        or (count != wanted if schema.model != "softmax" else count < wanted)
        or schema.model not in (None, *MODELS)
    ):
        raise ValueError(f"target with {count} classes, model {schema.model!r}")
    if schema.missing not in WAYS or {type(schema.intercept), type(schema.standardise)} != {bool}:
        raise ValueError("missing, intercept or standardise")


def _finite(value) -> bool:
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def _categories(column, feature: Feature, unknown: str):
    """A column of categories without gaps, as a polars column of text."""
    values = texts(column).fill_null(feature.fill)
    strange = values.filter(~values.is_in(feature.categories))
    if len(strange) and unknown == "error":
        raise ValueError(
            f"frame: {strange[0]!r} in the column {feature.name!r} is a category that no client had; "
            f"they had {listed(feature.categories)}; unknown='baseline' takes it for the first"
        )
    return values


def _check_numeric(column, where: str) -> None:
    if not column.dtype.is_numeric() and column.null_count() < len(column):
        raise ValueError(
            f"{where}: the column {column.name!r} is numeric in the fit, here it is not "
            f"({kind(column)}); give numbers"
        )


def _check_finite(x: np.ndarray, where: str) -> None:
    wrong = np.flatnonzero(~np.isfinite(x))
    if len(wrong):
        raise ValueError(
            f"{where} is infinite in {len(wrong)} of {len(x)} rows; correct or drop them"
        )


def _encoded(column, target: Target) -> np.ndarray:
    """The target as classes 0..C-1 or as numbers."""
    import polars as pl

    boolean = bool(target.classes) and isinstance(target.classes[0], bool)
    text = bool(target.classes) and isinstance(target.classes[0], str)
    if not boolean and not text:
        _check_numeric(column, "target")
        y = column.cast(float, strict=False).to_numpy()
        if target.kind == "number":
            _check_finite(y, f"target: the column {target.name!r}")
            return y
        values, known = pl.Series(y), pl.Series([float(c) for c in target.classes])
    else:
        values, known = texts(column), pl.Series([_text(c) for c in target.classes])
    strange = values.filter(~values.is_in(known.to_list()))
    if len(strange):
        raise ValueError(
            f"target: {strange[0]!r} in the column {target.name!r} is a class that no client had; "
            f"they had {joined([str(c) for c in target.classes])}"
        )
    return values.replace_strict(known, range(len(known)), return_dtype=pl.Int64).to_numpy()


def _text(value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
