"""The compiled engine against plain NumPy references of every method, round by round."""

from functools import cache
from typing import NamedTuple

import jax
import numpy as np
import pytest

import accord
import numpy_reference as ref

ROUNDS, TOLERANCE, SEED = 25, 1e-10, 5
KINDS, WEIGHTS = ("least_squares", "logistic"), ("rows", "equal")


class Case(NamedTuple):
    """A problem and the same in NumPy: clients, weights w, start x0, smoothness L."""

    problem: accord.problems.Problem
    clients: list
    w: np.ndarray
    x0: np.ndarray
    L: float


def build(kind, weights):
    """The case of a loss and a choice of weights."""
    clients = ref.heterogeneous(kind)
    rows = accord.Clients.from_arrays([(f.A, f.y) for f in clients])
    problem = getattr(accord.problems, kind)(rows, l2=ref.L2, weights=weights)
    sizes, m = np.array(ref.SIZES[kind], float), len(clients)
    w = sizes / sizes.sum() if weights == "rows" else np.full(m, 1 / m)
    x0 = np.random.default_rng(2).normal(size=ref.FEATURES)
    return Case(problem, clients, w, x0, max(f.smoothness() for f in clients))


@pytest.fixture(scope="module", params=[(k, w) for k in KINDS for w in WEIGHTS], ids="-".join)
def case(request):
    return build(*request.param)


@pytest.fixture(scope="module", params=WEIGHTS)
def squares(request):
    """Least squares alone, for plumbing that does not look at the loss."""
    return build("least_squares", request.param)


@pytest.fixture(scope="module")
def logistic():
    return build("logistic", "rows")


@pytest.fixture(scope="module")
def mask():
    """Who is heard: a few clients a round, the last client not before round 7."""
    heard = np.random.default_rng(8).uniform(size=(ROUNDS, 6)) < 0.4
    heard[:6, -1] = False
    heard[~heard.any(1), 1] = True
    return heard


def run(case, algorithm, **options):
    """The engine's run, from the case's start."""
    options |= {"seed": SEED, "x0": case.x0, "record": ("x",), "reference": False}
    return accord.run(algorithm, case.problem, ROUNDS, **options)


def assert_equal(actual, expected):
    """Every round's model agrees, and the models do move."""
    assert actual.shape == expected.shape == (ROUNDS, ref.FEATURES)
    assert np.ptp(expected, axis=0).max() > 1e-3
    assert np.abs(actual - expected).max() <= TOLERANCE


def iterations(run):
    """T of every round, from the running total that the engine reports."""
    return np.diff(run.history["iterations"], prepend=0)


def minibatches(case):
    """3 rows as the engine draws them: keys folded by round, client and the places that follow."""
    return lambda r, i, *place: _drawn((SEED, r, i, *place), len(case.clients[i].y))


@cache
def _drawn(path, rows):
    with jax.enable_x64(True):
        return np.asarray(_draw(path, rows))


@jax.jit
def _draw(path, rows):
    key = jax.random.key(path[0])
    for part in path[1:]:
        key = jax.random.fold_in(key, part)
    return jax.random.randint(key, (3,), 0, rows)


def test_objectives(case):
    """Values, gradients, weights and the optimum are those of the formulas."""
    for x in (case.x0, -2 * case.x0):
        values = [f.value(x) for f in case.clients]
        gradients = np.array([f.grad(x) for f in case.clients])
        assert abs(case.problem.objective(x) - case.w @ values) <= 1e-12
        assert np.abs(case.problem.client_gradients(x) - gradients).max() <= 1e-12
        assert np.abs(case.problem.gradient(x) - case.w @ gradients).max() <= 1e-12
    assert np.abs(case.problem.weights - case.w).max() <= 1e-15
    assert np.abs(case.problem.reference().x - ref.solve(case.clients, case.w)).max() <= TOLERANCE


@pytest.mark.parametrize("step", [0.7, 1.6])
def test_gradient_descent(case, step):
    eta = step / case.L
    expected = ref.gradient_descent(case.clients, case.w, case.x0, ROUNDS, eta)
    assert_equal(run(case, accord.GradientDescent(eta)).xs, expected)


@pytest.mark.parametrize(("step", "K"), [(0.9, 1), (0.6, 4)])
def test_fedavg(case, step, K):
    eta = step / case.L
    expected = ref.fedavg(case.clients, case.w, case.x0, ROUNDS, eta, K)
    assert_equal(run(case, accord.FedAvg(K, eta)).xs, expected)


