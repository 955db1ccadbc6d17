"""Constants, defaults, skip probability and certificate against independent computations."""

import math

import numpy as np
import pytest

import accord
from accord import oracles
from accord.theory import certificate, constants, dissimilarity, resolve, skip_probability


@pytest.fixture(scope="module")
def clients():
    rng = np.random.default_rng(8)
    pairs = []
    for n in (12, 30, 7):
        X = rng.standard_normal((n, 3)) * [1.0, 0.5, 2.0]
        pairs.append((X, (rng.random(n) < 0.5).astype(int)))
    return accord.Clients.from_arrays(pairs)


def gram(X, ones=False):
    X = np.column_stack([X, np.ones(len(X))]) if ones else X
    return X.T @ X / len(X)


@pytest.mark.parametrize(
    ("make", "factor"),
    [
        (accord.problems.least_squares, 1.0),
        (accord.problems.logistic, 0.25),
        (accord.problems.softmax, 0.5),
        (accord.problems.huber, 1.0),
    ],
)
def test_smoothness_from_the_data(clients, make, factor):
    c = constants(make(clients, l2=0.3))
    expected = [factor * np.linalg.eigvalsh(gram(X))[-1] + 0.3 for X, _ in clients]
    assert c.client_smoothness == pytest.approx(expected, rel=1e-12)
    assert c.smoothness == pytest.approx(max(expected), rel=1e-12)
    assert not c.estimated


def test_strong_convexity(clients):
    c = constants(accord.problems.least_squares(clients, l2=0.3))
    expected = [np.linalg.eigvalsh(gram(X))[0] + 0.3 for X, _ in clients]
    assert c.client_strong_convexity == pytest.approx(expected, rel=1e-10)
    assert constants(accord.problems.logistic(clients, l2=0.3)).strong_convexity == 0.3
    assert (
        constants(accord.problems.logistic(clients, l2=0.3, intercept=True)).strong_convexity == 0
    )


def test_an_unpenalised_intercept_is_not_counted_as_penalised(clients):
    c = constants(accord.problems.least_squares(clients, l2=0.3, intercept=True))
    mask = np.diag([0.3, 0.3, 0.3, 0.0])
    expected = [np.linalg.eigvalsh(gram(X, ones=True) + mask)[0] for X, _ in clients]
    assert c.client_strong_convexity == pytest.approx(expected, rel=1e-10)


def test_global_strong_convexity_where_clients_have_none():
    rng = np.random.default_rng(0)
    pairs = [(rng.standard_normal((2, 4)), rng.standard_normal(2)) for _ in range(6)]
    problem = accord.problems.least_squares(accord.Clients.from_arrays(pairs))
    c = constants(problem)
    pooled = sum(gram(X) for X, _ in pairs) / 6
    assert c.strong_convexity < 1e-12
    assert c.global_strong_convexity == pytest.approx(np.linalg.eigvalsh(pooled)[0], rel=1e-9)
    # Every method with default hyper-parameters still reaches the optimum.
    for algorithm in (accord.PDMM(), accord.GPDMM(), accord.AGPDMM(), accord.SCAFFOLD()):
        run = accord.run(algorithm, problem, 6000, every=6000)
        assert run.history["distance"][-1] < 1e-8, algorithm


def test_estimated_smoothness_is_said_to_be_estimated(clients):
    problem = accord.problems.poisson(clients, l2=0.1)
    c = constants(problem)
    assert c.estimated
    x = problem.reference().x
    true = [
        np.linalg.eigvalsh(X.T @ (np.exp(X @ x)[:, None] * X) / len(X))[-1] + 0.1
        for X, _ in clients
    ]
    assert c.smoothness > max(true)
    run = accord.run(accord.GPDMM(), problem, 3000, every=3000)
    assert run.history["distance"][-1] < 1e-8


def test_the_nonconvex_penalty_bounds_curvature(clients):
    problem = accord.problems.penalised_logistic(clients, penalty=0.5, alpha=2.0)
    c = constants(problem)
    plain = constants(accord.problems.logistic(clients))
    assert c.smoothness == pytest.approx(plain.smoothness + 2 * 0.5 * 2.0)
    assert c.strong_convexity is None
    run = accord.run(accord.FedPD(), problem, 500)
    assert run.history["gradient_norm"][-1] < 1e-8


