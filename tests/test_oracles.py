"""Local solvers against closed forms, on the sub-problem they share."""

import dataclasses

import jax
import numpy as np
import pytest

import accord
from accord import oracles

PENALTY = 0.7


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def clients():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((25, 3))
    return accord.Clients.from_arrays([(X, rng.integers(0, 3, 25))])


PROBLEMS = {
    "least_squares": lambda c: accord.problems.least_squares(c, l2=0.1),
    "logistic": lambda c: accord.problems.logistic(
        accord.Clients.from_arrays([(X, np.minimum(y, 1)) for X, y in c]), l2=0.1, intercept=True
    ),
    "softmax": lambda c: accord.problems.softmax(c, l2=0.1),
    "poisson": lambda c: accord.problems.poisson(c, l2=0.1),
    "huber": lambda c: accord.problems.huber(c, l2=0.1, threshold=0.4),
}


def subproblem(name, clients, seed=0):
    problem = PROBLEMS[name](clients)
    rng = np.random.default_rng(seed)
    start, dual, centre = (
        jax.numpy.asarray(rng.standard_normal(problem.initial().shape)) for _ in range(3)
    )
    return problem.client_objective(0, {"prox"}), start, dual, centre


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("method", ["auto", "newton", "newton-cg"])
def test_exact_solution_has_no_gradient(clients, name, method):
    objective, start, dual, centre = subproblem(name, clients)
    oracle = oracles.Exact(method=method)
    x, average, gradients, _ = oracle(objective, start, dual, centre, PENALTY, None)
    gradient = objective.grad(x) + dual + PENALTY * (x - centre)
    assert abs(gradient).max() < 1e-13
    assert (average == x).all()
    assert 1 <= float(gradients) < 200


def test_exact_from_far_away(clients):
    """Damping brings Newton's method home where a full step overflows."""
    objective, start, dual, centre = subproblem("poisson", clients)
    for far in (-6.0, 6.0):
        x = oracles.Exact()(objective, 0 * start + far, dual, centre, PENALTY, None).last
        assert abs(objective.grad(x) + dual + PENALTY * (x - centre)).max() < 1e-12


def test_a_looser_tolerance_costs_fewer_gradients(clients):
    objective, start, dual, centre = subproblem("softmax", clients)
    tight, loose = (
        oracles.Exact(tolerance=t, method="newton-cg")(
            objective, start, dual, centre, PENALTY, None
        )
        for t in (0.0, 1e-3)
    )
    assert float(loose.gradients) < float(tight.gradients)
    gradient = objective.grad(loose.last) + dual + PENALTY * (loose.last - centre)
    assert 1e-13 < abs(gradient).max() < 1e-2


def test_gradient_descent_takes_the_written_steps(clients):
    objective, x, dual, centre = subproblem("logistic", clients)
    oracle = oracles.GradientDescent(local_steps=3, step_size=0.2)
    last, average, gradients, _ = oracle(objective, x, dual, centre, PENALTY, None)
    iterates = []
    for _ in range(3):
        x = x - 0.2 * (objective.grad(x) + dual + PENALTY * (x - centre))
        iterates.append(x)
    assert np.allclose(last, x, atol=1e-14)
    assert np.allclose(average, sum(iterates) / 3, atol=1e-14)
    assert gradients == 3


def test_linearised_step_is_the_closed_form(clients):
    objective, x, dual, centre = subproblem("logistic", clients)
    oracle = oracles.Linearised(local_steps=1, step_size=0.2)
    last = oracle(objective, x, dual, centre, PENALTY, None).last
    expected = (x / 0.2 + PENALTY * centre - dual - objective.grad(x)) / (1 / 0.2 + PENALTY)
    assert np.allclose(last, expected, atol=1e-14)


@pytest.mark.parametrize("form", ["gradient", "linearised"])
def test_many_steps_reach_the_exact_solution(clients, form):
    objective, start, dual, centre = subproblem("softmax", clients)
    exact = oracles.Exact()(objective, start, dual, centre, PENALTY, None).last
    solver = oracles.steps(form, 3000, 0.2, None)
    last = solver(objective, start, dual, centre, PENALTY, None).last
    assert abs(last - exact).max() < 1e-12


@pytest.mark.parametrize("form", ["gradient", "linearised"])
def test_sgd_is_the_written_recursion_on_its_own_draws(clients, form):
    objective, x, dual, centre = subproblem("logistic", clients)
    objective = dataclasses.replace(objective)
    key = jax.random.key(4)
    solver = oracles.SGD(batch_size=5, local_steps=4, step_size=0.1, form=form)
    last, _, gradients, _ = solver(objective, x, dual, centre, PENALTY, key)
    for k in range(4):
        index = objective.draw(jax.random.fold_in(key, k), 5)
        g = objective.minibatch_grad(x, index)
        if form == "gradient":
            x = x - 0.1 * (g + dual + PENALTY * (x - centre))
        else:
            x = (x / 0.1 + PENALTY * centre - dual - g) / (1 / 0.1 + PENALTY)
    assert np.allclose(last, x, atol=1e-13)
    assert float(gradients) == pytest.approx(4 * 5 / 25)


def test_variance_reduced_restarts_on_time_and_carries_between(clients):
    objective, x, dual, centre = subproblem("logistic", clients)
    solver = oracles.VarianceReduced(batch_size=5, restart_interval=3, local_steps=2, step_size=0.1)
    memory, estimate, used = solver.init(x), None, []
    for call in range(7):
        key = jax.random.key(call)
        last, _, gradients, memory = solver(objective, x, dual, centre, PENALTY, key, memory)
        used.append(float(gradients))
        estimate = objective.grad(x) if call % 3 == 0 else estimate
        for k in range(2):
            new = (x / 0.1 + PENALTY * centre - dual - estimate) / (1 / 0.1 + PENALTY)
            index = objective.draw(jax.random.fold_in(key, k), 5)
            now, before = (objective.minibatch_grad(v, index) for v in (new, x))
            estimate, x = estimate + now - before, new
        assert np.allclose(last, x, atol=1e-13)
    share = 2 * 2 * 5 / 25
    assert used == pytest.approx([1 + share if call % 3 == 0 else share for call in range(7)])


def test_a_client_without_rows_gets_its_centre(clients):
    empty = accord.Clients.from_arrays([clients[0], (np.zeros((0, 3)), np.zeros(0, int))])
    problem = accord.problems.softmax(empty)
    objective = problem.client_objective(1, {"prox"})
    x = jax.numpy.ones((3, 3))
    solved = oracles.Exact()(objective, 2 * x, 0 * x, x, PENALTY, None).last
    assert np.allclose(solved, x, atol=1e-12)
    sgd = oracles.SGD(batch_size=2, local_steps=2, step_size=0.1)
    assert np.isfinite(sgd(objective, x, 0 * x, x, PENALTY, jax.random.key(0)).last).all()