@pytest.mark.parametrize(("step", "K", "penalty"), [(0.5, 3, 0.8), (0.8, 5, 0.07), (0.8, 5, 0.0)])
def test_fedprox(case, step, K, penalty):
    eta, rho = step / case.L, penalty * case.L
    expected = ref.fedprox(case.clients, case.w, case.x0, ROUNDS, eta, K, rho)
    assert_equal(run(case, accord.FedProx(K, eta, rho)).xs, expected)


@pytest.mark.parametrize(
    ("step", "K", "server_step"), [(0.9, 1, 1.0), (0.6, 4, 0.8), (0.3, 7, 1.2)]
)
def test_scaffold(case, step, K, server_step):
    eta = step / case.L
    expected = ref.scaffold(case.clients, case.w, case.x0, ROUNDS, eta, K, server_step)
    assert_equal(run(case, accord.SCAFFOLD(K, eta, server_step)).xs, expected)


@pytest.mark.parametrize("penalty", [0.03, 0.45, 2.2])
def test_exact_methods(case, penalty):
    """ADMM, FedPD without skips, FedDyn, PDMM and FedSplit, each from its own equations."""
    rho = penalty * case.L
    problem = case.clients, case.w, case.x0
    admm = ref.admm(*problem, ROUNDS, rho)
    assert_equal(run(case, accord.ADMM(rho)).xs, admm)
    fedpd = ref.fedpd(*problem, [1] * ROUNDS, rho, ref.ExactOracle())
    assert_equal(run(case, accord.FedPD(rho)).xs, fedpd)
    assert_equal(run(case, accord.FedDyn(rho)).xs, ref.feddyn(*problem, ROUNDS, rho))
    assert_equal(run(case, accord.FedSplit(rho)).xs, ref.fedsplit(*problem, ROUNDS, rho))
    assert np.abs(admm - ref.fedsplit(*problem, ROUNDS, rho)).max() > 1e-3


@pytest.mark.parametrize(("penalty", "relaxation"), [(0.2, 1.0), (0.2, 0.7), (0.9, 0.35)])
def test_pdmm(case, penalty, relaxation):
    rho = penalty * case.L
    expected = ref.pdmm(case.clients, case.w, case.x0, ROUNDS, rho, relaxation)
    assert_equal(run(case, accord.PDMM(rho, relaxation)).xs, expected)


@pytest.mark.parametrize("name", ["GradientDescent", "Linearised"])
@pytest.mark.parametrize(("step", "K", "penalty"), [(0.25, 3, 2.5), (0.6, 4, 0.4)])
def test_fedpd_with_gradient_steps(case, name, step, K, penalty):
    eta, rho = step / case.L, penalty * case.L
    oracle = {"GradientDescent": ref.GradientOracle, "Linearised": ref.LinearisedOracle}[name]
    expected = ref.fedpd(case.clients, case.w, case.x0, [1] * ROUNDS, rho, oracle(K, eta))
    actual = run(case, accord.FedPD(rho, getattr(accord.oracles, name)(K, eta)))
    assert_equal(actual.xs, expected)


@pytest.mark.parametrize("skip", [0.4, 0.75])
def test_fedpd_skips(case, skip):
    """One coin for all clients: T local iterations between two communications."""
    rho = 0.6 * case.L
    actual = run(case, accord.FedPD(rho, skip_probability=skip))
    counts = iterations(actual)
    assert counts.min() == 1 and counts.max() > 2
    expected = ref.fedpd(case.clients, case.w, case.x0, counts, rho, ref.ExactOracle())
    assert_equal(actual.xs, expected)


def test_fedpd_skips_with_gradient_steps(case):
    rho, eta = 2.5 * case.L, 0.25 / case.L
    oracle = accord.oracles.GradientDescent(2, eta)
    actual = run(case, accord.FedPD(rho, oracle, skip_probability=0.4))
    counts = iterations(actual)
    assert counts.min() == 1 and counts.max() > 2
    expected = ref.fedpd(case.clients, case.w, case.x0, counts, rho, ref.GradientOracle(2, eta))
    assert_equal(actual.xs, expected)


def test_fedpd_stops_skipping(squares):
    """A skip probability that falls to zero at iteration 30."""
    rho = 0.6 * squares.L
    actual = run(squares, accord.FedPD(rho, skip_probability=accord.LinearDecay(30)))
    counts = iterations(actual)
    after = np.flatnonzero(np.cumsum(counts) >= 30)
    assert counts.max() > 2 and (counts[after[0] + 1 :] == 1).all()
    problem = squares.clients, squares.w, squares.x0
    assert_equal(actual.xs, ref.fedpd(*problem, counts, rho, ref.ExactOracle()))


