"""accord.fit: the joint model equals the pooled one, on real tables, to the digits that are promised."""

import dataclasses
import json

import numpy as np
import polars as pl
import pytest
import statsmodels.api as sm
from sklearn import datasets, linear_model

import accord
from accord.analysis.describe import describe
from accord.analysis.families import pooled, site_statistics
from accord.analysis.fit import fit
from accord.analysis.model import Model
from accord.analysis.validate import leave_one_out
from accord.data import fetching

FAMILIES = {"logistic": sm.families.Binomial, "poisson": sm.families.Poisson}


def fetched(name: str) -> pl.DataFrame:
    """A fetched data set, or a visible skip."""
    if not fetching.is_here(name):
        pytest.skip(f"{name} is not here: accord datasets fetch {name}")
    return accord.data.load(name)


def diabetes(sites: int = 5) -> pl.DataFrame:
    """442 patients; clients that differ in age."""
    loaded = datasets.load_diabetes(as_frame=True, scaled=False)
    table = pl.DataFrame({c: loaded.frame[c].to_numpy() for c in loaded.frame.columns})
    order = np.argsort(table["age"].to_numpy() + 20 * np.sin(np.arange(table.height)))
    names = np.empty(table.height, object)
    for k, part in enumerate(np.array_split(order, [20, 21, 150, 300][: sites - 1])):
        names[part] = f"site {k}"
    return table.with_columns(pl.Series("site", list(names)))


def design(table: pl.DataFrame, columns, drop=()) -> np.ndarray:
    """The pooled design matrix as a statistician would write it: dummies, then a constant."""
    parts = []
    for name in columns:
        column = table[name]
        if column.dtype.is_numeric():
            parts.append(column.cast(float).fill_null(column.mean()).to_numpy())
            continue
        filled = column.cast(pl.String).fill_null(
            column.drop_nulls().cast(pl.String).mode().sort()[0]
        )
        parts += [(filled == c).cast(float).to_numpy() for c in sorted(filled.unique())[1:]]
    return np.column_stack([*parts, np.ones(table.height)])


def numbers(found, field: str) -> np.ndarray:
    return np.array([getattr(c, field) for c in found.coefficients])


def agree_with(found, pooled_fit, coefficients=1e-7, errors=1e-6, likelihood=1e-9):
    np.testing.assert_allclose(numbers(found, "estimate"), pooled_fit.params, rtol=coefficients)
    np.testing.assert_allclose(numbers(found, "standard_error"), pooled_fit.bse, rtol=errors)
    assert found.log_likelihood == pytest.approx(pooled_fit.llf, rel=likelihood)


def test_linear_equals_ordinary_least_squares():
    table = diabetes()
    found = fit(table, "target", "site")
    X = design(table, table.columns[:10])
    least_squares = sm.OLS(table["target"].to_numpy(), X).fit()
    agree_with(found, least_squares)
    np.testing.assert_allclose(numbers(found, "p_value"), least_squares.pvalues, rtol=1e-6)
    interval = np.column_stack([numbers(found, "low"), numbers(found, "high")])
    np.testing.assert_allclose(interval, least_squares.conf_int(), rtol=1e-6)
    assert found.score == pytest.approx(least_squares.rsquared, abs=1e-12)
    assert found.status.name == "converged"
    apart = abs(numbers(found, "estimate") - np.linalg.lstsq(X, table["target"].to_numpy())[0])
    assert (apart <= numbers(found, "error_bound") + 1e-9).all()


@pytest.mark.parametrize("kind", ["logistic", "poisson"])
def test_generalised_linear_models_equal_the_pooled_ones(kind):
    table = diabetes()
    rng = np.random.default_rng(3)
    bmi = table["bmi"].to_numpy()
    outcome = {
        "logistic": np.where(table["target"] > 140, "worse", "better"),
        "poisson": rng.poisson(np.exp(0.05 * bmi - 1)),
    }[kind]
    features = table.columns[:10]
    table = table.with_columns(pl.Series("outcome", list(outcome)))
    found = fit(table, "outcome", "site", features=features, model=kind)
    y = (outcome == "worse").astype(float) if kind == "logistic" else outcome
    model = sm.GLM(y, design(table, features), family=FAMILIES[kind]())
    agree_with(found, model.fit(tol=1e-13, maxiter=100))
    assert found.log_likelihood is not None


