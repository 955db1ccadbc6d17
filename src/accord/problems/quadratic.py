"""Problems given by their matrices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from accord.data.clients import Clients
from accord.objectives import Quadratic, SquaredDistance, diagonalised
from accord.problems.base import Problem, finite_numbers
from accord.problems.spectra import extreme_eigenvalues
from accord.reference import Reference, solve, solve_quadratic


def quadratic_on_device(quadratic: Quadratic, dtype, layout) -> Quadratic:
    """The quadratics in a dtype, diagonalised where the layout is "spectrum"."""
    quadratic = jax.tree.map(jnp.asarray, quadratic)
    if layout == "spectrum":
        quadratic = diagonalised(quadratic)
    return jax.tree.map(lambda leaf: leaf.astype(dtype), quadratic)


class QuadraticProblem(Problem):
    """f_i(x) = (1/2) <x, H_i x> - <b_i, x> + c_i, given by its matrices."""

    offers = frozenset({"grad", "prox", "hessian_product", "second_derivative"})

    def __init__(
        self, hessians, linears, constants=None, weights=None, dtype="float64", shift=None
    ):
        linears = finite_numbers("linears", linears)
        if linears.ndim != 2:
            raise ValueError(f"linears: shape {linears.shape}; expected (clients, d)")
        m, d = linears.shape
        hessians = finite_numbers("hessians", hessians, (m, d, d))
        symmetric = np.allclose(hessians, np.swapaxes(hessians, 1, 2))
        if not symmetric or np.linalg.eigvalsh(hessians).min() < -1e-9 * abs(hessians).max():
            raise ValueError("hessians: expected symmetric positive semi-definite matrices")
        constants = finite_numbers(
            "constants", np.zeros(m) if constants is None else constants, (m,)
        )
        shift = np.zeros(d) if shift is None else shift
        self._given = Quadratic(hessians, linears, constants, np.broadcast_to(shift, (m, d)))
        super().__init__(Clients.without_data(m, d), "equal", dtype)
        self.name = "quadratic"
        if weights is not None:
            weights = finite_numbers("weights", weights, (m,))
            if (weights < 0).any() or not weights.sum() > 0:
                raise ValueError(f"weights: expected {m} numbers >= 0 with a positive sum")
            self.weights = weights / weights.sum()

    def initial(self):
        return np.zeros(self._given.linear.shape[1], self.dtype)

    def _build(self, bucket, dtype, layout):
        return quadratic_on_device(self._given, dtype, layout)

    def _layout(self, needs):
        return "spectrum" if "prox" in needs else "moments"

    def curvature(self):
        return extreme_eigenvalues(self._given.hessian)

    def quadratics(self):
        """Every f_i as it was given."""
        return self._given

    def pooled_hessian(self):
        """The Hessian of F."""
        return np.tensordot(self.weights, self._given.hessian, 1)

    @functools.cached_property
    def _reference(self):
        H, b = self.pooled_hessian(), self.weights @ self._given.linear
        return solve_quadratic(self, H, self._given.shift[0] + solve(H, b)[0])


class AveragingProblem(Problem):
    """f_i(x) = (1/2) ||x - values_i||^2 with equal weights."""

    offers = frozenset({"grad", "prox", "hessian_product", "second_derivative"})
    name = "averaging"

    def __init__(self, values, dtype="float64"):
        self._values = values
        super().__init__(Clients.without_data(*values.shape), "equal", dtype)

    def initial(self):
        return np.zeros(self._values.shape[1], self.dtype)

    def _build(self, bucket, dtype, layout):
        return SquaredDistance(jnp.asarray(self._values, dtype), jnp.ones(len(self), dtype))

    def curvature(self):
        return np.ones(len(self)), np.ones(len(self))

    def quadratics(self):
        """Every f_i with the identity as its Hessian, around its reading."""
        m, d = self._values.shape
        identity = np.broadcast_to(np.eye(d), (m, d, d))
        return Quadratic(identity, np.zeros((m, d)), np.zeros(m), self._values)

    @property
    def strongly_convex(self):
        return True

    @functools.cached_property
    def _reference(self):
        mean = self.weights @ self._values
        objective, gradient = self.evaluate(mean)
        return Reference(mean, objective, float(np.linalg.norm(gradient)), True)
