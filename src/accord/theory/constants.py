"""L, mu and kappa of a problem: from the data where there is a bound, else a local estimate."""

import copy
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import flatten_util

from accord.problems import Problem, extreme_eigenvalues

_POWER_STEPS = 30
_PILOT_STEPS = 25


class Constants(NamedTuple):
    """Smoothness and convexity of a problem.

    ``smoothness`` L = max_i L_i; ``strong_convexity`` mu = min_i mu_i (None: not known);
    ``global_strong_convexity``: mu of F itself, at least as large; ``client_smoothness`` and
    ``client_strong_convexity`` (m,); ``estimated``: True where L is a local estimate, not a bound.
    """

    smoothness: float
    strong_convexity: float | None
    global_strong_convexity: float | None
    client_smoothness: np.ndarray
    client_strong_convexity: np.ndarray | None
    estimated: bool

    @property
    def condition(self) -> float | None:
        """kappa = L / mu, with F's own mu where a client has none; None where that is 0 too."""
        mu = self.strong_convexity or self.global_strong_convexity
        return self.smoothness / mu if mu else None


def constants(problem: Problem) -> Constants:
    """The constants of a problem, computed once."""
    cache = problem.__dict__
    if "_constants" not in cache:
        cache["_constants"] = _constants(problem)
    return cache["_constants"]


def global_strong_convexity(problem: Problem) -> float | None:
    """mu of F, without the clients' constants where it is to be had without them."""
    if "_constants" in problem.__dict__ or not hasattr(problem, "penalties"):
        return constants(problem).global_strong_convexity
    if not problem.convex:
        return None
    return _global_mu(problem, _ridge(problem))


def scaled(problem: Problem, factors: np.ndarray) -> Problem:
    """The problem with the constants of factors_i f_i in place of those of f_i; F's own mu stays."""
    if np.ptp(factors) == 0:
        return problem
    c, new = constants(problem), copy.copy(problem)
    L = factors * c.client_smoothness
    mus = None if c.client_strong_convexity is None else factors * c.client_strong_convexity
    mu = c.strong_convexity
    if mu is not None:
        mu = float((factors * mu if mus is None else mus)[factors > 0].min())
    new.__dict__["_constants"] = c._replace(
        smoothness=float(L.max()),
        strong_convexity=mu,
        client_smoothness=L,
        client_strong_convexity=mus,
    )
    return new


def has_bounds(problem: Problem) -> bool:
    """Whether L is there already, or to be had from a bound; else it takes a pilot run."""
    return "_constants" in problem.__dict__ or problem.bounded


def _constants(problem) -> Constants:
    problem = problem.without_regulariser()
    bounds = problem.curvature()
    if bounds is None:
        own = getattr(problem, "local_smoothness", None)
        L = own() if own else _local_smoothness(problem)
        l2 = float(getattr(problem, "l2", 0.0) or _ridge(problem))
        mu = l2 if problem.convex else None
        return Constants(float(L.max()), mu, mu, L, None, True)
    L, mus = bounds
    counted = problem.weights > 0
    mu = float(mus[counted].min())
    if not problem.convex:
        return Constants(float(L.max()), None, None, L, None, False)
    return Constants(float(L.max()), mu, _global_mu(problem, mu), L, mus, False)


def _ridge(problem) -> float:
    free = getattr(problem, "intercept", False)
    return 0.0 if free else sum(p.curvature()[0] for p in getattr(problem, "penalties", ()))


def _global_mu(problem, mu: float) -> float:
    H = problem.pooled_hessian()
    if H is None:
        return mu
    return max(float(extreme_eigenvalues(H)[1]), mu)


def _local_smoothness(problem) -> np.ndarray:
    """The largest Hessian eigenvalue of each client met on a path of gradient descent, doubled.

    A pilot run of gradient descent with backtracking goes from x0 towards the optimum, and power
    iteration measures every client's curvature at its points. It is an estimate on that path.
    """
    with jax.enable_x64(True):
        objectives = problem.prepare().objectives
        x, largest = problem.initial(), np.zeros(len(problem))
        length = 1.0
        value, gradient = problem.evaluate(x)
        for k in range(_PILOT_STEPS):
            if k % 5 == 0:
                largest = np.maximum(largest, _curvatures(problem, objectives, x))
            squared = sum(float((g**2).sum()) for g in jax.tree.leaves(gradient))
            while length > 1e-12:
                trial = jax.tree.map(lambda a, g, t=length: a - t * g, x, gradient)
                new, slope = problem.evaluate(trial)
                if np.isfinite(new) and new <= value - 0.5 * length * squared:
                    break
                length /= 2
            else:
                break
            x, value, gradient, length = trial, new, slope, 2 * length
        largest = np.maximum(largest, _curvatures(problem, objectives, x))
    return 2 * np.maximum(largest, 1e-12)


@jax.jit
def _power_iteration(objectives, x):
    flat, unravel = flatten_util.ravel_pytree(x)
    start = jax.random.normal(jax.random.key(0), flat.shape, flat.dtype)

    def one(objective):
        def step(_, carry):
            v, _ = carry
            v = v / jnp.maximum(jnp.linalg.norm(v), 1e-300 if v.dtype == jnp.float64 else 1e-30)
            v = flatten_util.ravel_pytree(objective.hessian_product(x, unravel(v)))[0]
            return v, jnp.linalg.norm(v)

        return jax.lax.fori_loop(0, _POWER_STEPS, step, (start, jnp.asarray(0.0, flat.dtype)))[1]

    return [jax.vmap(one)(o) for o in objectives]


def _curvatures(problem, objectives, x) -> np.ndarray:
    x = jax.tree.map(lambda leaf: jnp.asarray(leaf, problem.dtype), x)
    parts = _power_iteration(objectives, x)
    out = np.zeros(len(problem))
    for members, part in zip(problem.prepare().clients, parts, strict=True):
        out[np.asarray(members)] = np.asarray(part)
    return out
