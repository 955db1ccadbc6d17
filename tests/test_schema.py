"""Preprocessing in one round equals preprocessing of the pooled table."""

import dataclasses
import json
import math
import re
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.analysis import Column, Request, Schema, Summary, agree, merged, summarise
from accord.data import read_sites

SIZES = (1, 40, 7, 1, 120, 31)
NUMBERS, CATEGORIES = ("far", "age", "chol", "ca"), ("sex", "thal", "smoker", "code")


def table(seed, sizes=SIZES):
    """Sites that differ: sizes, means, what is missing where, categories that only some have."""
    generator = np.random.default_rng(seed)
    frames = []
    for i, n in enumerate(sizes):

        def holes(values, share, n=n):
            return [
                None if gone else v
                for v, gone in zip(values, generator.random(n) < share, strict=True)
            ]

        chol = generator.normal(200 + 30 * (i % 4), 50, n)
        frames.append(
            pl.DataFrame(
                {
                    "far": 1e8 + (i % 5) + generator.normal(size=n),
                    "age": generator.integers(20, 90, n),
                    "chol": holes(np.zeros(n) if i % 6 == 1 else chol, 0.1 * (i % 3)),
                    "ca": pl.Series(
                        holes(generator.random(n), (0.99, 1.0, 0.3)[i % 3]), dtype=pl.Float64
                    ),
                    "sex": generator.choice(["male", "female"], n),
                    "thal": pl.Series(
                        holes(
                            generator.choice(
                                ["fixed", "normal", f"only {i % 4}"], n, p=[0.2, 0.6, 0.2]
                            ),
                            0.2 * (i % 2),
                        ),
                        dtype=pl.String,
                    ),
                    "smoker": pl.Series(holes(generator.random(n) < 0.7, 0.1), dtype=pl.Boolean),
                    "code": pl.Series(
                        holes(generator.choice([2, 10, 1], n, p=[0.6, 0.2, 0.2]), 0.15),
                        dtype=pl.Int64,
                    ),
                    "same": np.full(n, 4.5),
                    "outcome": generator.choice(["yes", "no"], n),
                    "hospital": [f"site {i:03}"] * n,
                }
            )
        )
    frame = pl.concat(frames)
    return frame.sample(fraction=1, shuffle=True, seed=seed)


def joint(sites, request):
    """The round, as it would go over a wire: requests, summaries and the schema as text."""
    asked = request.to_json()
    answers = {s.name: summarise(s.frame, Request.from_json(asked)).to_json() for s in sites}
    schema = agree({name: Summary.from_json(a) for name, a in answers.items()}, request)
    return Schema.from_json(schema.to_json())


def pooled(frame, way, standardise=True, intercept=True):
    """(columns, X) by exact arithmetic on the pooled table."""
    if way == "drop":
        frame = frame.drop_nulls()
    rows = {}
    for name in frame.columns:
        if name in ("outcome", "hospital"):
            continue
        values, gone = frame[name].to_list(), frame[name].is_null().to_numpy()
        if name in CATEGORIES:
            values = [v if v is None else str(v).lower() for v in values]
            there = sorted(
                {v for v in values if v is not None},
                key=lambda v: (len(v) if name == "code" else 0, v),
            )
            if way == "indicator" and gone.any():
                fill, there = "(missing)", [*there, "(missing)"]
            else:
                fill = max(there, key=lambda v: (values.count(v), -there.index(v)))
            values = [fill if v is None else v for v in values]
            rows |= {f"{name}: {c}": [Fraction(v == c) for v in values] for c in there[1:]}
            continue
        there = [Fraction(v) for v in values if v is not None]
        fill = sum(there) / len(there)
        if len(set(there)) > 1 or not intercept:
            rows[name] = [fill if v is None else Fraction(v) for v in values]
        if way == "indicator" and gone.any():
            rows[f"{name} missing"] = [Fraction(int(g)) for g in gone]
    X = np.empty((frame.height, len(rows)))
    for j, values in enumerate(rows.values()):
        mean = sum(values) / len(values)
        deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / len(values)) or 1.0
        shift = mean if intercept and standardise else 0
        X[:, j] = [float(v - shift) / (deviation if standardise else 1.0) for v in values]
    return tuple(rows), X


