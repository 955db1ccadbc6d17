"""The exact proximal step: closed form for quadratics, Newton's method for everything else."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import flatten_util, lax

from accord import tree
from accord.core import static
from accord.oracles.base import Oracle, Solution

DENSE_LIMIT = 128
"""The most parameters for which Newton's method factors a Hessian instead of using CG."""


@dataclass(frozen=True)
class Exact(Oracle):
    """The minimiser of the sub-problem to the accuracy of the arithmetic.

    Quadratics use their factorisation. Other objectives use Newton's method, damped so that the
    gradient norm falls at every step, on a factored Hessian (``method="newton"``) or matrix-free
    with conjugate gradients (``"newton-cg"``); ``"auto"`` takes the former up to 128 parameters.
    A Hessian product counts as a gradient, a solve with a quadratic's factorisation as one.
    Conjugate gradients lose digits from condition numbers of 1e7 on: scale the columns, or take "newton".
    ``tolerance`` is relative to the terms of the gradient, and 0 means as far as it will go.
    """

    needs = frozenset({"grad", "prox"})

    tolerance: float = 0.0
    max_iterations: int = 100
    method: str = static("auto")

    def __call__(self, objective, start, dual, centre, penalty, key, memory=()):
        if hasattr(objective, "prox"):
            # A coordinate without a penalty has no dual either.
            weight = jnp.where(penalty > 0, penalty, 1)
            target = tree.map(lambda z, d: z - d / weight, centre, dual)
            x = objective.prox(target, penalty)
            return Solution(x, x, 1)
        x, gradients = _newton(self, objective, start, dual, centre, penalty)
        return Solution(x, x, gradients)


def _newton(oracle, objective, start, dual, centre, penalty):
    flat_start, unravel = flatten_util.ravel_pytree(start)
    flat_dual, flat_centre = (flatten_util.ravel_pytree(part)[0] for part in (dual, centre))
    size = flat_start.size
    floor = float(jnp.finfo(flat_start.dtype).eps)
    dense = oracle.method == "newton" or (oracle.method == "auto" and size <= DENSE_LIMIT)

    def ravel(tree_):
        return flatten_util.ravel_pytree(tree_)[0]

    def gradient(x):
        own = ravel(objective.grad(unravel(x)))
        pull = flat_dual + penalty * (x - flat_centre)
        scale = jnp.linalg.norm(own) + jnp.linalg.norm(pull)
        return own + pull, scale

    def product(x, v):
        return ravel(objective.hessian_product(unravel(x), unravel(v))) + penalty * v

    def direction(x, g, norm, first):
        if dense:
            hessian = jax.vmap(lambda v: product(x, v))(jnp.eye(size, dtype=x.dtype))
            factor = jax.scipy.linalg.cho_factor(0.5 * (hessian + hessian.T))
            return -jax.scipy.linalg.cho_solve(factor, g), jnp.asarray(size, x.dtype)
        forcing = jnp.minimum(0.1, norm / first)
        return _conjugate_gradients(lambda v: product(x, v), -g, forcing)

    def backtrack(x, step, norm, scale):
        """The first of the lengths 1, 1/2, 1/4, ... that makes the gradient smaller."""

        def halve(carry):
            length, _, _, _, tries = carry
            length = 0.5 * length
            g, scale = gradient(x + length * step)
            return length, g, scale, jnp.linalg.norm(g), tries + 1

        def rising(carry):
            length, _, _, new, tries = carry
            short = ~(new <= (1 - 0.25 * length) * norm)
            return short & (tries < 30) & ~(norm <= 1e3 * floor * scale)

        g, new_scale = gradient(x + step)
        one = jnp.asarray(1.0, x.dtype)
        length, g, new_scale, new, tries = lax.while_loop(
            rising, halve, (one, g, new_scale, jnp.linalg.norm(g), 1)
        )
        return x + length * step, g, new_scale, new, tries

    def improve(carry):
        x, g, scale, norm, k, used, _ = carry
        step, products = direction(x, g, norm, first)
        trial, new_g, new_scale, new, tries = backtrack(x, step, norm, scale)
        better = new < norm
        keep = lambda a, b: jnp.where(better, a, b)  # noqa: E731
        used = used + products + tries
        return (
            keep(trial, x),
            keep(new_g, g),
            keep(new_scale, scale),
            keep(new, norm),
            k + 1,
            used,
            better,
        )

    def unfinished(carry):
        _, _, scale, norm, k, _, better = carry
        enough = norm <= jnp.maximum(oracle.tolerance, 2 * floor) * scale
        return better & ~enough & (k < oracle.max_iterations)

    g, scale = gradient(flat_start)
    first = jnp.linalg.norm(g)
    carry = flat_start, g, scale, first, 0, jnp.asarray(1.0, flat_start.dtype), jnp.asarray(True)
    x, _, _, _, _, used, _ = lax.while_loop(unfinished, improve, carry)
    return unravel(x), used


def _conjugate_gradients(product, b, relative):
    """(x, products used): product(x) = b to a residual of ``relative`` ||b||."""

    def unfinished(carry):
        _, _, _, squared, k = carry
        return (squared > (relative**2) * (b @ b)) & (k < 4 * b.size + 20)

    def one(carry):
        x, residual, p, squared, k = carry
        image = product(p)
        length = squared / (p @ image)
        x, residual = x + length * p, residual - length * image
        new = residual @ residual
        return x, residual, residual + (new / squared) * p, new, k + 1

    carry = jnp.zeros_like(b), b, b, b @ b, 0
    x, _, _, _, k = lax.while_loop(unfinished, one, carry)
    return x, k.astype(b.dtype)
