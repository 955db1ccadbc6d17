"""The optimum by a solver that shares nothing with the methods it judges."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax import flatten_util, tree_util

DENSE_LIMIT = 700
"""The most parameters for which Newton's method forms the Hessian of F."""

_FAR = {"float64": 1e-4, "float32": 1e-2}
"""A Newton step longer than this share of ||x||, at a vanishing gradient, leads to infinity."""

_NO_MINIMISER = (
    "reference: no minimiser was found (gradient norm {norm:.1e} after Newton's method); the classes may "
    "be separable, a category may have one outcome only, or columns may be collinear: add l2 > 0"
)


class Reference(NamedTuple):
    """The minimiser of F.

    ``x``, ``objective`` F(x), ``gradient_norm`` ||grad F(x)||; ``unique`` is False where F is flat in
    some direction (then x is the solution of least norm, or one of several).
    """

    x: Any
    objective: float
    gradient_norm: float
    unique: bool


def solve(H: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, bool]:
    """(x, unique): the solution of H x = b, of least norm where H is singular.

    H is brought to a unit diagonal first, so that columns of very different scales are no trouble.
    """
    units = np.sqrt(np.where(np.diag(H) > 0, np.diag(H), 1.0))
    values, vectors = np.linalg.eigh(H / np.outer(units, units))
    tolerance = 64 * len(b) * np.finfo(float).eps
    keep = values > values[-1] * tolerance
    if not keep.all():
        # Least norm is meant in x itself, not in scaled coordinates.
        values, vectors = np.linalg.eigh(H)
        keep, units = values > values[-1] * tolerance, np.ones(len(b))
        if not keep.any():
            return np.zeros(len(b)), False
    vectors = vectors[:, keep] / units[:, None]
    x = vectors @ (vectors.T @ b / values[keep])
    for _ in range(2):
        x = x + vectors @ (vectors.T @ (b - H @ x) / values[keep])
    return x, bool(keep.all())


def solve_quadratic(problem, H: np.ndarray, x: np.ndarray) -> Reference:
    """The minimiser of a quadratic F from a first solution, refined with gradients from the data."""
    for _ in range(2):
        step, unique = solve(H, problem.gradient(x).astype(float))
        x = x - step
    objective, gradient = problem.evaluate(x)
    norm = float(np.linalg.norm(gradient))
    scale = max(1.0, float(np.linalg.norm(problem.client_gradients(0 * x), axis=1).max()))
    if not norm <= (1e-9 if problem.dtype == "float64" else 1e-3) * scale:
        raise ValueError(
            f"reference: F has no minimiser to be found (gradient norm {norm:.1e}): it falls without bound "
            "in a direction without curvature, or its columns differ too much in scale"
        )
    return Reference(x, float(objective), norm, unique)


def minimise(problem, tolerance: float = 1e-12) -> Reference:
    """The minimiser of a convex F by L-BFGS, then Newton's method.

    Raises ``ValueError`` where there is none, as for separable classes, with the likely cause.
    """
    with jax.enable_x64(True):
        return _minimise(_Flat(problem), tolerance)


def minimise_regularised(problem, tolerance: float = 1e-12) -> Reference:
    """The minimiser of a convex F with an l1 regulariser.

    L-BFGS-B on x = u - v with u, v >= 0 finds the signs, then Newton's method on the entries that are not
    zero, until the zeros stay. Raises ``ValueError`` where there is none, with the likely cause.
    """
    with jax.enable_x64(True):
        return _minimise_regularised(problem, tolerance)


