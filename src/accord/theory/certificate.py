"""A certificate of optimality: how far a model can be from the optimum, from derivatives at the model."""

import math
from typing import Any, NamedTuple

import numpy as np

from accord import tree
from accord.theory.constants import global_strong_convexity

DENSE_LIMIT = 700
"""The most parameters for which the Hessian of F is formed."""

_ROUNDING = 16
"""What sums of many rows lose, in units of the precision times the magnitudes that are summed."""

_TRIALS = (1.25, 2.0, 3.0)
"""Radii of the ball that is searched, in units of the Newton decrement."""


class Certificate(NamedTuple):
    """Bounds on the error of a model x.

    ``gradient_norm`` ||grad F(x)||, of the least subgradient where F has a regulariser; ``distance`` >=
    ||x - x*||; ``gap`` >= F(x) - F(x*); ``coefficients`` >= |x - x*| entry by entry, in the shape of x. A
    bound that cannot be had is None. Of a softmax without a penalty, whose minimisers differ by numbers
    added to all classes alike, x* is the one nearest to x.
    """

    gradient_norm: float
    distance: float | None
    gap: float | None
    coefficients: Any = None


def certificate(problem, x) -> Certificate:
    """The certificate of a model.

    With the strong convexity mu of F: ||grad F||/mu and ||grad F||^2/(2 mu). For losses of a linear
    predictor also where no mu > 0 holds everywhere, as with an intercept that no penalty touches:
    let H be the Hessian at x, delta^2 = <grad F, H^-1 grad F>, and kappa(r) H a lower bound on the
    Hessian within the ball ||v||_H <= r around x. If kappa(r) r >= delta, the minimiser lies in that
    ball, ||x - x*||_H <= delta/kappa and F(x) - F(x*) <= delta^2/(2 kappa). A client adds its Hessian and
    the bound on it, two matrices (P, P), for P up to 700. For these losses the rounding of gradient and
    Hessian is part of the bounds; for others they hold in exact arithmetic.
    """
    linear = hasattr(problem, "penalties")
    dense = linear and problem.convex and np.size(x) <= DENSE_LIMIT
    if linear:
        gradient, rounding, H = problem.derivatives(x, dense)
        gradient, error = np.ravel(gradient), _precision(problem) * np.ravel(rounding)
        norm = float(np.linalg.norm(gradient))
    else:
        norm, error = float(tree.norm(problem.gradient(x))), np.zeros(1)
    distance, gap, coefficients = math.inf, math.inf, None
    mu = global_strong_convexity(problem)
    if mu:
        most = norm + float(np.linalg.norm(error))
        distance, gap = most / mu, most**2 / (2 * mu)
    local = _local(problem, x, gradient, error, H) if dense else None
    if local is not None:
        distance, gap = min(distance, local[0]), min(gap, local[1])
        coefficients = local[2]
    if math.isinf(distance):
        return Certificate(norm, None, None)
    return Certificate(norm, float(distance), float(gap), coefficients)


def _precision(problem) -> float:
    return _ROUNDING * float(np.finfo(problem.dtype).eps)


def _local(problem, x, gradient, error, H):
    """(distance, gap, coefficients), or None where no ball that was tried holds the minimiser."""
    flat = _gauge(problem, np.shape(x)) * np.trace(H) / len(H)
    factor = _inverse_root(H + flat)
    if factor is None:
        return None
    delta = np.linalg.norm(factor @ gradient) + np.linalg.norm(abs(factor) @ error)
    # No entry of the matrices that H is summed from, added up, exceeds <units, units>.
    units = np.sqrt(np.diag(H + flat))
    lost = _precision(problem) * ((abs(factor) @ units) ** 2).sum()
    for times in _TRIALS:
        radius = times * delta
        least = _least(problem, x, H, factor, radius) + flat
        kappa = np.linalg.eigvalsh(factor @ least @ factor.T)[0] - lost
        if kappa > 0 and kappa * radius >= delta:
            break
    else:
        return None
    reach = delta / kappa
    coefficients = reach * np.sqrt((factor**2).sum(0)).reshape(np.shape(x))
    return reach * np.linalg.norm(factor, 2), delta * reach / 2, coefficients


def _gauge(problem, shape) -> np.ndarray:
    """The projection (P, P) on the directions in which F never changes, for softmax.

    Adding one number to a feature's coefficients of all classes changes no probability. Where no penalty
    objects, the distance is that to the nearest minimiser.
    """
    if len(shape) == 1:
        return np.zeros((shape[0], shape[0]))
    penalised = problem.regulariser is not None or any(
        p.curvature()[1] > 0 for p in problem.penalties
    )
    free = np.full(shape[0], not penalised)
    free[-1] |= problem.intercept
    return np.kron(np.diag(free), np.full((shape[1], shape[1]), 1 / shape[1]))


def _inverse_root(H: np.ndarray) -> np.ndarray | None:
    """R with R' R = H^-1, or None where H is singular to rounding."""
    units = np.sqrt(np.diag(H))
    if not (np.isfinite(H).all() and (units > 0).all()):
        return None
    try:
        L = np.linalg.cholesky(H / np.outer(units, units))
    except np.linalg.LinAlgError:
        return None
    if np.diag(L).min() ** 2 < 64 * len(H) * np.finfo(float).eps:
        return None
    return np.linalg.inv(L) / units


def _least(problem, x, H, factor, radius) -> np.ndarray:
    """A lower bound, as a matrix, on the Hessian within the ball."""
    if problem.quadratic:
        return H
    spread = factor
    if np.ndim(x) == 2:
        # Any two classes' predictors: |<(e_c - e_k) a, v>| <= sqrt(2) ||a|| ||v||.
        width = np.sqrt(2) * np.linalg.norm(factor, 2)
        spread = width * np.eye(len(x))
    return problem.least_hessian(x, spread, radius)