def test_defaults_are_those_of_the_theory(clients):
    problem = accord.problems.least_squares(clients, l2=0.3)
    c = constants(problem)
    L, mu = c.smoothness, c.strong_convexity
    gpdmm = resolve(accord.GPDMM(), problem)
    K = round(math.sqrt(L / mu))
    assert gpdmm.local_steps == K
    assert gpdmm.step_size == pytest.approx(1 / L)
    assert gpdmm.penalty == pytest.approx(max(L / K, math.sqrt(L * mu)))
    assert resolve(accord.PDMM(), problem).penalty == pytest.approx(math.sqrt(L * mu))
    assert resolve(accord.PDMM(), problem).relaxation == 1.0
    assert resolve(accord.Scaffnew(), problem).communication_probability == pytest.approx(
        math.sqrt(mu / L)
    )
    split = resolve(accord.InexactFedSplit(), problem)
    assert split.step_size == pytest.approx(1 / (L + split.penalty))
    inner = resolve(accord.FedPD(oracle=oracles.GradientDescent()), problem)
    assert inner.oracle.local_steps == K
    assert inner.oracle.step_size == pytest.approx(1 / (L + inner.penalty))


def test_given_hyperparameters_are_kept(clients):
    problem = accord.problems.least_squares(clients, l2=0.3)
    given = accord.GPDMM(local_steps=7, step_size=0.01, penalty=0.5)
    assert resolve(given, problem) == given


def test_merely_convex_clients_are_relaxed(clients):
    assert resolve(accord.PDMM(), accord.problems.logistic(clients)).relaxation == 0.5


@pytest.mark.parametrize(
    "algorithm", [accord.AGPDMM(step_size=1.2), accord.SCAFFOLD(step_size=1.2)]
)
def test_a_step_above_the_bound_warns_with_the_bound(clients, algorithm):
    problem = accord.problems.least_squares(clients, l2=0.3)
    bound = f"{1 / constants(problem).smoothness:g}"
    with pytest.warns(UserWarning, match=f"stable bound {bound}"):
        resolve(algorithm, problem)


def test_certificate_bounds_distance_and_gap(clients):
    problem = accord.problems.logistic(clients, l2=0.2)
    best = problem.reference()
    rng = np.random.default_rng(1)
    for size in (1e-6, 1e-2, 1.0, 30.0):
        x = best.x + size * rng.standard_normal(3)
        bound = certificate(problem, x)
        assert np.linalg.norm(x - best.x) <= bound.distance
        assert problem.objective(x) - best.objective <= bound.gap + 1e-15
    assert certificate(accord.problems.logistic(clients), x).distance is None


def test_dissimilarity(clients):
    problem = accord.problems.logistic(clients, l2=0.2)
    x = np.ones(3)
    own = problem.client_gradients(x)
    apart = np.linalg.norm(own - problem.gradient(x), axis=1)
    assert dissimilarity(problem, x) == pytest.approx(apart.max())
    same = accord.Clients.from_arrays([clients[0]] * 3)
    assert dissimilarity(accord.problems.logistic(same), x) < 1e-15


class TestSkipProbability:
    L, s = 2.0, (math.sqrt(5) - 1) / 16

    def p(self, u):
        return skip_probability(u * self.s**2 * 9.0, 3.0, self.L, self.s)

    def test_heterogeneous_clients_skip_little(self):
        for u in (1e-8, 1e-3, 1.0):
            assert self.p(u) == pytest.approx(math.sqrt(u / 36))

    def test_the_gap_between_the_branches(self):
        threshold = (1 - 2 * self.L * self.s) / (1 + self.L * self.s)
        assert threshold == pytest.approx(0.5985, abs=1e-4)
        assert self.p(36 * threshold**2 + 1e-9) == pytest.approx(threshold)
        assert self.p(41.9) == pytest.approx(threshold)

    def test_similar_clients_skip_much(self):
        Ls = self.L * self.s
        for u in (50.0, 1e3, 1e6):
            p = self.p(u)
            C = (p * (1 + Ls) + Ls) / (1 - Ls)
            assert C ** (2 / (1 - p)) == pytest.approx(u / 42, rel=1e-8)

    def test_never_outside_the_unit_interval_and_never_falling(self):
        values = [self.p(u) for u in np.logspace(-12, 30, 200)]
        assert all(0 <= v < 1 for v in values)
        assert (np.diff(values) >= -1e-12).all()

    def test_identical_clients_and_theory_out_of_reach(self):
        assert 0.9 < skip_probability(1.0, 0.0, self.L, self.s) < 1
        assert skip_probability(1.0, 1.0, 2.0, 1.0) == 0.0

    def test_bad_arguments(self):
        with pytest.raises(ValueError, match="dissimilarity: got -1"):
            skip_probability(1.0, -1.0, 1.0, 0.1)


