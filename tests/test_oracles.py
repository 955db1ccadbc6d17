"""Local solvers against closed forms, on the sub-problem they share."""

import dataclasses

import jax
import numpy as np
import pytest

import accord
from accord import oracles
from accord.oracles.exact import _conjugate_gradients

PENALTY = 0.7


pytestmark = pytest.mark.usefixtures("double_precision")


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
    """From where exp is tiny, and from where it is huge."""
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
        last, average, gradients, memory = solver(objective, x, dual, centre, PENALTY, key, memory)
        used.append(float(gradients))
        estimate, iterates = objective.grad(x) if call % 3 == 0 else estimate, []
        for k in range(2):
            new = (x / 0.1 + PENALTY * centre - dual - estimate) / (1 / 0.1 + PENALTY)
            index = objective.draw(jax.random.fold_in(key, k), 5)
            now, before = (objective.minibatch_grad(v, index) for v in (new, x))
            estimate, x = estimate + now - before, new
            iterates.append(x)
        assert np.allclose(last, x, atol=1e-13)
        assert np.allclose(average, sum(iterates) / 2, atol=1e-13)
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
    stepped = sgd(objective, x, 0 * x, x, PENALTY, jax.random.key(0))
    assert (stepped.last == x).all()
    assert float(stepped.gradients) == 0


class Arctan:
    """f(x) = sum_j x_j arctan(x_j) - log(1 + x_j^2)/2, from afar on which Newton's step overshoots."""

    def grad(self, x):
        return jax.numpy.arctan(x)

    def hessian_product(self, x, direction):
        return direction / (1 + x**2)


def damped_newton(x, penalty, steps):
    """(x, gradients) on arctan(x) + penalty x: lengths 1, 1/2, ... until the slope falls by length/4."""
    used = 1

    def slope(x):
        return np.arctan(x) + penalty * x

    for _ in range(steps):
        step, length = -slope(x) / (1 / (1 + x**2) + penalty), 1.0
        used += 2  # one Hessian product, one gradient at the full step
        while abs(slope(x + length * step)) > (1 - length / 4) * abs(slope(x)):
            length, used = length / 2, used + 1
        x = x + length * step
    return x, used


@pytest.mark.parametrize("steps", [1, 3])
def test_damped_newton_takes_and_counts_the_written_steps(steps):
    oracle, starts = oracles.Exact(max_iterations=steps), np.linspace(2, 60, 200)
    x, _, gradients, _ = jax.vmap(lambda x: oracle(Arctan(), x, 0 * x, 0 * x, 0.002, None))(
        starts[:, None]
    )
    expected, used = np.transpose([damped_newton(start, 0.002, steps) for start in starts])
    assert len(set(used)) > 2
    assert np.allclose(x[:, 0], expected, rtol=1e-11, atol=1e-11)
    assert (gradients == used).all()


class Scaled:
    """A multiple of an objective."""

    def __init__(self, objective, factor):
        self.objective, self.factor = objective, factor

    def grad(self, x):
        return self.factor * self.objective.grad(x)

    def hessian_product(self, x, direction):
        return self.factor * self.objective.hessian_product(x, direction)


@pytest.mark.parametrize("method", ["newton", "newton-cg"])
def test_the_unit_of_the_objective_changes_no_step(method):
    """Powers of four pass through sums, products and Cholesky factors without rounding."""
    start = jax.numpy.linspace(-9.0, 5.0, 6)
    oracle = oracles.Exact(method=method)

    @jax.jit
    def solve(factor):
        arguments = start, factor * start[::-1] / 8, 0 * start, 0.002 * factor, None
        return oracle(Scaled(Arctan(), factor), *arguments)

    expected = solve(1.0)
    assert abs(expected.last - start).max() > 1
    for factor in (4.0**-40, 4.0**40):
        solved = solve(factor)
        assert (solved.last == expected.last).all()
        assert solved.gradients == expected.gradients


class Line:
    """f(x) = x, with a gradient that is wrong by ``error``, up on the right of 0, down on its left."""

    def __init__(self, error=0.0):
        self.error = error

    def grad(self, x):
        return 1 + self.error * jax.numpy.sign(x)

    def hessian_product(self, x, direction):
        return 0 * direction


@pytest.mark.parametrize(("roundings", "gradients"), [(3, 1), (5, 3)])
def test_exact_stops_at_two_roundings_of_the_terms(roundings, gradients):
    """At x = r eps the terms 1 and x - 1 leave r eps, to be held against 2 eps of their sum, 2."""
    eps = np.finfo(float).eps
    start = jax.numpy.array([roundings * eps])
    solved = oracles.Exact()(Line(), start, 0 * start, 1 + 0 * start, 1.0, None)
    assert float(solved.gradients) == gradients
    assert solved.last == (start if gradients == 1 else 0)


def test_no_shorter_step_is_tried_in_the_noise_of_a_gradient():
    """A full step to the other side of the solution is no better, half of it would be."""
    noise = 64 * np.finfo(float).eps
    start = jax.numpy.array([noise])
    objective = Line(error=noise)
    solved = oracles.Exact()(objective, start, 0 * start, 1 + 0 * start, 1.0, None)
    assert float(solved.gradients) == 3
    assert solved.last == start


def spread(size, decades):
    """A positive definite matrix with eigenvalues from 1 to 10^decades, and a right-hand side."""
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((size, size)))[0]
    return (vectors * np.logspace(0, decades, size)) @ vectors.T, 1e3 * rng.standard_normal(size)


@pytest.mark.parametrize("relative", [0.95, 0.5, 0.2, 1e-9])
def test_conjugate_gradients_are_best_in_the_krylov_space(relative):
    """x_k = K (K'AK)^-1 K'b with K = b, Ab, ..., for the first k that is good enough."""
    A, b = spread(6, 1.5)
    x, products = _conjugate_gradients(lambda v: A @ v, jax.numpy.asarray(b), relative)
    for k in range(1, 7):
        krylov = np.linalg.qr(np.array([np.linalg.matrix_power(A, j) @ b for j in range(k)]).T)[0]
        best = krylov @ np.linalg.solve(krylov.T @ A @ krylov, krylov.T @ b)
        if np.linalg.norm(b - A @ best) <= relative * np.linalg.norm(b):
            break
    assert int(products) == k
    assert np.allclose(x, best, rtol=1e-9, atol=1e-9 * abs(best).max())


def test_conjugate_gradients_have_time_where_rounding_slows_them():
    """At a condition of 1e6 they need far more products than the 30 of exact arithmetic."""
    A, b = spread(30, 6)
    x, products = _conjugate_gradients(lambda v: A @ v, jax.numpy.asarray(b), 1e-4)
    assert 60 < int(products) < 140
    assert np.linalg.norm(b - A @ x) <= 1e-3 * np.linalg.norm(b)
