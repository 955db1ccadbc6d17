"""A quadratic objective, with a factorisation that serves every penalty parameter."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Quadratic:
    """f(x) = (1/2) <d, H d> - <b, d> + constant, with d = x - shift.

    ``hessian`` (d, d), ``linear`` b (d,), ``shift`` (d,). A shift near the optimum keeps value and gradient
    exact where targets are large and residuals small. ``spectrum`` is () or the pair (eigenvalues (d,),
    eigenvectors (d, d)) of H: one factorisation, made once, which solves the proximal step for every
    penalty, where a Cholesky factor would serve one.
    """

    hessian: Any
    linear: Any
    constant: Any
    shift: Any
    spectrum: tuple = ()

    def value(self, x):
        """f(x)."""
        d = x - self.shift
        return d @ (0.5 * (self.hessian @ d) - self.linear) + self.constant

    def grad(self, x):
        """grad f(x)."""
        return self.hessian @ (x - self.shift) - self.linear

    def hessian_product(self, x, direction):
        """H applied to a direction."""
        return self.hessian @ direction

    def prox(self, centre, penalty):
        """The minimiser of f(x) + (penalty/2) ||x - centre||^2."""
        values, vectors = self.spectrum
        pull = self.linear + penalty * (centre - self.shift)
        return self.shift + vectors @ ((vectors.T @ pull) / (values + penalty))


def diagonalised(quadratic: Quadratic) -> Quadratic:
    """The same quadratics (leading client axis) with their spectrum."""
    return replace(quadratic, spectrum=tuple(jnp.linalg.eigh(quadratic.hessian)))