@pytest.mark.parametrize("start", ["dual", "primal", "warm"])
@pytest.mark.parametrize(("step", "K", "penalty"), [(0.7, 1, 0.3), (0.4, 5, 1.1)])
def test_inexact_fedsplit(case, start, step, K, penalty):
    eta, rho = step / case.L, penalty * case.L
    expected = ref.inexact_fedsplit(case.clients, case.w, case.x0, ROUNDS, eta, K, rho, start)
    assert_equal(run(case, accord.InexactFedSplit(K, eta, rho, start)).xs, expected)


@pytest.mark.parametrize("name", ["GPDMM", "AGPDMM"])
@pytest.mark.parametrize(("step", "K", "penalty"), [(0.9, 1, 0.6), (0.7, 4, 0.15), (1.0, 3, 1.7)])
def test_linearised_methods(case, name, step, K, penalty):
    """Penalties that are not 1/(K eta); the reference keeps the duals at the server."""
    eta, rho = step / case.L, penalty * case.L
    method = {"GPDMM": ref.gpdmm, "AGPDMM": ref.agpdmm}[name]
    expected = method(case.clients, case.w, case.x0, ROUNDS, eta, K, rho)
    assert_equal(run(case, accord.REGISTRY[name](K, eta, rho)).xs, expected)


@pytest.mark.parametrize(("step", "probability"), [(0.9, 0.35), (0.5, 1.0)])
def test_scaffnew(case, step, probability):
    eta = step / case.L
    actual = run(case, accord.Scaffnew(eta, probability))
    counts = iterations(actual)
    assert counts.min() == 1 and (counts.max() > 2) == (probability < 1)
    expected = ref.scaffnew(case.clients, case.w, case.x0, counts, eta, probability)
    assert_equal(actual.xs, expected)


PARTIAL = {
    "GradientDescent": (
        lambda L: accord.GradientDescent(0.4 / L),
        lambda p, L, heard: ref.gradient_descent(*p, ROUNDS, 0.4 / L, heard),
    ),
    "FedAvg": (
        lambda L: accord.FedAvg(4, 0.6 / L),
        lambda p, L, heard: ref.fedavg(*p, ROUNDS, 0.6 / L, 4, heard),
    ),
    "FedProx": (
        lambda L: accord.FedProx(3, 0.5 / L, 0.8 * L),
        lambda p, L, heard: ref.fedprox(*p, ROUNDS, 0.5 / L, 3, 0.8 * L, heard),
    ),
    "SCAFFOLD": (
        lambda L: accord.SCAFFOLD(4, 0.3 / L, 0.8),
        lambda p, L, heard: ref.scaffold(*p, ROUNDS, 0.3 / L, 4, 0.8, heard),
    ),
    "ADMM": (
        lambda L: accord.ADMM(0.45 * L),
        lambda p, L, heard: ref.admm(*p, ROUNDS, 0.45 * L, heard),
    ),
    "FedPD": (
        lambda L: accord.FedPD(2.5 * L, accord.oracles.GradientDescent(2, 0.25 / L)),
        lambda p, L, heard: ref.fedpd(
            *p, [1] * ROUNDS, 2.5 * L, ref.GradientOracle(2, 0.25 / L), heard
        ),
    ),
    "PDMM": (
        lambda L: accord.PDMM(0.2 * L, 0.7),
        lambda p, L, heard: ref.pdmm(*p, ROUNDS, 0.2 * L, 0.7, heard),
    ),
    "FedSplit": (
        lambda L: accord.FedSplit(0.2 * L),
        lambda p, L, heard: ref.fedsplit(*p, ROUNDS, 0.2 * L, heard),
    ),
    "InexactFedSplit": (
        lambda L: accord.InexactFedSplit(3, 0.5 / L, 0.3 * L, "warm"),
        lambda p, L, heard: ref.inexact_fedsplit(*p, ROUNDS, 0.5 / L, 3, 0.3 * L, "warm", heard),
    ),
    "GPDMM": (
        lambda L: accord.GPDMM(4, 0.7 / L, 0.15 * L),
        lambda p, L, heard: ref.gpdmm(*p, ROUNDS, 0.7 / L, 4, 0.15 * L, heard),
    ),
    "AGPDMM": (
        lambda L: accord.AGPDMM(4, 0.7 / L, 0.15 * L),
        lambda p, L, heard: ref.agpdmm(*p, ROUNDS, 0.7 / L, 4, 0.15 * L, heard),
    ),
    "FedDyn": (
        lambda L: accord.FedDyn(0.45 * L),
        lambda p, L, heard: ref.feddyn(*p, ROUNDS, 0.45 * L, heard),
    ),
}
"""The algorithm for a smoothness L, and its reference given (clients, w, x0), L and heard."""