WAYS = ("mean", "drop", "indicator")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("standardise", "intercept"), [(True, True), (False, True), (True, False)])
def test_one_round_equals_pooled_preprocessing(way, standardise, intercept):
    frame = table(0)
    columns, X_true = pooled(frame, way, standardise, intercept)
    request = Request(
        "outcome", categorical=("code",), missing=way, standardise=standardise, intercept=intercept
    )
    schema = joint(read_sites(frame, "hospital"), request)
    assert schema.columns == columns
    X, y = schema.encode(frame)
    assert X.dtype == np.float64 and X.shape == X_true.shape
    scale = np.maximum(np.abs(X_true), 1.0)
    np.testing.assert_allclose(X / scale, X_true / scale, rtol=0, atol=1e-12)
    kept = frame.filter(schema.kept(frame))
    assert len(kept) == schema.rows == len(X)
    np.testing.assert_array_equal(y, kept["outcome"] == "yes")
    assert y.dtype == np.int64 and schema.target.classes == ("no", "yes")
    assert schema.target.counts == (int((y == 0).sum()), int((y == 1).sum()))


def test_three_hundred_sites():
    sizes = tuple(np.random.default_rng(1).integers(1, 6, 300))
    frame = table(1, sizes)
    sites = read_sites(frame, "hospital")
    assert len(sites) == 300
    columns, X_true = pooled(frame, "indicator")
    schema = joint(sites, Request("outcome", categorical=("code",), missing="indicator"))
    assert schema.columns == columns
    np.testing.assert_allclose(schema.encode(frame)[0], X_true, rtol=0, atol=1e-12)


def test_each_site_encodes_its_own_rows():
    frame = table(2)
    sites = read_sites(frame, "hospital")
    schema = joint(sites, Request("outcome", categorical=("code",), missing="indicator"))
    for site in sites:
        X, y = schema.encode(site.frame.select(pl.all().shuffle(0).name.keep()).reverse())
        assert X.shape == (len(site.frame), len(schema.columns)) and len(y) == len(X)
        X, y = schema.encode(site.frame.select(reversed(site.frame.columns)))
        X_true, y_true = schema.encode(frame.filter(pl.col("hospital") == site.name))
        np.testing.assert_array_equal(X, X_true)
        np.testing.assert_array_equal(y, y_true)


@st.composite
def columns_of_sites(draw):
    """A column, and two ways of cutting it into sites."""
    centre = draw(st.sampled_from([0.0, 1e8, -3e5]))
    ordinary = st.floats(-1e3, 1e3).map(lambda v: v if abs(v) > 1e-100 else 0.0)
    values = draw(st.lists(ordinary, min_size=1, max_size=30))
    x = [centre + v if draw(st.booleans()) or i == 0 else None for i, v in enumerate(values)]
    owners = [draw(st.lists(st.integers(0, 3), min_size=len(x), max_size=len(x))) for _ in range(2)]
    return x, owners


def summaries_of(frame, owners, request):
    owners = pl.Series(owners)
    return {
        f"s{i}": summarise(frame.filter(owners == i), request)
        for i in sorted(set(owners.to_list()))
    }


@settings(deadline=None)
@given(columns_of_sites())
def test_merging_depends_neither_on_order_nor_on_the_split(drawn):
    x, splits = drawn
    frame = pl.DataFrame({"x": pl.Series(x, dtype=pl.Float64)})
    frame = frame.with_columns(t=(pl.col("x") / 100).round().cast(pl.Int64).cast(pl.String))
    request = Request(None, missing="mean")
    there = [Fraction(v) for v in x if v is not None]
    mean = sum(there) / len(there)
    squares = sum((v - mean) ** 2 for v in there)
    spread = float(max(there) - min(there)) + 1e-9
    for owners in splits:
        summaries = summaries_of(frame, owners, request)
        parts = [s.columns["x"] for s in summaries.values()]
        found = merged(parts, 100)
        assert merged(parts[::-1], 100) == found
        assert (found.count, found.missing) == (len(there), len(x) - len(there))
        assert (found.low, found.high) == (float(min(there)), float(max(there)))
        assert abs(Fraction(found.mean) + Fraction(found.rest) - mean) <= 1e-14 * spread
        assert abs(found.squares - float(squares)) <= 1e-12 * float(squares) + 1e-20
        counted = merged([s.columns["t"] for s in summaries.values()], 100).values
        texts = frame["t"].drop_nulls().to_list()
        assert counted == tuple((v, texts.count(v)) for v in sorted(set(texts)))
        backwards = dict(reversed(summaries.items()))
        assert agree(backwards, request) == agree(summaries, request)