def test_softmax_equals_the_multinomial_logit():
    table = diabetes()
    thirds = np.digitize(table["target"], [100, 180])
    table = table.with_columns(pl.Series("third", [("a", "b", "c")[k] for k in thirds]))
    features = ["age", "bmi", "bp", "s5"]
    found = fit(table, "third", "site", features=features)
    assert found.model.kind == "softmax"
    X = design(table, features)
    logit = sm.MNLogit(thirds, (X - 0)).fit(method="newton", disp=0, tol=1e-13, maxiter=100)
    estimate = numbers(found, "estimate").reshape(2, 5)
    np.testing.assert_allclose(estimate, logit.params.T, rtol=1e-7)
    np.testing.assert_allclose(
        numbers(found, "standard_error").reshape(2, 5), logit.bse.T, rtol=1e-6
    )
    assert found.log_likelihood == pytest.approx(logit.llf, rel=1e-9)
    assert found.coefficients[0].label == "b against a"


def test_heart_disease_equals_the_pooled_fit():
    table = fetched("heart")
    card = accord.data.CARDS["heart"]
    found = fit(table, card.target, card.client, features=card.features, missing="mean")
    X = design(table, card.features)
    pooled_fit = sm.GLM(table[card.target].to_numpy(), X, family=sm.families.Binomial())
    agree_with(found, pooled_fit.fit(tol=1e-14, maxiter=100))
    assert [s.rows for s in found.sites] == [304, 293, 123, 200]


def test_schools_equal_the_pooled_fit():
    table = fetched("hsb82")
    features = ["minrty", "sx", "ses", "meanses", "sector"]
    found = fit(table, "mAch", "school", features=features)
    assert len(found.sites) == 160
    agree_with(found, sm.OLS(table["mAch"].to_numpy(), design(table, features)).fit())


def test_thousands_of_tiny_clients_equal_the_pooled_fit():
    table = fetched("chem97")
    features = ["gender", "age", "gcsescore"]
    found = fit(table, "score", "school", features=features)
    rows = [s.rows for s in found.sites]
    assert (len(rows), min(rows), max(rows)) == (2410, 1, 188)
    agree_with(found, sm.OLS(table["score"].to_numpy(), design(table, features)).fit())


def test_digits_by_writer_equal_scikit_learn():
    pixels, digit = datasets.load_digits(return_X_y=True)
    train, _ = accord.data.digits()
    writers = np.concatenate([np.full(n, k) for k, n in enumerate(train.sizes)])
    X, y = (np.concatenate(parts) for parts in zip(*train, strict=True))
    columns = {f"p{k}": X[:, k] for k in range(64)} | {"digit": y, "writer": writers}
    found = fit(
        pl.DataFrame(columns), "digit", "writer", model="softmax", l2=1e-2, standardise=False,
        intercept=False, compare_local=False,
    )  # fmt: skip
    kept = [k for k in range(64) if np.ptp(X[:, k]) > 0]
    pooled_fit = linear_model.LogisticRegression(
        C=1 / (1e-2 * len(y)), fit_intercept=False, tol=1e-10, solver="newton-cholesky",
        max_iter=200,
    ).fit(X[:, kept], y)  # fmt: skip
    np.testing.assert_allclose(found.model.x, pooled_fit.coef_.T, rtol=1e-7, atol=1e-9)
    assert len(pixels) == 1797
    assert len(digit) == 1797


def test_lasso_has_scikit_learns_support_over_a_grid():
    table = diabetes()
    X = design(table, table.columns[:10])[:, :-1]
    X = (X - X.mean(0)) / X.std(0)
    y = table["target"].to_numpy()
    largest = abs(X.T @ (y - y.mean())).max() / len(y)
    for l1 in np.geomspace(1e-3, 0.99, 10) * largest:
        found = fit(table, "target", "site", l1=float(l1), compare_local=False)
        lasso = linear_model.Lasso(alpha=l1, tol=1e-14, max_iter=1_000_000).fit(X, y)
        assert ((found.model.x[:-1] != 0) == (lasso.coef_ != 0)).all()
        np.testing.assert_allclose(found.model.x[:-1], lasso.coef_, rtol=1e-7, atol=1e-7)
        assert found.log_likelihood is None
        assert found.coefficients[0].standard_error is None


