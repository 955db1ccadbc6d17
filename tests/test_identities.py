"""Identities between the methods and known numbers, on clients that differ, in float64."""

import numpy as np
import pytest

import accord
import numpy_reference as ref
from accord.engines import Star, make_job

ROUNDS = 25


@pytest.fixture(scope="module", params=["least_squares", "logistic"])
def case(request):
    """(problem, the same in NumPy, start, L) with clients of different sizes and optima."""
    clients = ref.heterogeneous(request.param, seed=17)
    rows = accord.Clients.from_arrays([(f.A, f.y) for f in clients])
    problem = getattr(accord.problems, request.param)(rows, l2=ref.L2)
    x0 = np.random.default_rng(4).normal(size=ref.FEATURES)
    return problem, clients, x0, max(f.smoothness() for f in clients)


def family(decades):
    """10 clients of 60 x 20 normal entries, scaled over ``decades``, each with its own optimum."""
    rng = np.random.default_rng(3)
    matrices = [rng.standard_normal((60, 20)) for _ in range(10)]
    optima = rng.standard_normal((10, 20))
    scaled = [A * np.logspace(0, -decades, 20) for A in matrices]
    pairs = [(A, A @ own) for A, own in zip(scaled, optima, strict=True)]
    return accord.problems.least_squares(accord.Clients.from_arrays(pairs))


@pytest.fixture(scope="module")
def well_conditioned():
    return family(0)


@pytest.fixture(scope="module")
def ill_conditioned():
    return family(1.5)


def hessians(problem):
    """H_i and b_i of least-squares clients."""
    H = np.array([A.T @ A / len(A) for A, _ in problem.clients])
    return H, np.array([A.T @ y / len(A) for A, y in problem.clients])


def models(algorithm, case, rounds=ROUNDS):
    """The model after every round."""
    problem, _, x0, _ = case
    return accord.run(algorithm, problem, rounds, x0=x0, record=("x",), reference=False).xs


def relative_error(run):
    """||x - x*|| / ||x*|| after every recorded round."""
    return run.history["distance"] / np.linalg.norm(run.problem.reference().x)


def assert_same(a, b, tolerance=1e-12):
    assert np.ptp(a, axis=0).max() > 1e-3
    assert np.abs(a - b).max() <= tolerance


@pytest.mark.parametrize("penalty", [0.15, 0.9])
def test_pdmm_is_fedsplit_is_feddr_2(case, penalty):
    problem, clients, x0, L = case
    pdmm = models(accord.PDMM(penalty * L, 1.0), case)
    assert_same(models(accord.FedSplit(penalty * L), case), pdmm)
    assert_same(ref.feddr(clients, problem.weights, x0, ROUNDS, penalty * L, 2), pdmm)


@pytest.mark.parametrize("penalty", [0.15, 0.9])
def test_fedpd_is_admm_is_feddyn_is_feddr_1(case, penalty):
    problem, clients, x0, L = case
    fedpd = models(accord.FedPD(penalty * L), case)
    assert_same(models(accord.ADMM(penalty * L), case), fedpd)
    assert_same(models(accord.FedDyn(penalty * L), case), fedpd)
    assert_same(ref.feddr(clients, problem.weights, x0, ROUNDS, penalty * L, 1), fedpd)


@pytest.mark.parametrize("penalty", [0.2, 1.0, 4.0])
def test_agpdmm_of_one_step_is_gradient_descent(case, penalty):
    """With step 2 eta / (1 + rho eta), which is eta at rho = 1/eta."""
    eta = 0.8 / case[-1]
    rho = penalty / eta
    descent = models(accord.GradientDescent(2 * eta / (1 + rho * eta)), case)
    assert_same(models(accord.AGPDMM(1, eta, rho), case), descent)


def test_scaffold_of_one_step_is_gradient_descent(case):
    eta = 0.8 / case[-1]
    descent = models(accord.GradientDescent(eta), case)
    assert_same(models(accord.SCAFFOLD(1, eta), case), descent)


@pytest.mark.parametrize("K", [1, 3, 10])
@pytest.mark.parametrize("penalty", [0.03, 0.5, 5.0])
@pytest.mark.parametrize("step", [0.4, 1.0])
def test_gpdmm_never_raises_its_potential(case, step, penalty, K):
    """V = sum_i w_i [ ||x_i - x*||^2 / (2 eta K) + (rho/4) ||z_i - z_i*||^2 ]."""
    problem, _, x0, L = case
    eta, rho = step / L, penalty * L
    optimum = problem.reference().x
    centres = optimum + problem.client_gradients(optimum) / rho
    star = Star(make_job(accord.GPDMM(K, eta, rho), problem, x0=x0))
    order = np.argsort(np.concatenate([np.asarray(m) for m in star.setup.members]))

    def potential(state):
        x, y = (
            np.concatenate([np.asarray(getattr(bucket, name)) for bucket in state.clients])[order]
            for name in ("x", "upload")
        )
        z = 2 * np.asarray(state.server.x) - y
        near, dual = ((x - optimum) ** 2).sum(1), ((z - centres) ** 2).sum(1)
        return problem.weights @ (near / (2 * eta * K) + 0.25 * rho * dual)

    state = star.init()
    values = [potential(state)]
    for _ in range(60):
        state, _ = star.round(state)
        values.append(potential(state))
    values = np.array(values)
    assert (np.diff(values) <= 1e-13 * values[:-1]).all()
    assert values[-1] < 0.9 * values[0]


