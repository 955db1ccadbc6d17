"""From what the sites say of their columns to one encoding of their rows: preprocessing in one round.

    summaries = {site.name: summarise(site.frame, request) for site in sites}     # at the sites
    schema = agree(summaries, request)                                            # at the server
    arrays = {site.name: schema.encode(site.frame) for site in sites}             # at the sites

What comes out is what the same preprocessing of the pooled table would give.
"""

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from accord.analysis.summaries import (
    MODELS,
    WAYS,
    Column,
    Request,
    Summary,
    from_json,
    gaps,
    merged,
    numbers,
    summarise,
    texts,
    to_json,
)
from accord.data.frames import check_there, joined, kind, listed, missing, nearest, opened

__all__ = ["Feature", "Request", "Schema", "Summary", "Target", "Term", "agree", "summarise"]

MISSING = "(missing)"
"""The category that missing="indicator" makes of missing categories."""

INTERCEPT = "(intercept)"
"""How the intercept is called among the coefficients."""

SMALLEST = 1e-150
"""A range below it is refused: the squares of its numbers vanish."""

ROUNDING = 4 * np.finfo(float).eps
"""Relative to the mean, a standard deviation that is none."""


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


def agree(summaries: dict[str, Summary], request: Request) -> Schema:
    """The encoding that follows from what all clients say, by the clients' names.

    Equal to preprocessing the pooled table: categories are the union of the clients', sorted; missing
    numbers get the mean of all observed ones, missing categories the most frequent (of equals the
    first); means and deviations are those of the filled table. Columns that are constant over all
    clients are left out, with a note (without an intercept, those of zeros only).

    ``request.model=None`` is "logistic" for a target of two values, "softmax" for text of more, else
    "linear".

    Raises ``ValueError`` in one line that names column and clients: columns that are not everywhere,
    numbers here and text there, missing values that were not to be, infinite ones, dates, more than
    ``request.max_categories`` categories, a target that does not fit the model.
    """
    summaries = {str(name): summaries[name] for name in sorted(summaries, key=str)}
    rows = sum(summary.rows for summary in summaries.values())
    dropped = {name: s.dropped for name, s in summaries.items() if s.dropped}
    if not rows:
        why = "every row has a missing value" if dropped else "there are no rows"
        raise ValueError(
            f"summaries: {why} at all of {len(summaries)} clients; at least one is needed"
        )
    notes = []
    if dropped:
        total = rows + sum(dropped.values())
        told = joined([f"{name!r} {count}" for name, count in dropped.items()])
        notes.append(f"dropped {total - rows} of {total} rows with missing values: {told}")
    target, model = _agreed_target(summaries, request, notes)
    features, terms = [], []
    columns = {name: _parts(summaries, name) for name in _agreed_columns(summaries, request)}
    for name, parts in columns.items():
        _check_kinds(name, parts, request)
    if request.missing == "error":
        _check_complete(summaries)
    for name, parts in columns.items():
        column = merged(list(parts.values()), request.max_categories)
        feature, own = _agreed_feature(name, column, rows, request, notes)
        terms += own
        features += [feature] if own else []
    if target and not terms:
        raise ValueError(
            "features: no column is left to explain the target; see exclude and features"
        )
    schema = Schema(
        features=tuple(features),
        terms=tuple(terms),
        target=target,
        model=model,
        missing=request.missing,
        intercept=request.intercept,
        standardise=request.standardise,
        rows=rows,
        notes=tuple(notes),
    )
    if request.intercept and INTERCEPT in schema.columns:
        raise ValueError(
            f"features: a column is called {INTERCEPT!r}, as the intercept is; rename it"
        )
    twice = sorted({c for c in schema.columns if schema.columns.count(c) > 1})
    if twice:
        raise ValueError(f"features: two encoded columns are called {listed(twice)}; rename one")
    return schema


def _parts(summaries: dict[str, Summary], column: str) -> dict[str, Column]:
    return {name: summary.columns[column] for name, summary in summaries.items()}


def _agreed_columns(summaries: dict[str, Summary], request: Request) -> list[str]:
    """The features, in the order asked for or that of the first client; every client has them."""
    everywhere = {c for s in summaries.values() for c in s.names}
    for argument in ("features", "exclude", "categorical"):
        for column in getattr(request, argument) or ():
            if column not in everywhere:
                hint = nearest(column, sorted(everywhere))
                raise ValueError(f"{argument}: there is no column {column!r}; {hint}")
    wanted = {c for s in summaries.values() for c in s.columns}
    for name, summary in summaries.items():
        lacking = sorted(wanted - set(summary.columns))
        if lacking:
            having = next(n for n, s in summaries.items() if lacking[0] in s.columns)
            raise ValueError(
                f"features: client {name!r} has no column {listed(lacking)}, client {having!r} has; "
                "give all clients the same columns, or exclude it"
            )
    return list(next(iter(summaries.values())).columns)