def test_huber_equals_scipy():
    from scipy.optimize import minimize

    table = diabetes()
    found = fit(table, "target", "site", model="huber", threshold=30.0)
    X = design(table, table.columns[:10])
    scaled = np.column_stack([(X[:, :-1] - X[:, :-1].mean(0)) / X[:, :-1].std(0), np.ones(len(X))])
    y = table["target"].to_numpy()

    def objective(x):
        r = scaled @ x - y
        inside = abs(r) <= 30
        value = np.where(inside, 0.5 * r**2, 30 * (abs(r) - 15)).mean()
        return value, scaled.T @ np.clip(r, -30, 30) / len(y)

    best = minimize(objective, found.model.x, jac=True, options={"gtol": 1e-10})
    assert np.linalg.norm(objective(found.model.x)[1]) < 1e-7
    np.testing.assert_allclose(found.model.x, best.x, rtol=1e-6)
    assert found.coefficients[0].standard_error is None


@pytest.mark.parametrize("algorithm", [accord.PDMM(), accord.AGPDMM(), accord.ADMM()])
def test_first_order_methods_come_to_the_same_model(algorithm):
    table = diabetes().drop("s1", "s2")
    newton = fit(table, "target", "site", compare_local=False)
    other = fit(
        table, "target", "site", algorithm=algorithm, max_rounds=20_000, compare_local=False
    )
    assert other.status.name == "converged"
    np.testing.assert_allclose(other.model.x, newton.model.x, atol=1e-7)


def test_the_way_rows_are_spread_makes_no_difference():
    table = diabetes()
    first = fit(table, "target", "site", compare_local=False)
    rng = np.random.default_rng(0)
    for sites in (1, 2, 60):
        other = table.with_columns(pl.Series("site", rng.integers(0, sites, table.height)))
        found = fit(other, "target", "site", compare_local=False)
        np.testing.assert_allclose(
            numbers(found, "estimate"), numbers(first, "estimate"), rtol=1e-9
        )


def test_the_certificate_bounds_the_error_of_an_early_stop():
    table = diabetes().with_columns((pl.col("target") > 140).alias("worse"))
    features = ["age", "bmi", "bp", "s5"]
    exact = fit(table, "worse", "site", features=features, compare_local=False)
    for rounds in (2, 3, 4):
        found = fit(
            table, "worse", "site", features=features, max_rounds=rounds, compare_local=False
        )
        error = np.linalg.norm(found.model.x - exact.model.x)
        bound = found.certificate.distance
        if bound is not None:
            assert error <= bound + 1e-12
            assert (
                abs(numbers(found, "estimate") - numbers(exact, "estimate"))
                <= numbers(found, "error_bound") + 1e-12
            ).all()
    assert bound is not None


def test_a_model_file_predicts_the_same(tmp_path):
    table = diabetes().with_columns((pl.col("target") > 140).alias("worse"))
    sex = pl.when(pl.col("sex") > 1).then(pl.lit("f")).otherwise(pl.lit("m"))
    table = table.with_columns(sex.alias("sex"))
    found = fit(table.drop("target"), "worse", "site")
    path = found.model.save(tmp_path / "model.json")
    loaded = Model.load(path)
    assert (loaded.x == found.model.x).all()
    told = loaded.predict(table)
    assert told.equals(found.model.predict(table))
    assert told.columns == ["prediction", "probability of False", "probability of True"]
    assert abs(told["probability of True"] + told["probability of False"] - 1).max() < 1e-15
    shuffled = table.select(reversed(table.columns)).reverse()
    again = loaded.predict(shuffled).reverse()
    assert again["prediction"].equals(told["prediction"])
    share = "probability of True"
    np.testing.assert_allclose(again[share], told[share], rtol=1e-12)
    slopes, intercept = loaded.coefficients
    assert slopes.shape == (len(loaded.schema.columns),)
    assert numbers(found, "estimate")[-1] == pytest.approx(float(intercept), rel=1e-12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(format="other"), "not a model file"),
        (lambda c: c.update(version=99), "version 99"),
        (lambda c: c["x"].pop(), "damaged"),
        (lambda c: c.pop("schema"), "damaged"),
        (lambda c: c.update(kind="tree"), "damaged"),
        (lambda c: c.update(kind="huber"), "not those of its schema"),
        (lambda c: c.update(kind=["linear"]), "not those of its schema"),
        (lambda c: c.update(intercept=False), "not those of its schema"),
        (lambda c: c["schema"].update(intercept=False), "not those of its schema"),
        (lambda c: c.update(threshold="wide"), "threshold"),
        (lambda c: c["x"].__setitem__(0, float("nan")), "finite"),
        (lambda c: c["schema"]["terms"][0].update(column="nowhere"), "nowhere"),
        (lambda c: c["schema"]["terms"][0].update(mean=float("nan")), "term 'age'"),
        (lambda c: c["schema"]["terms"][0].update(deviation=-1.0), "term 'age'"),
        (lambda c: c["schema"]["terms"][0].update(kind="category"), "term 'age'"),
        (lambda c: c["schema"]["features"][0].update(fill="old"), "feature 'age'"),
        (lambda c: c["schema"].update(target=None), "target with 0 classes"),
        (lambda c: c["schema"]["target"].update(classes=[0, 1]), "target with 2 classes"),
        (lambda c: c["schema"].update(standardise="no"), "standardise"),
    ],
)
def test_a_wrong_model_file_is_refused(tmp_path, change, words):
    found = fit(diabetes(), "target", "site", compare_local=False)
    content = json.loads(found.model.to_json())
    change(content)
    path = tmp_path / "model.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=words):
        Model.load(path)


