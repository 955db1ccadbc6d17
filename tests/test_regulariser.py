"""l1 by the server's proximal step: every method that takes it reaches the minimiser of F + h."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression

import accord
from accord import objectives

WIDTH = 5


def clients(kind="logistic"):
    """Sites that differ in size, in place and in their own optima; two columns say nothing."""
    rng = np.random.default_rng(6)
    pairs = []
    for n in (20, 45, 30):
        A = rng.standard_normal((n, WIDTH)) + 0.4 * rng.standard_normal(WIDTH)
        eta = (
            A @ ([1.5, -1.0, 0.5, 0, 0] * (1 + 0.5 * rng.standard_normal(WIDTH)))
            + rng.standard_normal()
        )
        if kind == "logistic":
            pairs.append((A, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int)))
        else:
            pairs.append((A, eta + rng.standard_normal(n)))
    return accord.Clients.from_arrays(pairs)


@pytest.fixture(scope="module")
def problem():
    return accord.problems.logistic(clients(), l1=0.06, l2=0.02, intercept=True)


@pytest.fixture(scope="module")
def squares():
    return accord.problems.least_squares(clients("squares"), l1=0.3, l2=0.05, intercept=True)


METHODS = {
    "Newton": (accord.Newton(), 20),
    "PDMM": (accord.PDMM(), 1500),
    "FedSplit": (accord.FedSplit(), 1500),
    "InexactFedSplit": (accord.InexactFedSplit(), 3000),
    "ADMM": (accord.ADMM(), 2000),
    "FedPD": (accord.FedPD(), 2000),
    "GPDMM": (accord.GPDMM(), 3000),
    "AGPDMM": (accord.AGPDMM(), 3000),
    "GradientDescent": (accord.GradientDescent(), 6000),
}


def check_reached(run, problem):
    best = problem.reference().x
    assert 0 < (best == 0).sum() < len(best) - 1
    assert run.history["distance"][-1] < 1e-9
    assert (run.x[best == 0] == 0).all()


@pytest.mark.parametrize("name", METHODS)
def test_the_minimiser_with_l1_is_reached(problem, squares, name):
    method, rounds = METHODS[name]
    if name != "FedSplit":  # needs f_i that are strongly convex, which an intercept prevents
        check_reached(accord.run(method, problem, rounds, every=rounds), problem)
    check_reached(accord.run(method, squares, rounds, every=rounds), squares)


@pytest.mark.parametrize("name", ["PDMM", "ADMM", "GPDMM", "AGPDMM", "GradientDescent"])
def test_with_absent_clients_too(problem, name):
    method, rounds = METHODS[name]
    run = accord.run(method, problem, 4 * rounds, participation=0.5, every=4 * rounds)
    check_reached(run, problem)


@pytest.mark.parametrize(
    "method",
    [
        accord.FedAvg(), accord.FedProx(), accord.SCAFFOLD(), accord.Scaffnew(), accord.FedDyn(),
        accord.FedPD(skip_probability=0.3),
    ],
    ids=lambda method: type(method).__name__,
)  # fmt: skip
def test_methods_without_a_proximal_step_refuse(problem, method):
    with pytest.raises(ValueError, match=r"^problem: l1 > 0 wants a proximal step") as refusal:
        accord.run(method, problem, 3)
    assert type(method).__name__ in str(refusal.value) and "\n" not in str(refusal.value)


def test_networks_refuse(problem):
    network = accord.graph.Network.ring(3)
    with pytest.raises(ValueError, match=r"^problem: l1 is met by a server's proximal step"):
        accord.graph.run(accord.graph.PDMM(), network, problem, 3)


@pytest.mark.parametrize("name", ["PDMM", "ADMM", "GPDMM", "GradientDescent"])
def test_the_debug_engine_takes_the_same_steps(squares, name):
    options = {"record": ("x",), "reference": False}
    star, debug = (
        accord.run(METHODS[name][0], squares, 5, engine=engine, **options)
        for engine in ("star", "debug")
    )
    assert abs(star.xs - debug.xs).max() < 1e-12
    for column in ("objective", "gradient_norm"):
        assert star.history[column] == pytest.approx(debug.history[column], rel=1e-10)


def test_the_history_is_that_of_f_and_h(problem):
    """Objective and least subgradient of the whole, in NumPy from all rows."""
    run = accord.run(accord.PDMM(), problem, 30, record=("x",))
    A, y = (np.concatenate(parts) for parts in zip(*clients(), strict=True))
    A = np.column_stack([A, np.ones(len(A))])
    held = np.array([1.0] * WIDTH + [0.0])
    for r, x in enumerate(run.xs):
        eta = A @ x
        smooth = np.mean(np.logaddexp(0, eta) - y * eta) + 0.01 * held @ x**2
        value = smooth + 0.06 * held @ abs(x)
        gradient = A.T @ (1 / (1 + np.exp(-eta)) - y) / len(y) + 0.02 * held * x
        at_zero = np.sign(gradient) * np.maximum(abs(gradient) - 0.06 * held, 0)
        least = np.where(x == 0, at_zero, gradient + 0.06 * held * np.sign(x))
        assert run.history["objective"][r] == pytest.approx(value, rel=1e-12)
        assert run.history["gradient_norm"][r] == pytest.approx(np.linalg.norm(least), abs=1e-12)
    assert (run.xs == 0).any()


@pytest.mark.usefixtures("double_precision")
def test_the_proximal_step():
    """The minimiser of h(y) + (y - x)^2/(2 s), entry by entry as a line search finds it."""
    h = objectives.Lasso(0.7, intercept=True)
    x, step = jnp.asarray([3.0, -0.5, 0.2, -2.0, 0.0, -0.1]), 0.4
    found = np.asarray(h.prox(x, step))
    assert found == pytest.approx([2.72, -0.22, 0.0, -1.72, 0.0, -0.1])
    for k, weight in enumerate([0.7] * 5 + [0.0]):
        best = minimize_scalar(
            lambda y, at=float(x[k]), w=weight: w * abs(y) + (y - at) ** 2 / (2 * step), (-4, 4),
            options={"xtol": 1e-12},
        ).x  # fmt: skip
        assert found[k] == pytest.approx(best, abs=1e-6)
    assert float(h.value(x)) == pytest.approx(0.7 * 5.7)


@pytest.mark.usefixtures("double_precision")
def test_the_least_subgradient_is_the_slope_of_steepest_descent():
    """F'(x; -s) = -||s||^2 for the least subgradient s, as a difference quotient has it."""
    rng = np.random.default_rng(0)
    h = objectives.Lasso(0.5)
    for _ in range(20):
        x = jnp.asarray(rng.standard_normal(6) * rng.integers(0, 2, 6))
        g = jnp.asarray(rng.standard_normal(6))
        s = h.least_subgradient(x, g)
        tiny = 1e-7
        fall = (-tiny * g @ s + h.value(x - tiny * s) - h.value(x)) / tiny
        assert float(fall) == pytest.approx(-float(s @ s), abs=1e-7)


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    X = X / X.std(0)
    order = np.argsort(X[:, 2])  # sites by body mass: as unlike as they come
    parts = np.split(order, [60, 200])
    return X, y, parts