def _check_kinds(name: str, parts: dict[str, Column], request: Request, what="features") -> None:
    """Raises where a column cannot be used, or is numbers at one client and text at another."""
    kinds: dict[str, str] = {}
    advice = "derive numbers from it (as days since a date), or exclude it"
    for client, part in parts.items():
        where = f"{what}: the column {name!r}"
        if part.infinite:
            raise ValueError(
                f"{where} of client {client!r} has {part.infinite} infinite values (or beyond 1e150); "
                "correct or drop them"
            )
        if part.kind == "date":
            raise ValueError(
                f"{where} of client {client!r} holds dates, as {part.strange[0]}; {advice}"
            )
        if part.kind not in ("number", "text", "boolean", "empty"):
            raise ValueError(f"{where} of client {client!r} holds {part.kind}; {advice}")
        if part.kind != "empty":
            kinds.setdefault("number" if part.kind == "number" else "text", client)
    if len(kinds) < 2:
        return
    part = parts[kinds["text"]]
    values = [value for value, _ in part.values or ()]
    odd = [*part.strange, *(v for v in values if not _is_number(v))][:1]
    told = f" (as {odd[0]!r})" if odd else ""
    held = "true and false" if part.kind == "boolean" else "text"
    hint = f", or take it as categories: categorical={name!r}" if what == "features" else ""
    raise ValueError(
        f"{what}: the column {name!r} is numbers at client {kinds['number']!r} and {held} at client "
        f"{kinds['text']!r}{told}; correct it{hint}"
    )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _check_range(where: str, column: Column) -> None:
    """Raises where numbers differ by so little that their squared deviations vanish."""
    low, high = column.low or 0.0, column.high or 0.0
    if 0 < high - low < SMALLEST:
        raise ValueError(
            f"{where} goes from {low:g} to {high:g}, a range below {SMALLEST:g}; multiply it, as by "
            "another choice of unit"
        )


def _check_spelling(where: str, categories) -> None:
    """Raises where one number, true or false is written in two ways.

    A client whose codes are all numbers says 1 for 01; another, with letters among them, says 01.
    """
    seen: dict[str | Decimal, str] = {}
    for category in map(str, categories):
        plain: str | Decimal = category.lower()
        if plain not in ("true", "false"):
            if not re.fullmatch(r"[+-]?\d+(\.\d*)?", category):
                continue
            plain = Decimal(category)
        other = seen.setdefault(plain, category)
        if other != category:
            raise ValueError(
                f"{where} holds {other!r} and {category!r}, one value written in two ways; write it alike "
                "at all clients, with a letter before codes (as c01)"
            )


def _check_complete(summaries: dict[str, Summary]) -> None:
    """Raises where features are missing, and counts them by client and column."""
    found = []
    for name, summary in summaries.items():
        counts = [f"{c!r} {part.missing}" for c, part in summary.columns.items() if part.missing]
        if counts:
            found.append(f"client {name!r}: {joined(counts)} of {summary.rows}")
    if found:
        raise ValueError(
            f"missing: values are missing, {joined(found, '; ')}; choose missing='mean', 'drop' or "
            "'indicator', or exclude columns"
        )


def _agreed_feature(name: str, column: Column, rows: int, request: Request, notes: list[str]):
    """(the feature, its terms, none where it tells nothing)."""
    terms: list[Term] = []
    if column.kind == "empty":
        notes.append(f"left out {name!r}: no client has a value of it")
        return None, terms
    marked = request.missing == "indicator" and column.missing > 0
    if column.kind == "number":
        _check_range(f"features: the column {name!r}", column)
        feature = Feature(name, "number", column.mean)
        deviation = math.sqrt(column.squares / rows)
        # What differs by rounding alone is constant.
        deviation = deviation if deviation > ROUNDING * abs(column.mean) else 0.0
        if deviation > 0 or (not request.intercept and column.mean != 0):
            terms.append(Term(name, "number", None, column.mean, column.rest, deviation))
        else:
            notes.append(f"left out {name!r}: it is {column.mean:g} everywhere")
        if marked:
            terms.append(_binary(name, "missing", None, column.missing / rows))
        return feature, terms
    if column.values is None:
        why = f" (numbers but for {listed(column.strange)})" if column.strange else ""
        raise ValueError(
            f"features: the column {name!r} has more than {request.max_categories} categories{why}; "
            "exclude it if it identifies rows, or correct it"
        )
    counts = dict(column.values)
    largest = max(counts.values())
    gone = counts.pop(MISSING, 0) + (column.missing if marked else 0)
    _check_spelling(f"features: the column {name!r}", counts)
    categories = _ordered(counts)
    if gone:
        categories, counts[MISSING] = [*categories, MISSING], gone
    fill = MISSING if marked else next(c for c in categories if counts[c] == largest)
    counts[fill] += 0 if marked else column.missing
    feature = Feature(name, "category", fill, tuple(categories))
    if len(categories) == 1:
        notes.append(f"left out {name!r}: it is {categories[0]!r} everywhere")
    terms = [_binary(name, "category", c, counts[c] / rows) for c in categories[1:]]
    return feature, terms