@settings(deadline=None)
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64), min_size=1),
    st.text(),
    st.dictionaries(st.text(), st.integers(1, 10**6), max_size=5),
)
def test_json_is_exact(numbers, name, counts):
    values = tuple(sorted(counts.items()))
    number = Column(
        "number", 3, 1, numbers[0], numbers[-1], abs(numbers[0]), min(numbers), max(numbers)
    )
    summary = Summary(3, 1, (name, "y"), {name: number}, Column("text", 3, values=values))
    assert Summary.from_json(summary.to_json()) == summary
    request = Request(name, exclude=(name + "x",), missing="drop", max_categories=7, model="huber")
    assert Request.from_json(request.to_json()) == request


def test_a_schema_is_read_back_exactly():
    sites = read_sites(table(3), "hospital")
    for target in ("outcome", "age", "smoker", "code", None):
        model = "softmax" if target == "code" else None
        schema = joint(sites, Request(target, missing="drop", model=model, exclude=("same", "ca")))
        again = Schema.from_json(schema.to_json())
        assert again == schema and again.to_json() == schema.to_json()
        if target == "smoker":
            assert again.target.classes == (False, True) and again.target.classes[0] is False


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "x", "text: not the JSON of a schema (Expecting value"),
        (lambda text: "[1]", "text: not the JSON of a schema ("),
        (lambda text: json.dumps({"a": 1}), "text: not the JSON of a schema ('format')"),
        (lambda text: text.replace('"features"', '"feature"'), "text: not the JSON of a schema ("),
        (
            lambda text: text.replace("accord schema", "accord request"),
            "not the JSON of a schema; accep",
        ),
        (
            lambda text: text.replace('"version": 1', '"version": 2'),
            "text: a schema of version 2; this",
        ),
    ],
)
def test_what_is_no_schema_is_refused(change, message):
    schema = joint(read_sites(table(3), "hospital"), Request("outcome", missing="drop"))
    check_message(lambda: Schema.from_json(change(schema.to_json())), message)


@pytest.mark.parametrize("intercept", [True, False])
def test_coefficients_return_to_the_original_scale(intercept):
    frame = table(4)
    options = {"categorical": ("code",), "missing": "indicator", "intercept": intercept}
    scaled = joint(read_sites(frame, "hospital"), Request("outcome", **options))
    plain = joint(read_sites(frame, "hospital"), Request("outcome", standardise=False, **options))
    assert scaled.columns == plain.columns
    X, _ = scaled.encode(frame)
    raw, _ = plain.encode(frame)
    generator = np.random.default_rng(0)
    for shape in ((), (3,)):
        w, b = generator.normal(size=(X.shape[1], *shape)), generator.normal(size=shape)
        b = b if intercept else np.zeros(shape)
        slopes, offset = scaled.unscale(w, b)
        assert slopes.shape == w.shape and offset.shape == shape
        # The intercept is of the size of 1e8 times a slope.
        np.testing.assert_allclose(raw @ slopes + offset, X @ w + b, rtol=0, atol=1e-6)
        T = scaled.matrix()
        if intercept:
            together = T @ np.concatenate([w, b[None] if shape else [b]])
            np.testing.assert_allclose(together[-1], offset, rtol=1e-12)
            together = together[:-1]
        else:
            together = T @ w
        np.testing.assert_allclose(together, slopes, rtol=1e-12)
    near = [c for c in range(X.shape[1]) if scaled.columns[c] != "far"]
    T = scaled.matrix()[np.ix_(near, near)]
    np.testing.assert_allclose(
        raw[:, near] @ T,
        (X + [intercept * t.mean / (t.deviation or 1) for t in scaled.terms])[:, near],
        atol=1e-11,
    )
    same = plain.unscale(w, b)
    np.testing.assert_array_equal(same[0], w)
    np.testing.assert_array_equal(plain.matrix(), np.eye(len(T) + 1 + intercept))
    check_message(lambda: scaled.unscale(w[1:]), "coefficients: got shape")


def site_frames(**frames):
    return {name: pl.DataFrame(columns, strict=False) for name, columns in frames.items()}


def agreed(frames, *args, **options):
    request = Request(*args, **options)
    return agree({name: summarise(frame, request) for name, frame in frames.items()}, request)


