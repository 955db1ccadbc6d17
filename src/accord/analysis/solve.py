"""Solving a problem to a tolerance: which method, when to stop, and how close the answer is."""

import math
from typing import Any, NamedTuple

import numpy as np
from jax import tree_util

from accord import tree
from accord.algorithms import AGPDMM, PDMM, GradientDescent, Newton
from accord.core import Status, status
from accord.core.checks import is_number
from accord.engines import Run, Stop, run
from accord.reference import rank
from accord.reference import solve as least_norm
from accord.theory import Certificate, certificate
from accord.theory.certificate import DENSE_LIMIT

MOST_ROUNDS = 100_000
"""The rounds after which a solution gives up unless told otherwise."""

NEWTON_LIMIT = DENSE_LIMIT
"""The most parameters for which Newton's method is the default: its message, the server's linear system and
the certificate hold P x P matrices."""

_MOST_NUMBERS = 2**27
"""The most numbers that the Hessians of all clients may hold together in one process."""

_FIRST_BLOCK = 32
_ROUNDING = 1e-13


class Choice(NamedTuple):
    """A method and, in words, why it was taken."""

    algorithm: Any
    reason: str


class Solution(NamedTuple):
    """``x``; ``run``, whose history counts every round; ``certificate`` of x; ``status``: converged to the
    tolerance or not, in a sentence; ``escapes``: True where the minimiser seems to lie at infinity."""

    x: Any
    run: Run
    certificate: Certificate
    status: Status
    escapes: bool = False


def default_algorithm(problem) -> Choice:
    """The method that ``solve`` takes, from the sizes of the messages.

    Newton's method needs about ten rounds, on badly scaled columns too, where first-order methods need
    hundreds or many thousands. Its message has P^2 numbers for P parameters and says more about a
    client's rows than a gradient does; beyond 700 parameters, or where the clients' Hessians together do
    not fit into memory, it is AGPDMM with P numbers up and down. (PDMM took a third fewer rounds for logistic
    and softmax regressions on real data, as many for least squares, and at worst four times the gradients.)
    """
    P, m = _parameters(problem), len(problem)
    size = np.dtype(problem.dtype).itemsize
    if not (problem.convex and "second_derivative" in problem.offers):
        known = "is not known to be convex" if not problem.convex else "offers no Hessians"
        return Choice(
            AGPDMM(), f"AGPDMM: the problem {known}; a round moves {P:,} numbers each way."
        )
    if P > NEWTON_LIMIT or m * P**2 > _MOST_NUMBERS:
        algorithm = AGPDMM()
        return Choice(
            algorithm,
            f"{type(algorithm).__name__}: a round moves {P:,} numbers ({P * size:,} bytes) each way a "
            f"client, where Newton's method would send {P**2:,}; it needs hundreds of rounds or more.",
        )
    rounds = "about ten rounds"
    tells = "each Hessian says more about a client's rows than a gradient does"
    if problem.name == "least_squares":
        rounds = "one round"
        tells = "each tells the server its client's X'X, where a gradient tells d numbers"
    return Choice(
        Newton(),
        f"Newton: {P:,} parameters, so a client sends {(P * P + P + 1) * size:,} bytes a round and receives "
        f"{P * size:,}, for {rounds} where first-order methods need hundreds; {tells}.",
    )


def fewest_rounds(problem) -> Choice:
    """The method for sites where a round costs seconds, whatever it carries: the one with the fewest.

    Newton's method where it is the default; else PDMM with exact local solves, whose error contracts by
    (sqrt(kappa) - 1)/(sqrt(kappa) + 1) a round, which methods with any number of local gradient steps come
    near to as that number grows; else, where there is no exact local solve, AGPDMM.
    """
    choice = default_algorithm(problem)
    if isinstance(choice.algorithm, Newton) or "prox" not in problem.offers:
        return choice
    return Choice(
        PDMM(),
        f"PDMM: with {_parameters(problem):,} parameters Newton's method would send their square; of the "
        "others, exact local solves need the fewest rounds.",
    )


def _parameters(problem) -> int:
    return sum(np.size(leaf) for leaf in tree_util.tree_leaves(problem.initial()))


