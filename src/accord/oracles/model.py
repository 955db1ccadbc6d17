"""The server's own sub-problem: the minimiser of a quadratic model of F plus a regulariser."""

import jax
import jax.numpy as jnp
from jax import flatten_util, lax

_SWEEPS = 20
"""Sweeps of coordinate descent between two trials of the active set."""

_MOST_TRIALS = 200


def newton_step(x, gradient, hessian, regulariser=None):
    """(v, decrease) that minimises  m(v) = <gradient, v> + (1/2) <v, H v> + h(x + v) - h(x).

    ``hessian`` is H (P, P) over the raveled parameters, positive semi-definite; ``regulariser`` is h,
    or None. ``decrease`` = <gradient, v> + h(x + v) - h(x) <= -<v, H v> is what Armijo's rule compares
    with. Without h it is the Newton step, the shortest one where H is singular. With h it is found by
    coordinate descent, whose signs name an active set that one linear system then solves to the last
    digit.
    """
    flat, unravel = flatten_util.ravel_pytree(x)
    g = flatten_util.ravel_pytree(gradient)[0]
    H = 0.5 * (hessian + hessian.T)
    if regulariser is None:
        v = _solve(H, -g)
        return unravel(v), g @ v
    weights = flatten_util.ravel_pytree(regulariser.weights(x))[0]
    y = _lasso(H, H @ flat - g, weights, flat)
    v = y - flat
    return unravel(v), g @ v + weights @ (abs(y) - abs(flat))


def _solve(H, b):
    """H^-1 b, of least norm where H is singular to rounding; columns of any scale."""
    units = jnp.sqrt(jnp.where(jnp.diag(H) > 0, jnp.diag(H), 1.0))
    scaled = H / (units[:, None] * units)
    factor = jax.scipy.linalg.cho_factor(scaled)
    tiny = 64 * len(b) * jnp.finfo(b.dtype).eps
    regular = (jnp.diag(factor[0]) ** 2 > tiny).all()

    def direct(b):
        return jax.scipy.linalg.cho_solve(factor, b / units) / units

    def shortest(b):
        values, vectors = jnp.linalg.eigh(H)
        kept = values > values[-1] * tiny
        return vectors @ jnp.where(kept, vectors.T @ b / jnp.where(kept, values, 1), 0)

    return lax.cond(regular, direct, shortest, b)


def _lasso(H, b, weights, start):
    """The minimiser of (1/2) <y, H y> - <b, y> + sum_k weights_k |y_k|."""
    diagonal = jnp.where(jnp.diag(H) > 0, jnp.diag(H), 1.0)
    floor = 8 * len(b) * jnp.finfo(b.dtype).eps * (jnp.max(abs(b)) + jnp.max(weights))

    def violation(y):
        slope = H @ y - b
        at_zero = jnp.maximum(abs(slope) - weights, 0)
        return jnp.max(jnp.where(y == 0, at_zero, abs(slope + weights * jnp.sign(y))))

    def coordinate(k, y):
        pull = y[k] - (H[k] @ y - b[k]) / diagonal[k]
        size = jnp.maximum(abs(pull) - weights[k] / diagonal[k], 0)
        return y.at[k].set(jnp.sign(pull) * size)

    def polished(y):
        """The stationary point with the signs of y, or y where that is none or no better."""
        active = y != 0
        both = active[:, None] & active
        system = jnp.where(both, H, jnp.eye(len(b), dtype=b.dtype))
        target = jnp.where(active, b - weights * jnp.sign(y), 0)
        z = _solve(system, target)
        same = jnp.where(active & (weights > 0), jnp.sign(z) == jnp.sign(y), True).all()
        return jnp.where(same & (violation(z) <= violation(y)), z, y)

    def trial(carry):
        y, _, trials = carry
        sweep = lambda _, y: lax.fori_loop(0, len(b), coordinate, y)  # noqa: E731
        y = polished(lax.fori_loop(0, _SWEEPS, sweep, y))
        return y, violation(y), trials + 1

    def unfinished(carry):
        _, worst, trials = carry
        return (worst > floor) & (trials < _MOST_TRIALS)

    return lax.while_loop(unfinished, trial, (start, violation(start), 0))[0]
