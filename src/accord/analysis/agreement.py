"""From what the sites say of their columns to one encoding of their rows: preprocessing in one round.

    summaries = {site.name: summarise(site.frame, request) for site in sites}     # at the sites
    schema = agree(summaries, request)                                            # at the server
    arrays = {site.name: schema.encode(site.frame) for site in sites}             # at the sites

What comes out is what the same preprocessing of the pooled table would give.
"""

import math
import re
from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from accord.analysis.schema import INTERCEPT, Feature, Schema, Target, Term
from accord.analysis.summaries import (
    Column,
    Request,
    Summary,
    merged,
)
from accord.data.frames import joined, listed, nearest

MISSING = "(missing)"
"""The category that missing="indicator" makes of missing categories."""

SMALLEST = 1e-150
"""A range below it is refused: the squares of its numbers vanish."""

ROUNDING = 4 * np.finfo(float).eps
"""Relative to the mean, a standard deviation that is none."""


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