def _binary(name: str, kind: str, category: str | None, share: float) -> Term:
    return Term(name, kind, category, share, 0.0, math.sqrt(share * (1 - share)))


def _ordered(categories) -> list[str]:
    """Sorted by size where all are numbers, else as text."""
    if all(_is_number(c) for c in categories):
        return sorted(categories, key=lambda c: (float(c), c))
    return sorted(categories)


def _agreed_target(summaries, request: Request, notes) -> tuple[Target | None, str | None]:
    """(the target, the model), which fit each other."""
    name = request.target
    if name is None:
        return None, None
    lacking = [client for client, s in summaries.items() if s.target is None]
    if lacking:
        names = sorted({c for s in summaries.values() for c in s.names})
        where = "" if len(lacking) == len(summaries) else f" at client {listed(lacking)}"
        raise ValueError(f"target: there is no column {name!r}{where}; {nearest(name, names)}")
    parts = {client: s.target for client, s in summaries.items()}
    _check_kinds(name, parts, request, "target")
    gone = [
        f"client {c!r}: {p.missing} of {p.missing + p.count}" for c, p in parts.items() if p.missing
    ]
    if gone:
        raise ValueError(
            f"target: values of {name!r} are missing, {joined(gone, '; ')}; drop these rows, as "
            "missing='drop' does"
        )
    column = merged(list(parts.values()), request.max_categories)
    classes = [] if column.values is None else [_class(v, column.kind) for v, _ in column.values]
    model = request.model or _inferred(name, column, classes, notes)
    where = f"target: the column {name!r}"
    if model in ("linear", "poisson", "huber"):
        if column.kind != "number":
            held = listed(classes) if classes else column.kind
            raise ValueError(
                f"{where} holds {held}, no numbers; {model!r} wants numbers: choose 'logistic' for two "
                "classes, 'softmax' for more"
            )
        if column.low == column.high:
            raise ValueError(f"{where} is {column.low:g} everywhere; there is nothing to explain")
        _check_range(where, column)
        if model == "poisson" and column.low is not None and column.low < 0:
            raise ValueError(f"{where} goes down to {column.low:g}; 'poisson' wants numbers >= 0")
        deviation = math.sqrt(column.squares / column.count)
        return Target(name, "number", mean=column.mean, deviation=deviation), model
    if not classes:
        raise ValueError(
            f"{where} has more than {request.max_categories} different values; {model!r} wants "
            f"{'two' if model == 'logistic' else 'fewer'}"
            + (": choose 'linear'" if column.kind == "number" else ": check the column")
        )
    _check_spelling(where, classes)
    if len(classes) == 1:
        raise ValueError(
            f"{where} is {classes[0]!r} at all clients; at least two classes are needed"
        )
    if model == "logistic" and len(classes) > 2:
        told = joined([str(c) for c in classes])
        raise ValueError(
            f"{where} has {len(classes)} classes ({told}); 'logistic' wants two: choose 'softmax'"
        )
    counts = tuple(count for _, count in column.values or ())
    return Target(name, "classes", tuple(classes), counts), model


def _class(value, kind: str):
    """A class as the user wrote it: a whole number without a point, true and false as such."""
    if kind == "boolean":
        return value == "true"
    return (
        int(value) if kind == "number" and value == round(value) and abs(value) < 2**53 else value
    )


def _inferred(name: str, column: Column, classes: Sequence, notes: list[str]) -> str:
    """The model that suits a target, with a note."""
    if len(classes) == 2:
        notes.append(f"model 'logistic': {name!r} has two values, {classes[0]} and {classes[1]}")
        return "logistic"
    if column.kind != "number":
        return "softmax"
    counts = column.whole and column.low is not None and column.low >= 0
    hint = (
        "; it holds whole numbers >= 0: if they are counts, 'poisson' can be given"
        if counts
        else ""
    )
    notes.append(f"model 'linear': {name!r} is numeric{hint}")
    return "linear"