def sites(X, y, parts):
    return accord.Clients.from_arrays([(X[part], y[part]) for part in parts])


def fitted(estimator, X, y):
    with warnings.catch_warnings():
        # It goes on until its last digit, and says that it would have liked to go on.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = estimator.fit(X, y)
    return np.append(model.coef_.ravel(), model.intercept_)


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_scikit_learn_finds_the_same_coefficients(diabetes, l2):
    X, y, parts = diabetes
    for l1 in (0.5, 5.0, 20.0):
        options = {"tol": 1e-14, "max_iter": 200_000}
        estimator = Lasso(l1, **options)
        if l2:
            estimator = ElasticNet(l1 + l2, l1_ratio=l1 / (l1 + l2), **options)
        expected = fitted(estimator, X, y)
        problem = accord.problems.least_squares(sites(X, y, parts), l1=l1, l2=l2, intercept=True)
        found = problem.reference()
        assert abs(found.x - expected).max() < 1e-7
        assert found.unique and ((found.x == 0) == (expected == 0)).all()


def test_scikit_learn_finds_the_same_classifier(diabetes):
    X, y, parts = diabetes
    labels = (y > np.median(y)).astype(int)
    for l1 in (0.01, 0.08):
        estimator = LogisticRegression(
            C=1 / (l1 * len(y)), l1_ratio=1, solver="saga", tol=1e-13, max_iter=20_000
        )
        expected = fitted(estimator, X, labels)
        problem = accord.problems.logistic(sites(X, labels, parts), l1=l1, intercept=True)
        x = problem.reference().x
        assert abs(x - expected).max() < 1e-7
        assert ((x == 0) == (expected == 0)).all()