def solve(
    problem, algorithm=None, tolerance: float = 1e-8, max_rounds: int | None = None, seed: int = 0,
    progress=None, x0=None, run=run,
) -> Solution:  # fmt: skip
    """The minimiser x* of a problem by ``algorithm`` (default ``default_algorithm``), certified.

    It starts at ``x0`` (None: zeros); ``run`` is the engine, called as ``accord.run`` is.

    It is converged where the certificate gives ||x - x*|| <= ``tolerance`` max(1, ||x||). Where there is
    no certificate because F is flat in some direction (more features than rows, collinear columns), or
    because x has too many entries, the gradient norm of F is to fall to ``tolerance`` times that at x0
    (at least that of the clients there), and with a Hessian at hand the Newton step at x is to be as short
    as the distance should have been. A minimiser at infinity (separable classes without a penalty) is
    told by that step, which stays long while the gradient vanishes.

    The run goes to a gradient norm, the certificate is taken, and where it asks for more the same run
    goes on to a norm that is smaller by their ratio; it ends after ``max_rounds`` communication rounds
    (None: 100,000), or where rounding lets the norm fall no further. Same problem and seed, same rounds.
    """
    if not (is_number(tolerance) and math.isfinite(tolerance) and tolerance > 0):
        raise ValueError(f"tolerance: got {tolerance!r}; accepted is a number > 0, such as 1e-8")
    algorithm = default_algorithm(problem).algorithm if algorithm is None else algorithm
    max_rounds = MOST_ROUNDS if max_rounds is None else max_rounds
    _, gradient, apart = problem.without_regulariser().survey(problem.initial())
    scale = float(tree.norm(gradient)) + float(apart) or 1.0
    norm, done, block, best = tolerance * scale, None, _FIRST_BLOCK, math.inf
    while True:
        rounds = min(block, max_rounds)
        done = run(
            algorithm, problem, rounds, seed, x0=x0, stop=Stop(gradient_norm=norm),
            reference=False, progress=progress, resume=done,
        )  # fmt: skip
        reached = float(done.history["gradient_norm"][-1])
        if done.status.name == status.BUDGET_SPENT:
            lowest = float(done.history["gradient_norm"].min())
            if rounds < max_rounds and lowest < 0.9 * best:
                best, block = lowest, 2 * block
                continue
            return _ended(problem, done, tolerance, scale)
        if done.status.name != status.CONVERGED:
            return Solution(done.x, done, certificate(problem, done.x), done.status)
        found = certificate(problem, done.x)
        error, words = _error(problem, done.x, found, reached, scale)
        target = tolerance * max(1.0, float(tree.norm(done.x)))
        if error <= target:
            return Solution(done.x, done, found, _converged(done, words, error))
        if reached <= _ROUNDING * scale or int(done.state.round) >= max_rounds:
            return _ended(problem, done, tolerance, scale)
        norm = reached * min(max(target / (2 * error), 1e-4), 0.25)
        block = max(block, 2 * int(done.state.round))


def _error(problem, x, found: Certificate, norm: float, scale: float) -> tuple[float, str]:
    """What is to fall below the tolerance, and its name."""
    if found.distance is not None:
        return found.distance, "the certified distance to the optimum is"
    step = _newton_step(problem, x)
    if step is not None:
        return step, "F is flat in some direction, and a Newton step has the length"
    return norm / scale * max(1.0, float(tree.norm(x))), "the gradient norm of F has fallen by"


def _newton_step(problem, x) -> float | None:
    """The length of the Newton step at x, of least norm where the Hessian is singular."""
    offered = problem.convex and "second_derivative" in problem.offers
    if problem.regulariser is not None or not offered or _parameters(problem) > DENSE_LIMIT:
        return None
    H = np.asarray(problem.hessian(x), float)
    step, unique = least_norm(0.5 * (H + H.T), np.ravel(problem.gradient(x)).astype(float))
    flattens = getattr(getattr(problem, "loss", None), "flattens", False)
    # A direction that was curved at the start and is flat to rounding here leads to infinity.
    if not unique and flattens and rank(H) < rank(problem.hessian(problem.initial())):
        return math.inf
    return float(np.linalg.norm(step))


def _converged(done: Run, words: str, error: float) -> Status:
    rounds = int(done.state.round)
    told = f"after {rounds} round{'s' * (rounds != 1)} {words} {error:.1e}."
    return Status(status.CONVERGED, told)


def _ended(problem, done: Run, tolerance: float, scale: float) -> Solution:
    """The solution where no more rounds are to be had, or none would help."""
    found = certificate(problem, done.x)
    norm, rounds = float(done.history["gradient_norm"][-1]), int(done.state.round)
    error, words = _error(problem, done.x, found, norm, scale)
    size = max(1.0, float(tree.norm(done.x)))
    # A Newton step says nothing of a gradient in directions without curvature.
    if error <= tolerance * size and (found.distance is not None or norm <= tolerance * scale):
        return Solution(done.x, done, found, _converged(done, words, error))
    escapes = found.distance is None and norm <= tolerance * scale
    if escapes:
        sentence = (
            f"after {rounds} rounds the gradient norm of F is {norm:.1e}, yet the minimiser is out of sight "
            "and may not exist: the classes may be separable, or a category may have one outcome only: "
            "add l2 > 0."
        )
    elif found.distance is not None:
        sentence = (
            f"after {rounds} rounds the model is certified to {found.distance / size:.1e} of its size, "
            f"not to {tolerance:.1e}. {_advice(done)}"
        )
    else:
        sentence = f"after {rounds} rounds the gradient norm of F is {norm:.1e}. {_advice(done)}"
    return Solution(done.x, done, found, Status(status.BUDGET_SPENT, sentence), escapes)


def _advice(done: Run) -> str:
    if isinstance(done.algorithm, Newton | GradientDescent):
        return "Scale the columns, raise the tolerance, or allow more rounds."
    return "Scale the columns, allow more rounds, or take Newton, which conditioning does not slow."