def check_partial(case, mask, name):
    algorithm, reference = PARTIAL[name]
    actual = run(case, algorithm(case.L), participation=mask).xs
    assert_equal(actual, reference((case.clients, case.w, case.x0), case.L, mask))


@pytest.mark.parametrize("name", PARTIAL)
def test_partial_participation(squares, mask, name):
    """A given schedule of who is heard, with a client that is not heard before round 7."""
    check_partial(squares, mask, name)


@pytest.mark.parametrize("name", ["SCAFFOLD", "PDMM"])
def test_partial_participation_of_logistic_clients(logistic, mask, name):
    check_partial(logistic, mask, name)


MINIBATCH = {
    "FedAvg": (
        lambda L: accord.FedAvg(3, 0.5 / L, 3),
        lambda p, L, rows: ref.fedavg(*p, ROUNDS, 0.5 / L, 3, rows=rows),
    ),
    "FedProx": (
        lambda L: accord.FedProx(3, 0.5 / L, 0.8 * L, 3),
        lambda p, L, rows: ref.fedprox(*p, ROUNDS, 0.5 / L, 3, 0.8 * L, rows=rows),
    ),
    "SCAFFOLD": (
        lambda L: accord.SCAFFOLD(3, 0.3 / L, 0.8, 3),
        lambda p, L, rows: ref.scaffold(*p, ROUNDS, 0.3 / L, 3, 0.8, rows=rows),
    ),
    "InexactFedSplit": (
        lambda L: accord.InexactFedSplit(3, 0.5 / L, 0.3 * L, "primal", 3),
        lambda p, L, rows: ref.inexact_fedsplit(
            *p, ROUNDS, 0.5 / L, 3, 0.3 * L, "primal", rows=rows
        ),
    ),
    "GPDMM": (
        lambda L: accord.GPDMM(3, 0.5 / L, 0.4 * L, 3),
        lambda p, L, rows: ref.gpdmm(*p, ROUNDS, 0.5 / L, 3, 0.4 * L, rows=rows),
    ),
    "AGPDMM": (
        lambda L: accord.AGPDMM(3, 0.5 / L, 0.4 * L, 3),
        lambda p, L, rows: ref.agpdmm(*p, ROUNDS, 0.5 / L, 3, 0.4 * L, rows=rows),
    ),
}
"""The algorithm for a smoothness L, and its reference given (clients, w, x0), L and rows."""


@pytest.mark.parametrize("name", MINIBATCH)
def test_minibatches(logistic, name):
    """Minibatches of 3 rows, with replacement, from each client's own true rows."""
    algorithm, reference = MINIBATCH[name]
    problem = logistic.clients, logistic.w, logistic.x0
    expected = reference(problem, logistic.L, minibatches(logistic))
    assert_equal(run(logistic, algorithm(logistic.L)).xs, expected)


@pytest.mark.parametrize("form", ["gradient", "linearised"])
def test_fedpd_with_minibatches(squares, form):
    """The SGD oracle in both forms, with skipped communications."""
    eta, rho = 0.25 / squares.L, 2.5 * squares.L
    oracle = {"gradient": ref.GradientOracle, "linearised": ref.LinearisedOracle}[form](2, eta)
    sgd = accord.oracles.SGD(3, 2, eta, form)
    actual = run(squares, accord.FedPD(rho, sgd, skip_probability=0.4))
    problem = squares.clients, squares.w, squares.x0
    expected = ref.fedpd(*problem, iterations(actual), rho, oracle, rows=minibatches(squares))
    assert_equal(actual.xs, expected)


@pytest.mark.parametrize("interval", [1, 3])
def test_fedpd_with_variance_reduction(squares, interval):
    """Oracle II: the estimate is carried from one iteration to the next, through skips too."""
    eta, rho = 0.4 / squares.L, 1.5 * squares.L
    reduced = accord.oracles.VarianceReduced(3, interval, 2, eta)
    actual = run(squares, accord.FedPD(rho, reduced, skip_probability=0.4))
    problem = squares.clients, squares.w, squares.x0
    oracle = ref.VarianceReducedOracle(2, eta, interval)
    expected = ref.fedpd(*problem, iterations(actual), rho, oracle, rows=minibatches(squares))
    assert_equal(actual.xs, expected)
