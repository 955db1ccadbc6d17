"""What the clients of a table look like, how much they differ, and which methods that suggests."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from accord.algorithms import AGPDMM, PDMM, GradientDescent, Newton
from accord.analysis.agreement import agree
from accord.analysis.diagnosis import check_determined
from accord.analysis.fit import check_usable, encoded_clients, make_problem, prepared, start
from accord.analysis.schema import INTERCEPT
from accord.analysis.solve import Choice, default_algorithm, solve
from accord.analysis.summaries import Summary
from accord.core import Algorithm
from accord.theory import DENSE_LIMIT, constants, dissimilarity

FAINT = 1e-4
"""The l2 at which clients are compared where the fit without penalties has no minimiser."""


class Differences(NamedTuple):
    """How the clients differ at the pooled fit x*, in encoded columns.

    ``dissimilarity`` G = max_i ||grad f_i(x*) - grad F(x*)||; ``pulls``: that norm of every client;
    ``towards``: the column that each pulls hardest at; ``spread``: the root mean square of the pulls
    over what it would be if the rows were dealt to the clients at random (1: no more than chance);
    ``smoothness`` L and ``condition`` kappa = L/mu, mu of the Hessian at x* over the directions that the
    rows determine; ``l2`` at which all this was measured; ``note``: what went differently.
    """

    dissimilarity: float
    pulls: np.ndarray
    towards: list[str]
    spread: float
    smoothness: float
    condition: float
    l2: float
    note: str = ""


class Option(NamedTuple):
    """A method for these clients: ``rounds`` expected for eight digits, bytes ``up`` and ``down`` of one
    client in all of them, and what a message ``reveals``."""

    method: str
    rounds: int
    up: int
    down: int
    reveals: str


class Description(NamedTuple):
    """The outcome of ``accord.describe``.

    ``summaries``: by client, what its columns hold; ``schema``; without a target ``differences``,
    ``options`` and ``choice`` are None.
    """

    summaries: dict[str, Summary]
    schema: Any
    differences: Differences | None
    options: list[Option] | None
    choice: Choice | None

    def print(self, console=None) -> None:
        """The description as tables on a terminal."""
        from accord.report.descriptions import show

        show(self, console)


def describe(
    source, target: str | None = None, client: str | None = None, **options
) -> Description:
    """Clients, sizes, column means and classes, and with a target how much the clients differ.

    ``options`` are those of ``accord.fit`` that say how columns become numbers, and l1 and l2, but
    missing values are counted, and filled as ``missing="mean"`` does unless said otherwise. All of it
    is from counts and sums by client. Raises ``ValueError`` as ``accord.fit`` does.
    """
    options = {"missing": "mean"} | options
    task = prepared(source, target, client, **options)
    schema = agree(task.summaries, task.request)
    if target is None:
        return Description(task.summaries, schema, None, None, None)
    clients = encoded_clients(schema, task.sites)
    problem = make_problem(schema, clients, task.l1, task.l2, task.threshold)
    found = _differences(problem, schema, task, lambda l2: make_problem(
        schema, clients, task.l1, l2, task.threshold
    ))  # fmt: skip
    choice = default_algorithm(problem)
    return Description(task.summaries, schema, found, _options(problem, found.condition), choice)


def _differences(problem, schema, task, at_l2: Callable) -> Differences:
    l2, note = task.l2, ""
    x0 = start(problem, schema)
    solution = solve(problem, None, 1e-6, task.max_rounds, x0=x0)
    check_usable(solution)
    try:
        check_determined(problem, schema, solution)
    except ValueError as error:
        l2, note = FAINT, f"Measured at l2 = {FAINT:g}, for without it: {error}"
        problem = at_l2(l2)
        solution = solve(problem, None, 1e-6, task.max_rounds, x0=x0)
    x = solution.x
    smooth = problem.without_regulariser()
    gradients = smooth.client_gradients(x)
    apart = (gradients - smooth.gradient(x)).reshape(len(problem), len(x), -1)
    pulls = np.where(problem.weights > 0, np.sqrt((apart**2).sum((1, 2))), 0.0)
    terms = [*schema.columns, *([INTERCEPT] if schema.intercept else [])]
    towards = [terms[k] for k in (apart**2).sum(2).argmax(1)]
    chance = _by_chance(problem, x)
    spread = np.sqrt(problem.weights @ pulls**2 / chance) if chance > 0 else float("nan")
    L = constants(problem).smoothness
    return Differences(
        dissimilarity(problem, x),
        pulls,
        towards,
        float(spread),
        L,
        _condition(smooth, x, L),
        l2,
        note,
    )


def _by_chance(problem, x) -> float:
    """The mean square of the pulls, were the rows dealt at random to clients of these sizes.

    The mean of n of N rows' gradients, drawn without replacement, has the variance
    tr(C)/n x (N - n)/(N - 1), C the covariance of one row's gradient.
    """
    clients, intercept = problem.clients, problem.intercept
    squares, total, rows = 0.0, np.zeros(np.shape(x)), clients.rows
    for X, y in clients:
        X = np.column_stack([X, np.ones(len(X))]) if intercept else np.asarray(X)
        with jax.enable_x64(True):
            slopes = np.asarray(problem.loss.slope(X @ x, y))
        lengths = (slopes.reshape(len(X), -1) ** 2).sum(1)
        squares += lengths @ (X**2).sum(1)
        total += X.T @ slopes
    variance = squares / rows - ((total / rows) ** 2).sum()
    n = clients.sizes[clients.sizes > 0]
    shares = n / rows
    return float(variance * (shares / n * (rows - n) / max(rows - 1, 1)).sum())


def _condition(problem, x, L: float) -> float:
    """L over the least curvature of F at x that is not zero to rounding."""
    if np.size(x) > DENSE_LIMIT:
        return constants(problem).condition or float("inf")
    values = np.linalg.eigvalsh(problem.hessian(x))
    return float(max(L, values[-1]) / values[values > 1e-12 * values[-1]][0])


def _options(problem, condition: float) -> list[Option]:
    """The methods that reach the optimum, by the bytes that a client sends.

    Newton's rounds are those of quadratic convergence; PDMM contracts by (sqrt(kappa) - 1)/
    (sqrt(kappa) + 1) a round, gradient descent by 1 - 1/kappa; AGPDMM at its default sqrt(kappa) local
    steps comes near to PDMM.
    """
    size, digits = np.size(problem.initial()), 8 * np.log(10)
    root = np.sqrt(condition)
    proximal = max(3, int(np.ceil(digits / -np.log((root - 1) / (root + 1))))) if root > 1 else 3
    vector = 8 * size
    counts: dict[type[Algorithm], tuple[int, int]] = {
        Newton: (1 if problem.quadratic else 8, vector + 8 * size**2 + 8),
        PDMM: (proximal, vector),
        AGPDMM: (2 * proximal, vector),
        GradientDescent: (int(np.ceil(digits * condition)), vector),
    }
    return [
        Option(method.__name__, rounds, rounds * up, rounds * vector, method.reveals)
        for method, (rounds, up) in counts.items()
    ]