def test_a_result_is_plain_json():
    found = fit(diabetes(), "target", "site")
    content = json.loads(found.to_json())
    assert content["rows"] == 442
    assert content["sites"][1]["rows"] == 1
    assert content["sites"][1]["score"] is None  # one row has no R2
    assert {e["part"] for e in content["exchanges"]} >= {"schema", "fit", "results"}
    newton = content["exchanges"][1]
    assert newton["up"] == 5 * (1 + 11 + 11**2) * 8 * newton["rounds"]
    assert newton["down"] == 5 * 11 * 8 * newton["rounds"]


def test_dependent_columns_are_named():
    table = diabetes().with_columns((2 * pl.col("bmi") + 1).alias("twice"))
    with pytest.raises(ValueError, match=r"'(bmi|twice)', '(bmi|twice)' are linearly dependent"):
        fit(table, "target", "site")
    assert fit(table, "target", "site", l2=1e-3).status.name == "converged"


@pytest.mark.parametrize("mean", [1e-3, 50.0, 1e6])
def test_counts_of_any_size_equal_the_pooled_ones(mean):
    """From zero, a Newton step towards a large mean would take exp(eta) out of range."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 2))
    y = rng.poisson(10 * np.exp(X @ [0.5, -0.3])) * (mean / 10)
    table = pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y, "site": np.arange(200) % 3})
    found = fit(table, "y", "site", model="poisson")
    told = sm.GLM(y, sm.add_constant(X), family=sm.families.Poisson()).fit(tol=1e-14)
    order = [1, 2, 0]
    assert found.status.name == "converged"
    np.testing.assert_allclose(numbers(found, "estimate"), told.params[order], rtol=1e-7)
    np.testing.assert_allclose(numbers(found, "standard_error"), told.bse[order], rtol=1e-6)
    assert all(s.local_loss <= s.loss + 1e-9 * abs(s.loss) for s in found.sites)
    assert accord.leave_one_out(table, "y", "site", model="poisson").score > 0.5
    described = accord.describe(table, "y", "site", model="poisson").differences
    assert described.note == ""


@pytest.mark.parametrize("kind", ["linear", "logistic", "poisson"])
def test_nearly_dependent_columns_have_no_standard_errors_that_are_wrong(kind):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = {
        "linear": X[:, 0] + rng.standard_normal(60),
        "logistic": (X[:, 0] + rng.logistic(size=60) > 0).astype(int),
        "poisson": rng.poisson(np.exp(0.5 * X[:, 0])),
    }[kind]
    table = pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y, "site": np.arange(60) % 3})
    near = table.with_columns(pl.col("a") + 1e-6 * pl.Series("c", rng.standard_normal(60)))
    near = table.with_columns(c=near["a"])
    found = fit(near, "y", "site", model=kind, compare_local=False)
    assert {c.standard_error for c in found.coefficients} == {None}
    assert any("'a', 'c'" in note or "'c', 'a'" in note for note in found.notes)
    apart = table.with_columns(c=table["a"] + 1e3 * (near["c"] - table["a"]))
    found = fit(apart, "y", "site", model=kind, compare_local=False)
    A = sm.add_constant(apart.select("a", "b", "c").to_numpy())
    A = A[:, [1, 2, 3, 0]]
    law = {"logistic": sm.families.Binomial(), "poisson": sm.families.Poisson()}.get(kind)
    told = sm.GLM(y, A, family=law).fit(tol=1e-14) if law else sm.OLS(y, A).fit()
    np.testing.assert_allclose(numbers(found, "standard_error"), told.bse, rtol=1e-6)


def test_a_run_that_diverges_gives_no_model():
    with (
        pytest.warns(UserWarning, match="above the stable bound"),
        pytest.raises(ValueError, match="algorithm: GradientDescent diverged"),
    ):
        fit(diabetes(), "target", "site", algorithm=accord.GradientDescent(step_size=1e3))


def test_a_validation_tells_where_its_fits_fall_short():
    table = diabetes()
    short = accord.leave_one_out(table, "target", "site", algorithm=accord.PDMM(), max_rounds=3)
    assert all("after 3 rounds" in c.note for c in short.clients)
    assert not any(c.note for c in accord.leave_one_out(table, "target", "site").clients)
    twice = table.with_columns((2 * pl.col("bmi") + 1).alias("twice"))
    with pytest.raises(ValueError, match="linearly dependent"):
        accord.leave_one_out(twice, "target", "site")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"threshold": -1.0}, "threshold: got -1.0"),
        ({"threshold": 5.0}, "threshold: got 5 with the model 'linear'"),
        ({"max_rounds": 2.5}, "max_rounds: got 2.5"),
        ({"intercept": "no"}, "intercept: got 'no'"),
        ({"standardise": None}, "standardise: got None"),
    ],
)
def test_options_are_refused_by_their_names(options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        fit(diabetes(), "target", "site", **options)


def test_an_estimator_with_its_defaults_is_scikit_learns():
    X, y = datasets.load_diabetes(return_X_y=True)
    found = accord.FederatedLasso().fit(X, y, groups=np.arange(len(y)) % 5)
    pooled_fit = linear_model.Lasso(found.l1, tol=1e-12, max_iter=10**6).fit(X, y)
    np.testing.assert_allclose(found.coef_, pooled_fit.coef_, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("some", [False, True])
def test_separable_classes_are_named(some):
    table = diabetes().with_columns((pl.col("target") > 140).alias("worse"))
    told = pl.col("worse") & (pl.col("age") > 50) if some else pl.col("worse")
    table = table.with_columns(told.cast(float).alias("oracle")).drop("target")
    with pytest.raises(ValueError, match="no finite fit exists: 'oracle' can tell"):
        fit(table, "worse", "site")
    assert fit(table, "worse", "site", l2=1e-2).status.name == "converged"


def test_a_hospital_whose_women_are_all_ill_has_no_finite_fit():
    # The curvature towards infinity is lost to rounding before the gradient is: the fit seems to end.
    table = fetched("heart").filter(pl.col("dataset") == "Switzerland")
    features = ["age", "sex", "cp", "trestbps", "thalch", "exang", "oldpeak"]
    with pytest.raises(ValueError, match=r"no finite fit exists: .*'sex'"):
        fit(table, "disease", "dataset", features=features, missing="mean")


def test_local_models_are_those_of_each_client_alone():
    table = diabetes()
    features = ["age", "bmi", "bp"]
    found = fit(table, "target", "site", features=features)
    rows = table.filter(pl.col("site") == "site 3")
    X, y = design(rows, features), rows["target"].to_numpy()
    residual = y - X @ np.linalg.lstsq(X, y)[0]
    alone = {s.client: s for s in found.sites}["site 3"]
    assert alone.local_loss == pytest.approx(0.5 * (residual**2).mean(), rel=1e-6)
    joint = y - X @ numbers(found, "estimate")
    assert alone.loss == pytest.approx(0.5 * (joint**2).mean(), rel=1e-9)
    assert alone.score == pytest.approx(1 - (joint**2).sum() / ((y - y.mean()) ** 2).sum())


def test_leaving_a_client_out_is_a_fit_without_it():
    table = diabetes()
    features = ["age", "bmi", "bp"]
    found = leave_one_out(table, "target", "site", features=features)
    for held in found.clients:
        others = table.filter(pl.col("site") != held.client)
        rows = table.filter(pl.col("site") == held.client)
        x = np.linalg.lstsq(design(others, features), others["target"].to_numpy())[0]
        residual = rows["target"].to_numpy() - design(rows, features) @ x
        assert held.loss == pytest.approx(0.5 * (residual**2).mean(), rel=1e-8)
    assert found.loss == pytest.approx(
        sum(h.loss * h.rows for h in found.clients) / table.height, rel=1e-12
    )


def test_a_category_of_one_client_is_the_baseline_when_it_is_left_out():
    table = diabetes(3)
    rare = pl.when(pl.col("site") == "site 0").then(pl.lit("only here")).otherwise(pl.lit("b"))
    mixed = pl.when(pl.int_range(pl.len()) % 3 == 0).then(pl.lit("a")).otherwise(rare)
    found = leave_one_out(
        table.with_columns(mixed.alias("kind")), "target", "site", features=["bmi", "kind"]
    )
    assert all(np.isfinite(h.loss) for h in found.clients)


def test_a_class_of_one_client_cannot_be_predicted_by_the_others():
    table = diabetes(3).with_columns(
        pl.when(pl.col("site") == "site 0").then(pl.lit("c"))
        .when(pl.col("bmi") + pl.col("age") % 7 > 28).then(pl.lit("a")).otherwise(pl.lit("b"))
        .alias("kind")
    )  # fmt: skip
    joint = fit(table, "kind", "site", features=["bmi", "bp"], l2=1e-2)
    assert joint.model.classes == ["a", "b", "c"]
    found = leave_one_out(table, "kind", "site", features=["bmi", "bp"], l2=1e-2)
    notes = {h.client: h.note for h in found.clients}
    assert "class that no client had" in notes["site 0"]
    assert notes["site 1"] == ""


def test_differences_are_those_of_the_clients_gradients():
    table = diabetes()
    features = ["age", "bmi", "bp"]
    found = describe(table, "target", "site", features=features)
    X = design(table, features)
    X[:, :-1] = (X[:, :-1] - X[:, :-1].mean(0)) / X[:, :-1].std(0)
    y = table["target"].to_numpy()
    residual = X @ np.linalg.lstsq(X, y)[0] - y
    rows = X * residual[:, None]
    names = table["site"].to_numpy()
    pulls = [np.linalg.norm(rows[names == n].mean(0)) for n in sorted(set(names))]
    np.testing.assert_allclose(found.differences.pulls, pulls, rtol=1e-7)
    assert found.differences.dissimilarity == pytest.approx(max(pulls), rel=1e-7)
    values = np.linalg.eigvalsh(X.T @ X / len(y))
    assert found.differences.condition >= values[-1] / values[0]


def test_rows_dealt_at_random_pull_as_chance_does():
    table = diabetes()
    rng = np.random.default_rng(0)
    spreads = []
    for _ in range(12):
        dealt = table.with_columns(pl.Series("site", rng.integers(0, 12, table.height)))
        spreads.append(describe(dealt, "target", "site", features=["bmi", "bp"]).differences.spread)
    assert np.mean(np.square(spreads)) == pytest.approx(1, abs=0.15)
    ordered = table.sort("bmi").with_columns(pl.Series("site", np.arange(442) // 37))
    assert describe(ordered, "target", "site", features=["bp"]).differences.spread > 2


def test_the_fields_of_statistics_add_up():
    rng = np.random.default_rng(0)
    from accord.analysis.families import FAMILIES

    X, x = rng.standard_normal((90, 3)), rng.standard_normal(3)
    y = X @ x + rng.standard_normal(90) + 5
    whole = site_statistics(FAMILIES["linear"], x, X, y, False, 1.0)
    parts = [
        site_statistics(FAMILIES["linear"], x, X[a:b], y[a:b], False, 1.0)
        for a, b in ((0, 1), (1, 40), (40, 90), (90, 90))
    ]
    together = pooled(parts)
    assert together == pytest.approx(whole, rel=1e-12)


def test_fields_of_a_fit_are_told():
    names = {f.name for f in dataclasses.fields(type(fit(diabetes(), "target", "site")))}
    assert names >= {"model", "coefficients", "sites", "notes", "solution"}
