"""The scikit-learn estimators: scikit-learn's own checks, and its own coefficients, on any clients."""

import os
import pickle
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import sklearn
from sklearn import linear_model
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import accord
from accord.engines.star import compiled_programs

REGRESSORS = (
    "FederatedLinearRegression",
    "FederatedRidge",
    "FederatedLasso",
    "FederatedElasticNet",
    "FederatedPoissonRegressor",
)
ESTIMATORS = (*REGRESSORS, "FederatedLogisticRegression")

CHECKS = """
import sys, warnings, accord
from sklearn.exceptions import SkipTestWarning
from sklearn.utils.estimator_checks import check_estimator
warnings.simplefilter("error", SkipTestWarning)
for name in sys.argv[1:]:
    results = check_estimator(getattr(accord, name)())
    passed = [r for r in results if r["status"] == "passed"]
    print(name, len(passed), len(results), flush=True)
"""


@pytest.fixture(scope="module")
def checks():
    """What scikit-learn's checks say, in two processes: the array API is asked for before SciPy starts,
    and programs that run for milliseconds are compiled in a hurry.
    """
    settings = {"SCIPY_ARRAY_API": "1", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
    halves = ESTIMATORS[:4], ESTIMATORS[4:]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", CHECKS, *names],
            env=os.environ | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for names in halves
    ]
    told = [process.communicate() for process in running]
    return "".join(out for out, _ in told), "".join(err[-3000:] for _, err in told)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_scikit_learns_checks(checks, name):
    counted = re.search(rf"^{name} (\d+) (\d+)$", checks[0], re.M)
    assert counted, checks[1]
    assert counted[1] == counted[2]
    assert int(counted[2]) >= 50


def standardised(loader):
    X, y = loader(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def owners(rows, m=3, seed=0):
    """Clients of very different sizes."""
    return np.random.default_rng(seed).choice(m, rows, p=np.arange(1, m + 1) / (m * (m + 1) / 2))


def assert_same(ours, theirs, tolerance=1e-7):
    w, v = np.atleast_2d(ours.coef_), np.atleast_2d(theirs.coef_)
    assert w.shape == v.shape
    assert abs(w - v).max() <= tolerance * abs(v).max()
    b, c = np.atleast_1d(ours.intercept_), np.atleast_1d(theirs.intercept_)
    assert abs(b - c).max() <= tolerance * max(abs(c).max(), abs(v).max())


SETS = {
    "diabetes": load_diabetes,
    "breast": load_breast_cancer,
    "wine": load_wine,
    "digits": load_digits,
}


@pytest.mark.parametrize("name", SETS)
def test_linear_models_are_scikit_learns(name):
    X, y = standardised(SETS[name])
    n, sites = len(y), owners(len(y))
    exact = {"tol": 1e-15, "max_iter": 10**6}
    pairs = [
        (accord.FederatedLinearRegression(), linear_model.LinearRegression()),
        (accord.FederatedRidge(l2=0.1), linear_model.Ridge(alpha=0.1 * n)),
        (accord.FederatedLasso(l1=0.02), linear_model.Lasso(0.02, **exact)),
        (
            accord.FederatedElasticNet(l1=0.02, l2=0.03),
            linear_model.ElasticNet(0.05, l1_ratio=0.4, **exact),
        ),
    ]
    for ours, theirs in pairs:
        assert_same(ours.fit(X, y, groups=sites), theirs.fit(X, y))
        assert ours.status_.name == "converged"
        assert ours.score(X, y) == pytest.approx(theirs.score(X, y), rel=1e-7)


@pytest.mark.parametrize("name", ["breast", "wine", "digits"])
def test_logistic_regression_is_scikit_learns(name):
    X, y = standardised(SETS[name])
    ours = accord.FederatedLogisticRegression(l2=0.01).fit(X, y, groups=owners(len(y)))
    theirs = linear_model.LogisticRegression(
        C=1 / (0.01 * len(y)), solver="newton-cg", tol=1e-12, max_iter=10**4
    ).fit(X, y)
    assert_same(ours, theirs)
    assert ours.certificate_.distance <= 1e-7
    assert abs(ours.predict_proba(X) - theirs.predict_proba(X)).max() <= 1e-7
    assert abs(ours.decision_function(X) - theirs.decision_function(X)).max() <= 1e-5
    assert (ours.predict(X) == theirs.predict(X)).all()


def test_unpenalised_logistic_regressions_are_scikit_learns():
    """Two classes and three, which overlap. scikit-learn's softmax is unique up to a shift of classes."""
    X, y = standardised(load_diabetes)
    X = X[:, 2:6]
    for cuts in ([140], [100, 190]):
        labels = np.digitize(y, cuts)
        ours = accord.FederatedLogisticRegression(l2=0).fit(X, labels, groups=owners(len(y)))
        theirs = linear_model.LogisticRegression(
            C=np.inf, solver="newton-cg", tol=1e-12, max_iter=10**4
        ).fit(X, labels)
        if len(cuts) == 2:
            theirs.coef_ = theirs.coef_ - theirs.coef_.mean(0)
            theirs.intercept_ = theirs.intercept_ - theirs.intercept_.mean()
            assert abs(ours.coef_.sum(0)).max() <= 1e-12
        assert_same(ours, theirs)


@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_poisson_regression_is_scikit_learns(l2):
    X, y = load_diabetes(return_X_y=True, scaled=False)
    ours = accord.FederatedPoissonRegressor(l2=l2).fit(X, y, groups=owners(len(y)))
    # Its own solvers stop short of rounding here, with a warning: Newton's method goes on from there.
    theirs = linear_model.PoissonRegressor(alpha=l2, solver="newton-cholesky").fit(X, y)
    Z, ridge = np.column_stack([X, np.ones(len(y))]), l2 * (np.arange(X.shape[1] + 1) < X.shape[1])
    x = np.append(theirs.coef_, theirs.intercept_)
    for _ in range(10):
        rate = np.exp(Z @ x)
        H = (Z.T * rate) @ Z / len(y) + np.diag(ridge)
        units = np.sqrt(np.diag(H))
        slope = Z.T @ (rate - y) / len(y) + ridge * x
        x -= np.linalg.solve(H / np.outer(units, units), slope / units) / units
    theirs.coef_, theirs.intercept_ = x[:-1], x[-1]
    assert_same(ours, theirs)
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y), rel=1e-9)
    assert abs(ours.predict(X) / theirs.predict(X) - 1).max() <= 1e-9


