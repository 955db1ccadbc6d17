"""A quadratic objective, with a factorisation that serves every penalty parameter."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Quadratic:
    """f(x) = (1/2) <x, H x> - <b, x> + constant.

    ``hessian`` (d, d), ``linear`` (d,). ``spectrum`` is () or the pair (eigenvalues (d,),
    eigenvectors (d, d)) of H: one factorisation, made once, which solves the proximal step for every
    penalty, where a Cholesky factor would serve one.
    """

    hessian: Any
    linear: Any
    constant: Any
    spectrum: tuple = ()

    def value(self, x):
        """f(x)."""
        return 0.5 * (x @ (self.hessian @ x)) - self.linear @ x + self.constant

    def grad(self, x):
        """grad f(x)."""
        return self.hessian @ x - self.linear

    def hessian_product(self, x, direction):
        """H applied to a direction."""
        return self.hessian @ direction

    def prox(self, centre, penalty):
        """The minimiser of f(x) + (penalty/2) ||x - centre||^2."""
        values, vectors = self.spectrum
        return vectors @ ((vectors.T @ (self.linear + penalty * centre)) / (values + penalty))


def diagonalised(quadratic: Quadratic) -> Quadratic:
    """The same quadratics (leading client axis) with their spectrum."""
    values, vectors = jnp.linalg.eigh(quadratic.hessian)
    return Quadratic(quadratic.hessian, quadratic.linear, quadratic.constant, (values, vectors))
