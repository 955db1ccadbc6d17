"""A certificate of optimality: how far a model can be from the optimum, from derivatives at the model."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from accord import tree
from accord.problems import with_regulariser
from accord.theory.constants import global_strong_convexity

DENSE_LIMIT = 700
"""The most parameters for which the Hessian of F is formed."""

_ROUNDING = 16
_TRIALS = (1.25, 2.0, 3.0)
"""Radii of the ball that is searched, in units of the Newton decrement."""


class Certificate(NamedTuple):
    """Bounds on the error of a model x.

    ``gradient_norm`` ||grad F(x)||, of the least subgradient where F has a regulariser; ``distance`` >=
    ||x - x*||; ``gap`` >= F(x) - F(x*); ``coefficients`` >= |x - x*| entry by entry. A bound that cannot
    be had is None.
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
    the bound on it, two matrices (P, P), for P up to 700. Rounding of the gradient is part of delta.
    """
    if problem.convex and hasattr(problem, "loss") and np.size(x) <= DENSE_LIMIT:
        norm, local = _local(problem, x)
    else:
        norm, local = float(tree.norm(problem.gradient(x))), None
    mu = global_strong_convexity(problem)
    known = Certificate(norm, None, None)
    if mu:
        known = Certificate(norm, norm / mu, norm**2 / (2 * mu))
    if local is None:
        return known
    distance, gap, coefficients = local
    if known.distance is not None:
        distance, gap = min(distance, known.distance), min(gap, known.gap)
    return Certificate(norm, distance, gap, coefficients)


def _local(problem, x):
    """(||grad F||, (distance, gap, coefficients)), the latter None where no ball holds the minimiser."""
    with jax.enable_x64(True):
        prepared = problem.prepare()
        x = jnp.asarray(x, problem.dtype)
        gradient, H, rounding = _curvature(
            prepared.objectives, prepared.weights, x, prepared.regulariser
        )
        gradient = np.asarray(gradient, float)
        norm = float(np.linalg.norm(gradient))
        flat = _gauge(problem, np.shape(x)) * np.trace(H) / len(H)
        factor = _inverse_root(np.asarray(H, float) + flat)
        if factor is None:
            return norm, None
        eps = _ROUNDING * np.finfo(problem.dtype).eps
        delta = np.linalg.norm(factor @ np.ravel(gradient))
        delta += eps * np.linalg.norm(abs(factor) @ np.ravel(rounding))
        for times in _TRIALS:
            radius = times * delta
            kappa = _remaining(problem, prepared, x, factor, flat, radius)
            if kappa * radius >= delta:
                break
        else:
            return norm, None
    reach = delta / kappa
    coefficients = reach * np.sqrt((factor**2).sum(0)).reshape(np.shape(x))
    return norm, (reach * np.linalg.norm(factor, 2), delta * reach / 2, coefficients)


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


def _remaining(problem, prepared, x, factor, flat, radius) -> float:
    """kappa: within the ball the Hessian is at least kappa times H."""
    if problem.quadratics() is not None:
        return 1.0
    spread = factor
    if x.ndim == 2:
        # Any two classes' predictors: |<(e_c - e_k) a, v>| <= sqrt(2) ||a|| ||v||.
        width = np.sqrt(2) * np.linalg.norm(factor, 2)
        spread = width * np.eye(len(x))
    least = _least_curvature(
        prepared.objectives, prepared.weights, x, jnp.asarray(spread, x.dtype), radius
    )
    values = np.linalg.eigvalsh(factor @ (np.asarray(least, float) + flat) @ factor.T)
    return max(float(values[0]) * (1 - 1e-9), 0.0)


def _summed(function, objectives, weights):
    """sum_i w_i function(f_i), one client after another: matrices of all clients would be too many."""

    def add(total, client):
        objective, w = client
        return tree.add_scaled(total, w, function(objective)), None

    first = jax.tree.map(lambda leaf: leaf[0], objectives[0])
    shapes = jax.eval_shape(function, first)
    total = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    for objective, w in zip(objectives, weights, strict=True):
        total, _ = jax.lax.scan(add, total, (objective, w))
    return total


@jax.jit
def _curvature(objectives, weights, x, regulariser):
    def seen(o):
        return o.grad(x), o.second_derivative(x), o.rounding(x)

    gradient, *rest = _summed(seen, objectives, weights)
    return with_regulariser(x, 0.0, gradient, regulariser)[1], *rest


@jax.jit
def _least_curvature(objectives, weights, x, spread, radius):
    least = partial(_least, x=x, spread=spread, radius=radius)
    return _summed(least, objectives, weights)


def _least(objective, x, spread, radius):
    return objective.least_second_derivative(x, spread, radius)