def test_many_local_steps_are_an_exact_step(case):
    rho, eta = 0.3 * case[-1], 1 / case[-1]
    exact = models(accord.PDMM(rho, 1.0), case)
    assert_same(models(accord.AGPDMM(2000, eta, rho), case), exact)


def test_average_of_many_local_steps_lags_behind_an_exact_step(well_conditioned):
    """GPDMM sends the mean of its iterates, which comes near the last one only as 1/K."""
    L = accord.theory.constants(well_conditioned).smoothness
    gpdmm = accord.run(accord.GPDMM(2000, 1 / L, 0.2 * L), well_conditioned, 1)
    clients = [ref.LeastSquares(A, y) for A, y in well_conditioned.clients]
    exact = ref.pdmm(clients, well_conditioned.weights, np.zeros(20), 1, 0.2 * L)[0]
    assert 1e-4 < np.abs(gpdmm.x - exact).max() < 5e-4


def settled(problem, K, step_size, penalty):
    """Where inexact FedSplit from z_i settles: x = P_i z_i + q_i for all i, x the mean of z_i."""
    H, b = hessians(problem)
    identity = np.eye(H.shape[1])
    inverses, shifts = [], []
    for H_i, b_i in zip(H, b, strict=True):
        whole = H_i + penalty * identity
        left = np.linalg.matrix_power(identity - step_size * whole, K)
        done = (identity - left) @ np.linalg.inv(whole)
        inverses.append(np.linalg.inv(penalty * done + left))
        shifts.append(inverses[-1] @ done @ b_i)
    return np.linalg.solve(np.mean(inverses, 0) - identity, np.mean(shifts, 0))


@pytest.mark.parametrize(("K", "error"), [(1, 4.2e-1), (3, 1.6e-1), (10, 1.0e-2)])
def test_inexact_fedsplit_from_the_dual_point_is_biased(well_conditioned, K, error):
    """It settles, exactly where the equations say, and off the optimum by about the known error."""
    L = accord.theory.constants(well_conditioned).smoothness
    rho, eta = 0.2 * L, 1 / (1.2 * L)
    run = accord.run(accord.InexactFedSplit(K, eta, rho, "dual"), well_conditioned, 400)
    assert np.abs(run.x - settled(well_conditioned, K, eta, rho)).max() <= 1e-10
    assert 0.5 * error < relative_error(run)[-1] < 2 * error


@pytest.mark.parametrize("start", ["primal", "warm"])
@pytest.mark.parametrize("K", [1, 3, 10])
def test_inexact_fedsplit_from_primal_points_is_exact(well_conditioned, start, K):
    L = accord.theory.constants(well_conditioned).smoothness
    algorithm = accord.InexactFedSplit(K, 1 / (1.2 * L), 0.2 * L, start)
    run = accord.run(algorithm, well_conditioned, 400)
    assert relative_error(run)[-1] <= 1e-15


def rounds_to(run, accuracy=1e-6):
    """The first round at which the relative error is at most ``accuracy``."""
    reached = np.flatnonzero(relative_error(run) <= accuracy)
    return run.history["round"][reached[0]] if len(reached) else None


COUNTS = [
    ("GPDMM", 10, 2906),
    ("AGPDMM", 10, 1575),
    ("SCAFFOLD", 10, 1939),
    ("GPDMM", 30, 973),
    ("AGPDMM", 30, 518),
    ("SCAFFOLD", 30, 655),
    ("GPDMM", 70, 436),
    ("AGPDMM", 70, 414),
    ("SCAFFOLD", 70, 815),
]


@pytest.mark.parametrize(("name", "K", "count"), COUNTS)
def test_rounds_of_gradient_methods(ill_conditioned, name, K, count):
    """eta = 1/L and rho = 1/(K eta), to a relative error of 1e-6."""
    eta = 1 / accord.theory.constants(ill_conditioned).smoothness
    penalty = {} if name == "SCAFFOLD" else {"penalty": 1 / (K * eta)}
    algorithm = accord.REGISTRY[name](local_steps=K, step_size=eta, **penalty)
    assert rounds_to(accord.run(algorithm, ill_conditioned, count + 10)) == count


def test_rounds_of_exact_pdmm(ill_conditioned):
    """At the penalty sqrt(L mu) and without relaxation, which are the defaults."""
    H, _ = hessians(ill_conditioned)
    spectra = np.linalg.eigvalsh(H)
    run = accord.run(accord.PDMM(), ill_conditioned, 440)
    assert spectra.max() / spectra.min() == pytest.approx(5353, abs=0.5)
    assert run.algorithm.penalty == pytest.approx(np.sqrt(spectra.max() * spectra.min()))
    assert run.algorithm.relaxation == 1
    assert rounds_to(run) == 429


def test_communications_of_scaffnew(ill_conditioned):
    """At the communication probability 1/sqrt(kappa), which is the default."""
    run = accord.run(accord.Scaffnew(), ill_conditioned, 860)
    assert run.algorithm.communication_probability == pytest.approx(1 / np.sqrt(5353), rel=1e-4)
    assert rounds_to(run) == 851