def test_skipping_chosen_from_the_clients(clients):
    problem = accord.problems.logistic(clients, l2=0.2)
    L = constants(problem).smoothness
    penalty = 8 * L / (math.sqrt(5) - 1)
    chosen = resolve(accord.FedPD(penalty=penalty, skip_probability=None), problem)
    assert 0 < chosen.skip_probability < 1
    same = accord.problems.logistic(accord.Clients.from_arrays([clients[0]] * 3), l2=0.2)
    penalty = 8 * constants(same).smoothness / (math.sqrt(5) - 1)
    alike = resolve(accord.FedPD(penalty=penalty, skip_probability=None), same)
    assert alike.skip_probability > 0.9 > chosen.skip_probability


@pytest.mark.parametrize("seed", range(12))
def test_rounding_is_not_taken_for_strong_convexity(seed):
    rng = np.random.default_rng(seed)
    pairs = [(rng.standard_normal((n, 4)), rng.standard_normal(n)) for n in (30, 2, 40)]
    problem = accord.problems.least_squares(accord.Clients.from_arrays(pairs))
    assert constants(problem).strong_convexity == 0
    assert resolve(accord.PDMM(), problem).relaxation == 0.5
    assert resolve(accord.Scaffnew(), problem).communication_probability >= 0.01


def test_skipping_is_chosen_at_a_penalty_that_the_theory_covers(clients):
    chosen = resolve(accord.FedPD(skip_probability=None), accord.problems.logistic(clients, l2=0.2))
    assert 0 < chosen.skip_probability < 1


@pytest.mark.parametrize("algorithm", [accord.GradientDescent(), accord.SCAFFOLD(local_steps=1)])
def test_absent_clients_shorten_the_step_of_delayed_gradients(algorithm):
    problem = accord.problems.averaging(np.arange(10.0))
    in_turn = np.eye(10, dtype=bool)[np.arange(3000) % 10]
    assert (
        accord.run(algorithm, problem, 3000, participation=in_turn).history["distance"][-1] < 1e-8
    )
    at_random = accord.run(algorithm, problem, 3000, participation=0.1)
    assert at_random.history["distance"][-1] < 1e-8


def test_no_hyperparameters_from_an_objective_without_curvature(clients):
    def absolute(x, row, target):
        return abs(row @ x - target)

    problem = accord.problems.custom(absolute, np.zeros(3), clients, convex=True)
    with pytest.raises(ValueError, match="smoothness L is"):
        resolve(accord.AGPDMM(), problem)
    zero = accord.Clients.from_arrays([(np.zeros((5, 2)), np.ones(5))])
    with pytest.raises(ValueError, match="all features zero"):
        resolve(accord.PDMM(), accord.problems.least_squares(zero))


def test_conditioning_hint(clients):
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.uniform(2000, 2020, 60), rng.integers(0, 2, 60)])
    raw = accord.Clients.from_arrays(
        [(X[:20], rng.integers(0, 2, 20)), (X[20:], rng.integers(0, 2, 40))]
    )
    for intercept in (False, True):
        problem = accord.problems.logistic(raw, l2=1e-2, intercept=intercept)
        assert "standardise the columns" in accord.theory.conditioning_hint(
            problem, problem.initial()
        )
    fine = accord.problems.logistic(clients, l2=0.2, intercept=True)
    assert accord.theory.conditioning_hint(fine, fine.initial()) is None