def test_categories():
    frames = site_frames(
        A={"c": ["b", "b", None], "n": [10, 9, None], "y": [0, 1, 2]},
        B={"c": ["a", "d", "a"], "n": [9.0, None, 100.0], "y": [3, 1, 2]},
    )
    schema = agreed(frames, "y", missing="mean", categorical=["n"], standardise=False)
    assert schema.columns == ("c: b", "c: d", "n: 10", "n: 100")
    # a and b are equally frequent, and so a fills the gap; 9 is the most frequent code.
    X, y = schema.encode(frames["A"])
    np.testing.assert_array_equal(X, [[1, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(y, [0.0, 1.0, 2.0])
    schema = agreed(frames, "y", missing="indicator", categorical=["n"], standardise=False)
    assert schema.columns == ("c: b", "c: d", "c: (missing)", "n: 10", "n: 100", "n: (missing)")
    np.testing.assert_array_equal(schema.encode(frames["A"])[0][2], [0, 0, 1, 0, 0, 1])
    mixed = site_frames(A={"c": [True, False]}, B={"c": ["true", "maybe"]})
    assert agreed(mixed, None).columns == ("c: maybe", "c: true")
    assert agreed(
        site_frames(A={"c": pl.Series(["u", "v"], dtype=pl.Categorical)}), None
    ).columns == ("c: v",)


def test_the_model_follows_from_the_target():
    def chosen(*columns, **options):
        frames = {
            f"s{i}": pl.DataFrame({"x": range(len(y)), "y": y}) for i, y in enumerate(columns)
        }
        schema = agreed(frames, "y", **options)
        return schema, np.concatenate([schema.encode(f)[1] for f in frames.values()])

    schema, y = chosen([2, 1, 2], [2, 2])
    assert (
        schema.model == "logistic"
        and schema.target.classes == (1, 2)
        and y.tolist() == [1, 0, 1, 1, 1]
    )
    assert schema.target.counts == (1, 4) and "'y' has two values, 1 and 2" in schema.notes[0]
    schema, y = chosen([1, 1], [2, 2])
    assert schema.model == "logistic" and y.tolist() == [0, 0, 1, 1]
    schema, y = chosen([0.5, -0.5], [-0.5])
    assert schema.target.classes == (-0.5, 0.5) and y.tolist() == [1, 0, 0]
    schema, y = chosen([0.0, -0.0, 1.0])
    assert schema.target.classes == (0, 1) and y.tolist() == [0, 0, 1]
    schema, y = chosen([True, False], [True])
    assert schema.target.classes == (False, True) and y.tolist() == [1, 0, 1]
    schema, y = chosen(["b", "a"], ["b"])
    assert schema.model == "logistic" and y.tolist() == [1, 0, 1]
    schema, y = chosen(["b", "a"], ["c"])
    assert schema.model == "softmax" and y.tolist() == [1, 0, 2]
    schema, y = chosen([0, 3], [1, 2])
    assert schema.model == "linear" and "'poisson' can be given" in schema.notes[0]
    assert y.dtype == np.float64 and schema.target.mean == 1.5
    assert schema.target.deviation == pytest.approx(math.sqrt(1.25), rel=1e-15)
    schema, y = chosen([0.0, 3.5], [1, 2])
    assert schema.model == "linear" and "poisson" not in schema.notes[0]
    schema, y = chosen([10, 3], [9, 3], model="softmax")
    assert schema.target.classes == (3, 9, 10) and y.tolist() == [2, 0, 1, 0]
    for model in ("linear", "poisson", "huber"):
        schema, y = chosen([0, 1], [1, 0], model=model)
        assert schema.model == model and schema.target.kind == "number" and y.dtype == np.float64


def test_no_more_texts_leave_a_site_than_agreed():
    names = [f"patient {i}" for i in range(50)]
    frame = pl.DataFrame({"id": names, "y": np.arange(50) / 7})
    text = summarise(frame, Request("y", max_categories=49)).to_json()
    assert "patient" not in text
    listed = summarise(frame, Request("y", max_categories=50))
    assert len(listed.columns["id"].values) == 50
    # Of a numeric target no values, where the model wants no classes.
    assert listed.target.values is None
    assert summarise(frame, Request("y", model="linear")).target.values is None
    # Mistyped numbers are told, three of them.
    frame = pl.DataFrame({"x": [*map(str, range(200)), "<5", "<6", "<7", "<8"]})
    assert summarise(frame, Request(None)).columns["x"].strange == ("<5", "<6", "<7")


def test_constant_columns():
    frames = site_frames(
        A={"x": [1.0, 2], "k": [5, None], "z": [0, 0], "e": [None, None], "c": ["u", None]},
        B={"x": [3.0, 4], "k": [5.0, 5], "z": [0, 0], "e": [None, None], "c": ["u", "u"]},
    )
    schema = agreed(frames, None, missing="mean")
    assert schema.columns == ("x",) and [f.name for f in schema.features] == ["x"]
    assert schema.notes == (
        "left out 'k': it is 5 everywhere",
        "left out 'z': it is 0 everywhere",
        "left out 'e': no client has a value of it",
        "left out 'c': it is 'u' everywhere",
    )
    schema = agreed(frames, None, missing="mean", intercept=False)
    assert schema.columns == ("x", "k")
    np.testing.assert_array_equal(schema.encode(frames["A"])[0][:, 1], [5, 5])
    schema = agreed(frames, None, missing="indicator")
    assert schema.columns == ("x", "k missing", "c: (missing)")
    np.testing.assert_allclose(
        schema.encode(frames["A"])[0][:, 1], [-1 / math.sqrt(3), math.sqrt(3)]
    )
    assert agreed({"A": frames["A"], "B": frames["B"].clear()}, None, missing="mean").columns == (
        "x",
    )


@pytest.mark.parametrize("value", [0.1, 1 / 3, -123.456, 1e8 + 0.1, 1e-30])
def test_what_varies_by_rounding_alone_is_constant(value):
    rows = range(1, 30)
    frames = {f"s{n}": pl.DataFrame({"x": np.full(n, value), "z": np.arange(n)}) for n in rows}
    assert agreed(frames, None).columns == ("z",)
    frames["s5"] = frames["s5"].with_columns(x=pl.lit(np.nextafter(value, 0)))
    assert agreed(frames, None).columns == ("z",)
    schema = agreed(frames, None, intercept=False)
    assert schema.columns == ("x", "z")
    np.testing.assert_allclose(schema.encode(frames["s9"])[0][:, 0], value, rtol=1e-15)


def test_dropped_rows_are_counted():
    frames = site_frames(
        A={"x": [1.0, None, 3], "y": [0, 1, 1], "free": [None, 1, 1]},
        B={"x": [float("nan"), 5, 6], "y": [0, None, 2], "free": [None, 1, 1]},
        C={"x": [None], "y": [4], "free": [None]},
    )
    schema = agreed(frames, "y", missing="drop", exclude=["free"])
    assert schema.rows == 3 and schema.notes[0] == (
        "dropped 4 of 7 rows with missing values: 'A' 1, 'B' 2, 'C' 1"
    )
    assert schema.terms[0].mean == pytest.approx(10 / 3, rel=1e-15)
    assert schema.encode(frames["C"])[0].shape == (0, 1)
    X, y = schema.encode(frames["B"])
    assert y.tolist() == [2] and schema.kept(frames["B"]).tolist() == [False, False, True]
    X, y = schema.encode(frames["B"], target=False)
    assert len(X) == 2 and y is None
    assert schema.kept(frames["B"], target=False).tolist() == [False, True, True]


def test_features_and_exclude():
    frames = site_frames(
        B={"id": ["p", "q"], "u": [1, 2], "v": [0, 5], "y": [0.5, 1.5]},
        A={"v": [3, 4], "y": [2.5, 1], "u": [1, 9], "id": ["r", "s"]},
    )
    assert agreed(frames, "y", exclude=["id"]).columns == ("v", "u")
    assert agreed(frames, "y", features=["u", "v"]).columns == ("u", "v")
    assert agreed(frames, "y", features=["u", "v"], exclude=("v",)).columns == ("u",)
    alone = frames | {"A": frames["A"].with_columns(more=pl.lit(1))}
    assert agreed(alone, "y", exclude=["id", "more"]).columns == ("v", "u")


def test_new_rows():
    frames = site_frames(
        A={"c": ["a", "b"], "x": [1.0, 2], "y": [0, 1]},
        B={"c": ["c", "b"], "x": [3.0, 6], "y": [1, 1]},
    )
    schema = agreed(frames, "y", missing="mean", standardise=False)
    new = pl.DataFrame({"x": [None, 7], "c": [None, "zz"], "other": [1, 2]})
    check_message(
        lambda: schema.encode(new, target=False),
        "frame: 'zz' in the column 'c' is a category that no client had; they had 'a', 'b', 'c'; unk",
    )
    X, y = schema.encode(new, target=False, unknown="baseline")
    np.testing.assert_array_equal(X, [[1, 0, 3], [0, 0, 7]])
    assert y is None
    X, _ = schema.encode(new.select("x", c=pl.lit(None)), target=False)
    np.testing.assert_array_equal(X[:, :2], [[1, 0], [1, 0]])
    known = new.with_columns(c=pl.lit("a"))
    strict = agreed(frames, "y")
    check_message(
        lambda: strict.encode(new, target=False), "frame: missing values, 'c' 1, 'x' 1 of 2; drop"
    )
    check_message(lambda: schema.encode(new), "target: there is no column 'y'")
    check_message(lambda: schema.encode(new.drop("x"), False), "frame: there is no column 'x'")
    check_message(
        lambda: schema.encode(new, unknown="skip"), "unknown: got 'skip'; accepted are 'error'"
    )
    check_message(
        lambda: schema.encode(known.with_columns(x=pl.lit("<5")), False),
        "frame: the column 'x' is numeric in the fit, here it is not (text, as '<5'); give numbers",
    )
    check_message(
        lambda: schema.encode(known.with_columns(x=math.inf), False),
        "frame: the column 'x' is infinite in 2 of 2 rows; correct or drop them",
    )
    for y, message in (
        ([0, 2], "target: 2.0 in the column 'y' is a class that no client had; they had 0, 1"),
        (["0", "1"], "target: the column 'y' is numeric in the fit, here it is not"),
        ([None, 1], "frame: missing values, 'y' 1 of 2; drop or fill these rows first"),
    ):
        check_message(lambda y=y: schema.encode(known.with_columns(y=pl.Series(y))), message)


def check_message(call, message, kind=ValueError):
    with pytest.raises(kind, match=re.escape(message)) as error:
        call()
    assert "\n" not in str(error.value)


X2, Y2 = {"x": [1.0, 2.0]}, {"y": [0.5, 2.5]}
MANY = {"id": [f"p{i}" for i in range(6)], "x": range(6), "y": [0.5 * i for i in range(6)]}
BAD = {
    "number and text": (
        {"A": X2 | Y2, "B": {"x": ["1", "12O"]} | Y2},
        {},
        "features: the column 'x' is numbers at client 'A' and text at client 'B' (as '12O'); correct it, "
        "or take it as categories: categorical='x'",
    ),
    "number and a mistyped one among many": (
        {"A": X2 | Y2, "B": {"x": [*map(str, range(300)), "<5"], "y": [0.5] * 301}},
        {},
        "is numbers at client 'A' and text at client 'B' (as '<5'); correct it",
    ),
    "number and boolean": (
        {"A": X2 | Y2, "B": {"x": [True, False]} | Y2},
        {},
        "features: the column 'x' is numbers at client 'A' and true and false at client 'B'",
    ),
    "mistyped everywhere": (
        {"A": {"x": [*map(str, range(300)), "<5"], "y": range(301)}},
        {},
        "the column 'x' has more than 100 categories (numbers but for '<5'); exclude it if",
    ),
    "identifiers": (
        {"A": MANY, "B": MANY},
        {"max_categories": 5},
        "features: the column 'id' has more than 5 categories; exclude it if it identifies rows",
    ),
    "identifiers over sites": (
        {"A": {"x": ["a", "b"]} | Y2, "B": {"x": ["c", "d"]} | Y2},
        {"max_categories": 3},
        "features: the column 'x' has more than 3 categories; exclude it",
    ),
    "missing": (
        {
            "A": {"x": [1.0, None], "z": [None, None], "y": [1, 2]},
            "B": {"x": [None], "z": [1], "y": [3]},
        },
        {},
        "missing: values are missing, client 'A': 'x' 1, 'z' 2 of 2; client 'B': 'x' 1 of 1; choose "
        "missing='mean', 'drop' or 'indicator', or exclude columns",
    ),
    "missing target": (
        {"A": {"x": [1, 2], "y": [1, None]}, "B": {"x": [1], "y": [None]}},
        {"missing": "mean"},
        "target: values of 'y' are missing, client 'A': 1 of 2; client 'B': 1 of 1; drop these rows",
    ),
    "all dropped": (
        {"A": {"x": [1, None], "y": [None, 1]}},
        {"missing": "drop"},
        "summaries: every row has a missing value at all of 1 clients",
    ),
    "no rows": ({"A": {"x": [], "y": []}}, {}, "summaries: there are no rows at all of 1 clients"),
    "infinite": (
        {"A": X2 | Y2, "B": {"x": [math.inf, 1.0]} | Y2},
        {},
        "features: the column 'x' of client 'B' has 1 infinite values (or beyond 1e150); correct or",
    ),
    "infinite target": (
        {"A": {"x": [1, 2], "y": [-math.inf, 1.0]}},
        {},
        "target: the column 'y' of client 'A' has 1 infinite values",
    ),
    "dates": (
        {"A": {"x": ["2020-01-02", None]} | Y2},
        {"missing": "mean"},
        "features: the column 'x' of client 'A' holds dates, as 2020-01-02; derive numbers from it (as",
    ),
    "times": (
        {"A": {"x": ["2020-01-02 10:30:00", "2020-01-02T10:30:01.5Z"]} | Y2},
        {},
        "holds dates, as 2020-01-02 10:30:00; derive numbers",
    ),
    "typed dates": (
        {"A": {"x": pl.Series(["2020-01-02"] * 2).str.to_date()} | Y2},
        {},
        "features: the column 'x' of client 'A' holds dates, as 2020-01-02; derive",
    ),
    "lists": ({"A": {"x": [[1], [2]]} | Y2}, {}, "of client 'A' holds List(Int64); derive numbers"),
    "lacking": (
        {"A": X2 | Y2 | {"z": [1, 2]}, "B": X2 | Y2},
        {},
        "features: client 'B' has no column 'z', client 'A' has; give all clients the same columns, or",
    ),
    "unknown feature": (
        {"A": {"chol": [1, 2]} | Y2},
        {"features": ["cholesterol"]},
        "features: there is no column 'cholesterol'; did you mean 'chol'?",
    ),
    "unknown exclude": (
        {"A": X2 | Y2},
        {"exclude": ["w"]},
        "exclude: there is no column 'w'; accepted are",
    ),
    "unknown categorical": (
        {"A": X2 | Y2},
        {"categorical": ["w"]},
        "categorical: there is no column 'w'",
    ),
    "twice": (
        {"A": X2 | Y2},
        {"features": ["x", "x"]},
        "features: 'x' given twice; name each column once",
    ),
    "no target": ({"A": X2}, {}, "target: there is no column 'y'; accepted are 'x'"),
    "no target at one": (
        {"A": X2 | Y2, "B": X2},
        {},
        "target: there is no column 'y' at client 'B'; ",
    ),
    "nothing left": (
        {"A": {"x": [1, 1]} | Y2},
        {},
        "features: no column is left to explain the target",
    ),
    "names": (
        {"A": {"a: b": [1, 2], "a": ["a", "b"]} | Y2},
        {},
        "features: two encoded columns are called 'a: b'; rename one",
    ),
    "one class": (
        {"A": {"x": [1, 2], "y": ["u", "u"]}, "B": {"x": [1], "y": ["u"]}},
        {},
        "target: the column 'y' is 'u' at all clients; at least two classes are needed",
    ),
    "constant": (
        {"A": {"x": [1, 2], "y": [3, 3]}},
        {},
        "target: the column 'y' is 3 everywhere; there is",
    ),
    "one number as class": (
        {"A": {"x": [1, 2], "y": [3, 3]}},
        {"model": "logistic"},
        "target: the column 'y' is 3 at all clients; at least two",
    ),
    "three classes": (
        {"A": {"x": [1, 2], "y": [0, 1]}, "B": {"x": [1], "y": [2]}},
        {"model": "logistic"},
        "target: the column 'y' has 3 classes (0, 1, 2); 'logistic' wants two: choose 'softmax'",
    ),
    "many classes": (
        {"A": {"x": range(6), "y": [0.5 * i for i in range(6)]}},
        {"model": "softmax", "max_categories": 5},
        "has more than 5 different values; 'softmax' wants fewer: choose 'linear'",
    ),
    "target identifies": (
        {"A": {"x": range(6), "y": MANY["id"]}},
        {"max_categories": 5},
        "target: the column 'y' has more than 5 different values; 'softmax' wants fewer: check the column",
    ),
    "negative counts": (
        {"A": {"x": [1, 2], "y": [0, -1]}},
        {"model": "poisson"},
        "target: the column 'y' goes down to -1; 'poisson' wants numbers >= 0",
    ),
    "text for linear": (
        {"A": {"x": [1, 2], "y": ["u", "v"]}},
        {"model": "linear"},
        "target: the column 'y' holds 'u', 'v', no numbers; 'linear' wants numbers: choose 'logistic'",
    ),
    "target number and text": (
        {"A": X2 | Y2, "B": X2 | {"y": ["1", "two"]}},
        {},
        "target: the column 'y' is numbers at client 'A' and text at client 'B' (as 'two'); correct it",
    ),
    "a range whose squares vanish": (
        {"A": {"x": [1e-160, 2e-160], "y": [0, 1]}},
        {},
        "features: the column 'x' goes from 1e-160 to 2e-160, a range below 1e-150; multiply it",
    ),
    "a target whose squares vanish": (
        {"A": {"x": [1, 2, 3], "y": [1e-160, 2e-160, 4e-160]}},
        {},
        "target: the column 'y' goes from 1e-160 to 4e-160",
    ),
    "codes with and without zeros": (
        {"A": {"k": [1, 2], "y": [0, 1]}, "B": {"k": ["01", "A"], "y": [0, 1]}},
        {"categorical": ["k"]},
        "features: the column 'k' holds '01' and '1', one value written in two ways",
    ),
    "true and True": (
        {"A": {"k": [True, False], "y": [0, 1]}, "B": {"k": ["True", "unsure"], "y": [0, 1]}},
        {},
        "features: the column 'k' holds 'True' and 'true', one value",
    ),
    "classes true and True": (
        {"A": {"x": [1, 2], "y": [True, False]}, "B": {"x": [1, 2], "y": ["True", "unsure"]}},
        {},
        "target: the column 'y' holds 'True' and 'true', one value",
    ),
    "the intercept's name": (
        {"A": {"(intercept)": [1, 2], "y": [0, 1]}},
        {},
        "features: a column is called '(intercept)', as the intercept is; rename it",
    ),
    "target dates": (
        {"A": X2 | {"y": ["2020-01-02"] * 2}},
        {},
        "target: the column 'y' of client 'A' holds",
    ),
}


@pytest.mark.parametrize(("frames", "options", "message"), BAD.values(), ids=BAD)
def test_what_does_not_agree_is_named_in_one_line(frames, options, message):
    check_message(lambda: agreed(site_frames(**frames), "y", **options), message)


@pytest.mark.parametrize(
    ("options", "message", "kind"),
    [
        ({"features": "age"}, "features: got 'age'; accepted is a list of column names", TypeError),
        ({"exclude": 3}, "exclude: got 3; accepted is a list of column names", TypeError),
        (
            {"missing": "zero"},
            "missing: got 'zero'; accepted are 'error', 'mean', 'drop',",
            ValueError,
        ),
        (
            {"model": "tree"},
            "model: got 'tree'; accepted are None, 'linear', 'logistic'",
            ValueError,
        ),
        (
            {"max_categories": 1},
            "max_categories: got 1; accepted is a whole number >= 2",
            ValueError,
        ),
        ({"max_categories": True}, "max_categories: got True; accepted is a whole", ValueError),
        ({"features": ["x", "y"]}, "features: 'y' is the target; leave it out", ValueError),
        ({"categorical": ["y"]}, "categorical: 'y' is the target; leave it out", ValueError),
    ],
)
def test_bad_requests_are_named_in_one_line(options, message, kind):
    check_message(lambda: Request("y", **options), message, kind)
    check_message(
        lambda: Request(None, model="linear"), "model: got 'linear' without a target; name"
    )


def test_dates_as_categories_when_asked_for():
    frames = site_frames(A={"x": ["2020-01-02", "2021-01-02"], "y": [0.5, 1.5]})
    assert agreed(frames, "y", categorical=["x"]).columns == ("x: 2021-01-02",)
    assert agreed(frames, "y", features=["x"], categorical=["x"]).rows == 2


def test_every_field_of_the_summary_matters():
    """A site cannot hide rows: rows, means and gaps enter the schema."""
    frame = pl.DataFrame({"x": [1.0, 2, 4, None], "y": [0.0, 1, 2, 3]})
    request = Request("y", missing="indicator")
    summary = summarise(frame, request)
    schema = agree({"A": summary}, request)
    assert agree({"A": dataclasses.replace(summary, rows=5)}, request) != schema
    for change in ({"mean": 2.0}, {"rest": 1e-20}, {"squares": 1.0}, {"missing": 2}):
        column = dataclasses.replace(summary.columns["x"], **change)
        other = dataclasses.replace(summary, columns={"x": column})
        assert agree({"A": other}, request) != schema, change