def test_the_same_support_over_twenty_penalties(diabetes):
    """From the penalty that keeps nothing to one that keeps everything."""
    X, y, parts = diabetes
    largest = abs(X.T @ (y - y.mean())).max() / len(y)
    sizes = []
    for l1 in largest * np.geomspace(1.01, 1e-4, 20):
        expected = fitted(Lasso(l1, tol=1e-13, max_iter=200_000), X, y)
        problem = accord.problems.least_squares(sites(X, y, parts), l1=l1, intercept=True)
        x = accord.run(accord.Newton(), problem, 2, reference=False).x
        assert ((x == 0) == (expected == 0)).all()
        assert abs(x - expected).max() < 1e-6
        sizes.append(int((x[:-1] != 0).sum()))
    assert sizes[0] == 0 and sizes[-1] == X.shape[1] and len(set(sizes)) > 6


@pytest.mark.parametrize("name", ["Newton", "PDMM", "GradientDescent"])
def test_a_penalty_so_large_that_all_is_zero(name):
    rows = clients("squares")
    problem = accord.problems.least_squares(rows, l1=1e3, intercept=True)
    mean = np.concatenate([y for _, y in rows]).mean()
    for x in (problem.reference().x, accord.run(METHODS[name][0], problem, 600, every=600).x):
        assert (x[:-1] == 0).all() and x[-1] == pytest.approx(mean, abs=1e-9)
    nothing = accord.problems.logistic(clients(), l1=1e3).reference()
    assert (nothing.x == 0).all() and nothing.unique


def test_where_there_is_no_minimiser_it_is_said():
    """All labels alike: l1 holds the coefficients, but nothing holds the intercept."""
    rng = np.random.default_rng(0)
    rows = accord.Clients.from_arrays(
        [(rng.standard_normal((9, 2)), np.ones(9, int)) for _ in range(2)]
    )
    for l1 in (0.0, 0.1):
        problem = accord.problems.logistic(rows, l1=l1, intercept=True)
        with pytest.raises(ValueError, match=r"^reference: no minimiser was found"):
            problem.reference()
    held = accord.problems.logistic(rows, l1=0.1).reference()
    assert held.gradient_norm < 1e-12


def test_separable_classes_have_a_minimiser_with_l1():
    rng = np.random.default_rng(1)
    A = rng.standard_normal((40, 3))
    y = (A[:, 0] > 0).astype(int)
    problem = accord.problems.logistic(
        accord.Clients.from_arrays([(A[:15], y[:15]), (A[15:], y[15:])]), l1=1e-3
    )
    run = accord.run(accord.Newton(), problem, 40)
    assert run.history["distance"][-1] < 1e-9


def test_softmax_poisson_and_huber():
    rng = np.random.default_rng(2)
    rows = [rng.standard_normal((n, 3)) + 0.3 * rng.standard_normal(3) for n in (25, 40)]
    cases = {
        "softmax": [rng.integers(0, 3, len(A)) for A in rows],
        "poisson": [rng.poisson(np.exp(0.5 * A[:, 0])) for A in rows],
        "huber": [A[:, 0] + rng.standard_t(2, len(A)) for A in rows],
    }
    for name, targets in cases.items():
        pairs = accord.Clients.from_arrays(list(zip(rows, targets, strict=True)))
        problem = getattr(accord.problems, name)(pairs, l1=0.1, l2=0.01, intercept=True)
        run = accord.run(accord.Newton(), problem, 30)
        best = problem.reference().x
        assert ((run.x == 0) == (best == 0)).all() and (best == 0).any()
        if name == "softmax":  # the intercepts may move together
            best = best - np.outer(np.arange(4) == 3, best[-1] - run.x[-1])
            assert np.ptp((best - run.x)[-1]) < 1e-9
        assert abs(run.x - best).max() < 1e-9


def test_a_column_twice():
    """Many minimisers, one objective: the reference says that it is not the only one, or has zeros."""
    A = np.random.default_rng(4).standard_normal((30, 2))
    A = np.column_stack([A, A[:, 0]])
    y = A @ [1.0, -1.0, 1.0]
    problem = accord.problems.least_squares(
        accord.Clients.from_arrays([(A[:9], y[:9]), (A[9:], y[9:])]), l1=0.1
    )
    best = problem.reference()
    plain = accord.problems.least_squares(
        accord.Clients.from_arrays([(A[:9, :2], y[:9]), (A[9:, :2], y[9:])]), l1=0.1
    ).reference()
    assert best.objective == pytest.approx(plain.objective, abs=1e-12)
    assert best.x[0] + best.x[2] == pytest.approx(plain.x[0], abs=1e-10)
    run = accord.run(accord.Newton(), problem, 3)
    assert run.history["gap"][-1] < 1e-12


@pytest.mark.parametrize("value", [-1.0, np.nan, "much", True])
def test_a_wrong_l1_is_refused(value):
    with pytest.raises(ValueError, match=r"^l1: got .*; accepted is a finite number >= 0"):
        accord.problems.least_squares(clients("squares"), l1=value)
    assert jax.config.jax_enable_x64 is False
