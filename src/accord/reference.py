"""The optimum by a solver that shares nothing with the methods it judges."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax import flatten_util, tree_util


class Reference(NamedTuple):
    """The minimiser of F.

    ``x``, ``objective`` F(x), ``gradient_norm`` ||grad F(x)||; ``unique`` is False where F is flat in
    some direction (then x is the solution of least norm, or one of several).
    """

    x: Any
    objective: float
    gradient_norm: float
    unique: bool


def solve_quadratic(problem, H: np.ndarray, b: np.ndarray) -> Reference:
    """The solution of H x = b of least norm, with two steps of iterative refinement."""
    values, vectors = np.linalg.eigh(H)
    keep = values > values[-1] * len(b) * np.finfo(float).eps
    inverse = vectors[:, keep] / values[keep]
    x = inverse @ (vectors[:, keep].T @ b)
    for _ in range(2):
        x = x + inverse @ (vectors[:, keep].T @ (b - H @ x))
    objective, gradient = problem.evaluate(x)
    return Reference(x, float(objective), float(np.linalg.norm(gradient)), bool(keep.all()))


def minimise(problem, tolerance: float = 1e-12, steps: int = 100) -> Reference:
    """The minimiser of a convex F by L-BFGS, then Newton's method with conjugate gradients.

    Raises ``ValueError`` where the gradient does not vanish, with the likely cause.
    """
    with jax.enable_x64(True):
        return _minimise(problem, tolerance, steps)


def _minimise(problem, tolerance, steps) -> Reference:
    from scipy.optimize import minimize
    from scipy.sparse.linalg import LinearOperator, cg

    start, unravel = flatten_util.ravel_pytree(problem.initial())
    start = np.asarray(start, float)

    def flat(tree):
        return np.asarray(flatten_util.ravel_pytree(tree)[0], float)

    def evaluate(v):
        objective, gradient = problem.evaluate(unravel(v))
        return float(objective), flat(gradient)

    options = {"maxiter": 2000, "maxfun": 4000, "ftol": 0.0, "gtol": 1e-8}
    x = minimize(evaluate, start, jac=True, method="L-BFGS-B", options=options).x
    spread = [np.linalg.norm(g) for g in _flat_clients(problem, unravel(x))]
    scale = max(1.0, float(np.dot(problem.weights, spread)))
    target = tolerance * scale if problem.dtype == "float64" else 1e-5 * scale
    objective, gradient = evaluate(x)
    best = np.linalg.norm(gradient)
    for _ in range(steps):
        if best <= 0.1 * target:
            break
        product = LinearOperator(
            (x.size, x.size),
            matvec=lambda v, x=x: flat(problem.hessian_product(unravel(x), unravel(np.asarray(v)))),
            dtype=float,
        )
        step, _ = cg(product, -gradient, rtol=1e-10, maxiter=10 * x.size)
        length = 1.0
        while length > 1e-6:
            trial = x + length * step
            value, slope = evaluate(trial)
            if np.linalg.norm(slope) < best:
                break
            length /= 2
        else:
            break
        x, objective, gradient, best = trial, value, slope, np.linalg.norm(slope)
    if not best <= target:
        raise ValueError(
            f"reference: no minimiser was found (gradient norm {best:.1e} after Newton's method); "
            "the classes may be separable or columns collinear: add l2 > 0"
        )
    return Reference(tree_util.tree_map(np.asarray, unravel(x)), objective, float(best), _is_curved(problem, unravel, x))


def _flat_clients(problem, x):
    gradients = problem.client_gradients(x)
    leaves = [leaf.reshape(len(problem), -1) for leaf in tree_util.tree_leaves(gradients)]
    return np.concatenate(leaves, axis=1)


def _is_curved(problem, unravel, x) -> bool:
    """Whether F has a positive curvature in every direction at x (cheap for few parameters)."""
    if x.size > 256:
        return True
    basis = np.eye(x.size)
    columns = [
        flatten_util.ravel_pytree(problem.hessian_product(unravel(x), unravel(v)))[0] for v in basis
    ]
    values = np.linalg.eigvalsh(np.asarray(columns, float))
    return bool(values[0] > values[-1] * x.size * np.finfo(float).eps)