def _minimise_regularised(problem, tolerance) -> Reference:
    from scipy.optimize import minimize

    smooth, whole = _Flat(problem.without_regulariser()), _Flat(problem)
    weights = smooth.ravel(problem.regulariser.weights(smooth.tree(smooth.start)))
    size = weights.size
    first = smooth.hessian(smooth.start)
    units = np.sqrt(np.where(np.diag(first) > 0, np.diag(first), 1.0))

    def split(parts):
        u = (parts[:size] - parts[size:]) / units
        value, gradient = smooth.evaluate(u)
        sided = np.concatenate([gradient + weights, weights - gradient]) / np.tile(units, 2)
        return value + weights / units @ (parts[:size] + parts[size:]), sided

    options = {"maxiter": 2000, "maxfun": 4000, "ftol": 0.0, "gtol": 1e-9}
    found = minimize(
        split, np.zeros(2 * size), jac=True, method="L-BFGS-B", bounds=[(0, None)] * (2 * size),
        options=options,
    ).x  # fmt: skip
    x = (found[:size] - found[size:]) / units
    scale = max(1.0, smooth.spread(smooth.start), smooth.spread(x))
    target = scale * (tolerance if problem.dtype == "float64" else 1e-5)
    active = (abs(x) * units > 1e-6 * max(abs(x * units).max(), 1e-300)) | (weights == 0)
    for _ in range(4 * size + 20):
        x = _on_active(smooth, np.where(active, x, 0.0), active, weights)
        slope = smooth.evaluate(x)[1]
        wrong = ~active & (abs(slope) > weights + target)
        if not wrong.any():
            break
        # The worst of the zeros is let go, in the direction in which F falls.
        k = np.argmax(np.where(wrong, abs(slope) - weights, -np.inf))
        active[k], x[k] = True, -np.sign(slope[k]) * 1e-12
    objective, gradient = whole.evaluate(x)
    norm = float(np.linalg.norm(gradient))
    if not norm <= target:
        raise ValueError(_NO_MINIMISER.format(norm=norm))
    kept = np.flatnonzero(active)
    unique = _check_curved(whole, x, first, norm, kept) if len(kept) else True
    return Reference(tree_util.tree_map(np.asarray, whole.tree(x)), objective, norm, unique)


def _on_active(smooth: "_Flat", x, active, weights):
    """Newton's method on the active entries; the first one that a step brings to zero is let go there."""
    for _ in range(200):
        kept = np.flatnonzero(active)
        if not len(kept):
            break
        value, gradient = smooth.evaluate(x)
        value += weights @ abs(x)
        slope = gradient + weights * np.sign(x)
        step = np.zeros(len(x))
        step[kept] = -solve(smooth.hessian(x)[np.ix_(kept, kept)], slope[kept])[0]
        crossing = active & (weights > 0) & (x * (x + step) < 0)
        ends = np.where(crossing, -x / np.where(step == 0, 1, step), 1.0)
        length = first = float(ends.min())
        while length > 1e-10:
            trial = smooth.evaluate(x + length * step)[0] + weights @ abs(x + length * step)
            if trial <= value + 1e-13 * abs(value):
                break
            length /= 2
        x = x + length * step
        if length == first and crossing.any():
            hit = crossing & (ends == first)
            x[hit], active[hit] = 0.0, False
        elif np.linalg.norm(step) <= 1e-14 * np.linalg.norm(x):
            break
    return x


class _Flat:
    """A problem over raveled parameters, in double precision outside."""

    def __init__(self, problem):
        self.problem = problem
        start, self.unravel = flatten_util.ravel_pytree(problem.initial())
        self.start = np.asarray(start, float)

    def tree(self, v):
        return self.unravel(np.asarray(v, self.problem.dtype))

    def evaluate(self, v):
        objective, gradient = self.problem.evaluate(self.tree(v))
        return float(objective), self.ravel(gradient)

    def ravel(self, tree):
        return np.asarray(flatten_util.ravel_pytree(tree)[0], float)

    def hessian(self, v):
        return np.asarray(self.problem.hessian(self.tree(v)), float)

    def product(self, v, direction):
        image = self.problem.hessian_product(self.tree(v), self.tree(np.ravel(direction)))
        return self.ravel(image)

    def spread(self, v) -> float:
        """The weighted mean norm of the clients' gradients: the scale that grad F is small against."""
        leaves = tree_util.tree_leaves(self.problem.client_gradients(self.tree(v)))
        squares = sum((g**2).reshape(len(g), -1).sum(1) for g in leaves)
        return float(self.problem.weights @ np.sqrt(squares))