def test_without_an_intercept():
    X, y = load_diabetes(return_X_y=True)
    ours = accord.FederatedRidge(0.1, fit_intercept=False).fit(X, y, groups=owners(len(y)))
    theirs = linear_model.Ridge(0.1 * len(y), fit_intercept=False).fit(X, y)
    assert_same(ours, theirs)
    assert ours.intercept_ == 0.0


def test_the_lassos_support_over_a_path_of_penalties():
    X, y = standardised(load_diabetes)
    sites = owners(len(y))
    largest = abs((y - y.mean()) @ X).max() / len(y)
    sizes, programs = set(), set()
    for l1 in largest * np.geomspace(0.999, 1e-3, 20):
        ours = accord.FederatedLasso(l1).fit(X, y, groups=sites)
        theirs = linear_model.Lasso(l1, tol=1e-15, max_iter=10**6).fit(X, y)
        assert ((ours.coef_ == 0) == (theirs.coef_ == 0)).all()
        assert_same(ours, theirs)
        sizes.add(int((ours.coef_ != 0).sum()))
        programs.add(compiled_programs())
    assert len(sizes) >= 6
    assert len(programs) == 1


def counts(rng, X):
    return rng.poisson(np.exp(X @ np.linspace(-0.4, 0.5, X.shape[1]) + 1))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_groups_and_repeated_rows_do_not_change_the_answer(name):
    """One client, two, a client of one row beside another of one class; weights for repeated rows."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 3)) + np.array([0, 5, -2])
    y = counts(rng, X - [0, 5, -2])
    if name == "FederatedLogisticRegression":
        y = np.array(["few", "many"])[(y > 3).astype(int)]
    model = getattr(accord, name)(**({"l1": 0.05} if name == "FederatedLasso" else {}))
    pooled = clone(model).fit(X, y)
    by_target = np.where(y == y[0], "alike", "others").astype(object)
    by_target[1] = "alone"
    times = rng.integers(0, 4, len(y))
    repeated = clone(model).fit(X.repeat(times, 0), y.repeat(times))
    for groups in (np.arange(40) % 2, by_target):
        ours = clone(model).fit(X, y, groups=groups)
        assert_same(ours, pooled, 1e-9)
        weighted = clone(model).fit(X, y, groups=groups, sample_weight=times)
        assert_same(weighted, repeated, 1e-9)
    assert abs(pooled.coef_ - repeated.coef_).max() > 1e-3


def test_one_row_clients_and_tables():
    import pandas

    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X, y = X.iloc[:60, :4], y.iloc[:60]
    model = accord.FederatedRidge(1e-3)
    pooled = clone(model).fit(X, y)
    alone = model.fit(X, y, groups=pandas.Series(range(60)))
    assert_same(alone, pooled, 1e-9)
    assert list(alone.feature_names_in_) == list(X.columns)
    assert alone.n_features_in_ == 4
    assert alone.history_["uplink_bytes"][-1] == alone.n_iter_ * 60 * 8 * (1 + 5 + 25)


@pytest.mark.parametrize("labels", [[False, True], ["no", "yes"], [3, 7]])
def test_labels_of_any_kind(labels):
    X, y = standardised(load_diabetes)
    codes = (y > 140).astype(int)
    model = accord.FederatedLogisticRegression(0.0, 0.1)
    model.fit(X[:, :3], np.asarray(labels)[codes], groups=codes)
    assert list(model.classes_) == labels
    assert (
        model.predict(X[:, :3]) == np.asarray(labels)[(model.decision_function(X[:, :3]) > 0) * 1]
    ).all()
    assert abs(np.exp(model.predict_log_proba(X[:, :3])).sum(1) - 1).max() <= 1e-12


def test_columns_far_from_zero_lose_no_digits():
    """Columns on a grid that 1e8 leaves intact: the fit at 1e8 is the fit at zero."""
    rng = np.random.default_rng(4)
    X = np.round(rng.standard_normal((90, 3)) * 1024) / 1024
    y = X @ [1.0, -2.0, 0.5] + rng.standard_normal(90)
    far = X + 1e8
    for model, target in (
        (accord.FederatedLinearRegression(), y + 1e8),
        (accord.FederatedLasso(0.1), y),
        (accord.FederatedLogisticRegression(l2=0), y > 0),
    ):
        near = clone(model).fit(X, target if target.dtype == bool else y)
        there = clone(model).fit(far, target)
        assert abs(there.coef_ - near.coef_).max() <= 1e-7 * abs(near.coef_).max()


def test_collinear_columns_get_the_shortest_coefficients():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((50, 3))
    y = X @ [1.0, 2.0, 3.0] + rng.standard_normal(50)
    doubled = np.column_stack([X, X[:, 2]])
    ours = accord.FederatedLinearRegression().fit(doubled, y, groups=np.arange(50) % 3)
    theirs = linear_model.LinearRegression().fit(doubled, y)
    assert ours.status_.name == "converged"
    assert ours.certificate_.distance is None
    assert ours.coef_[2] == pytest.approx(ours.coef_[3], rel=1e-9)
    assert_same(ours, theirs, 1e-9)


def test_separable_classes_have_no_finite_fit():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((50, 2))
    with pytest.warns(ConvergenceWarning, match="classes may be separable.*add l2 > 0") as told:
        model = accord.FederatedLogisticRegression(l2=0).fit(X, X[:, 0] > 0)
    assert len(told) == 1 and "\n" not in str(told[0].message)
    assert model.status_.name == "budget_spent"
    assert model.certificate_.distance is None


def test_too_few_rounds_are_told():
    X, y = standardised(load_breast_cancer)
    with pytest.warns(ConvergenceWarning, match="after 3 rounds"):
        model = accord.FederatedLogisticRegression(max_rounds=3).fit(X[:200, :5], y[:200])
    assert model.n_iter_ == 3


def test_another_algorithm_reaches_the_same_coefficients():
    X, y = standardised(load_diabetes)
    sites = owners(len(y))
    model = accord.FederatedElasticNet(0.05, 0.1)
    newton = clone(model).fit(X, y, groups=sites)
    slow = clone(model).set_params(algorithm=accord.AGPDMM()).fit(X, y, groups=sites)
    assert_same(slow, newton)
    assert slow.n_iter_ > newton.n_iter_


def test_grid_search_with_groups_that_are_folds_and_clients():
    X, y = standardised(load_diabetes)
    sites = np.arange(len(y)) % 6
    grid = [0.1, 1.0, 10.0]
    with sklearn.config_context(enable_metadata_routing=True):
        model = make_pipeline(
            StandardScaler(), accord.FederatedLasso().set_fit_request(groups=True)
        )
        search = GridSearchCV(model, {"federatedlasso__l1": grid}, cv=GroupKFold(3))
        search.fit(X, y, groups=sites)
        lasso = make_pipeline(StandardScaler(), linear_model.Lasso(tol=1e-12, max_iter=10**5))
        reference = GridSearchCV(lasso, {"lasso__alpha": grid}, cv=GroupKFold(3))
        reference.fit(X, y, groups=sites)
        # Every client's message came up: groups reached the estimator.
        fitted = search.best_estimator_[-1]
        per_client = 8 * (1 + 11 + 11**2)
        assert fitted.history_["uplink_bytes"][-1] == fitted.n_iter_ * 6 * per_client
    ours, theirs = (s.cv_results_["mean_test_score"] for s in (search, reference))
    assert abs(ours - theirs).max() <= 1e-8
    assert search.best_params_["federatedlasso__l1"] == reference.best_params_["lasso__alpha"]
    assert cross_val_score(accord.FederatedRidge(), X, y, cv=3).shape == (3,)


def test_clone_and_pickle():
    X, y = standardised(load_diabetes)
    model = accord.FederatedPoissonRegressor(l2=0.5, algorithm=accord.Newton(), tol=1e-6)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    model.fit(X[:, :3], y, groups=owners(len(y)))
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict(X[:, :3]) == model.predict(X[:, :3])).all()
    assert again.certificate_.distance == model.certificate_.distance
    assert list(again.history_) == list(model.history_)


def test_the_certificate_bounds_the_error_in_the_users_units():
    X, y = load_diabetes(return_X_y=True, scaled=False)
    y = y > 140
    rough = accord.FederatedLogisticRegression(l2=1e-3, tol=1e-2).fit(X, y)
    fine = accord.FederatedLogisticRegression(l2=1e-3, tol=1e-9).fit(X, y)
    error = np.append(rough.coef_ - fine.coef_, rough.intercept_ - fine.intercept_)
    assert (abs(error) <= rough.certificate_.coefficients + fine.certificate_.coefficients).all()
    assert 0 < np.linalg.norm(error) <= rough.certificate_.distance + fine.certificate_.distance


def test_the_names_are_lazy():
    code = "import sys, accord; dir(accord); assert 'sklearn' not in sys.modules; accord.FederatedRidge"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert set(ESTIMATORS) <= set(dir(accord)) & set(accord.__all__)
    with pytest.raises(AttributeError, match="FederatedNothing"):
        _ = accord.FederatedNothing


X4, Y4 = np.arange(8.0).reshape(4, 2) ** 1.5, np.array([0.0, 1.0, 1.0, 3.0])

WRONG = {
    "groups shape": (lambda m: m.fit(X4, Y4, groups=["a", "b"]), r"groups: shape \(2,\)"),
    "groups missing": (
        lambda m: m.fit(X4, Y4, groups=np.array(["a", None, "b", "a"], object)),
        "groups: a label is missing",
    ),
    "groups NaN": (
        lambda m: m.fit(X4, Y4, groups=[1.0, np.nan, 1, 2]),
        "groups: a label is missing",
    ),
    "groups mixed": (
        lambda m: m.fit(X4, Y4, groups=np.array(["a", 1, "b", "a"], object)),
        "groups: labels of mixed types",
    ),
    "l2": (lambda m: m.set_params(l2=-1).fit(X4, Y4), "l2: got -1"),
    "tol": (lambda m: m.set_params(tol=0).fit(X4, Y4), "tol: got 0"),
    "max_rounds": (lambda m: m.set_params(max_rounds=0).fit(X4, Y4), "max_rounds: got 0"),
    "weights": (
        lambda m: m.fit(X4, Y4, sample_weight=np.zeros(4)),
        "all weights are zero|at least one non-zero",
    ),
    "algorithm": (lambda m: m.set_params(algorithm=accord.Newton).fit(X4, Y4), "give an instance"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_named(case):
    call, words = WRONG[case]
    with pytest.raises((ValueError, TypeError), match=words) as caught:
        call(accord.FederatedRidge())
    assert "\n" not in str(caught.value)


def test_wrong_targets_are_named():
    with pytest.raises(ValueError, match="one class only"):
        accord.FederatedLogisticRegression().fit(X4, np.ones(4))
    with pytest.raises(ValueError, match="Poisson counts are >= 0"):
        accord.FederatedPoissonRegressor().fit(X4, Y4 - 1)
    with pytest.raises(ValueError, match="all counts are zero"):
        accord.FederatedPoissonRegressor().fit(X4, 0 * Y4)


def test_constant_targets_and_columns():
    X = np.column_stack([np.full(12, 3.3), np.arange(12.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = accord.FederatedLinearRegression().fit(X, np.full(12, 0.1))
        assert abs(model.coef_).max() <= 1e-15
        assert model.intercept_ == pytest.approx(0.1)
        lasso = accord.FederatedLasso(5.0).fit(X, np.arange(12.0) % 3)
    assert (lasso.coef_ == 0).all()
    assert lasso.intercept_ == pytest.approx(1.0)