def _minimise(flat: _Flat, tolerance: float) -> Reference:
    from scipy.optimize import minimize

    dense = flat.start.size <= DENSE_LIMIT
    units = np.ones(flat.start.size)
    if dense:
        first = flat.hessian(flat.start)
        diagonal = np.diag(first)
        units = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))

    def scaled(u):
        objective, gradient = flat.evaluate(u / units)
        return objective, gradient / units

    options = {"maxiter": 100 if dense else 2000, "maxfun": 4000, "ftol": 0.0, "gtol": 1e-8}
    x = minimize(scaled, flat.start * units, jac=True, method="L-BFGS-B", options=options).x / units
    scale = max(1.0, flat.spread(flat.start), flat.spread(x))
    target = scale * (tolerance if flat.problem.dtype == "float64" else 1e-5)
    x, objective, norm = _newton(flat, x, 0.1 * target, dense)
    if not norm <= target:
        raise ValueError(_NO_MINIMISER.format(norm=norm))
    unique = _check_curved(flat, x, first, norm) if dense else _check_stays(flat, x, norm)
    model = tree_util.tree_map(np.asarray, flat.tree(x))
    return Reference(model, objective, norm, unique)


def _newton(flat: _Flat, x, enough: float, dense: bool):
    """Newton steps, halved until the gradient norm falls: (x, F(x), gradient norm)."""
    objective, gradient = flat.evaluate(x)
    best = np.linalg.norm(gradient)
    for _ in range(100):
        if best <= enough:
            break
        step = -solve(flat.hessian(x), gradient)[0] if dense else _cg_step(flat, x, gradient)
        length = 1.0
        while length > 1e-6:
            trial = x + length * step
            value, slope = flat.evaluate(trial)
            if np.linalg.norm(slope) < best:
                break
            length /= 2
        else:
            break
        x, objective, gradient, best = trial, value, slope, np.linalg.norm(slope)
    return x, objective, float(best)


def _cg_step(flat: _Flat, x, gradient):
    from scipy.sparse.linalg import LinearOperator, cg

    shape = (x.size, x.size)
    product = LinearOperator(shape, matvec=lambda v: flat.product(x, v), dtype=float)
    return cg(product, -gradient, rtol=1e-10, maxiter=10 * x.size)[0]


def _check_curved(flat: _Flat, x, first, norm, kept=slice(None)) -> bool:
    """Whether F is curved in every direction of the entries kept; raises where x escapes to infinity.

    Where F has no minimiser its gradient vanishes at infinity: a Newton step stays long however small
    the gradient, and losses whose curvature vanishes only there have lost rank on the way.
    """
    H, first = flat.hessian(x)[kept][:, kept], first[kept][:, kept]
    step, unique = solve(H, flat.evaluate(x)[1][kept])
    escapes = np.linalg.norm(step) > _FAR[flat.problem.dtype] * np.linalg.norm(x) + 1e-9
    if getattr(getattr(flat.problem, "loss", None), "flattens", False):
        escapes |= rank(H) < rank(first)
    if escapes:
        raise ValueError(_NO_MINIMISER.format(norm=norm))
    return unique


def _check_stays(flat: _Flat, x, norm) -> bool:
    """The same without a Hessian: x stays where a penalty holds it, or a Newton step is short.

    Whether F is flat in some direction is not known then, and x is not called unique.
    """
    if flat.problem.strongly_convex:
        return True
    step = _cg_step(flat, x, flat.evaluate(x)[1])
    if np.linalg.norm(step) > _FAR[flat.problem.dtype] * np.linalg.norm(x) + 1e-9:
        raise ValueError(_NO_MINIMISER.format(norm=norm))
    return False


def rank(H) -> int:
    """The rank of a Hessian to rounding, whatever the scales of the columns."""
    units = np.sqrt(np.where(np.diag(H) > 0, np.diag(H), 1.0))
    values = np.linalg.eigvalsh(H / np.outer(units, units))
    return int((values > values[-1] * 64 * len(H) * np.finfo(float).eps).sum())
