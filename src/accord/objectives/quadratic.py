"""Quadratic objectives, with factorisations for their proximal steps."""

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

    def second_derivative(self, x):
        """H."""
        return self.hessian

    def rounding(self, x):
        """The rounding error of ``grad`` in units of the precision, entry by entry, in the shape of x.

        That of least squares whose moments were summed from rows: f(shift) is half their mean squared
        residual, and sums of products of two columns are at most the product of their norms.
        """
        norms = jnp.sqrt(jnp.diag(self.hessian))
        moved = norms @ (abs(x - self.shift) + abs(self.shift))
        return norms * (moved + jnp.sqrt(2 * abs(self.constant))) + abs(self.linear)

    def scaled(self, factor):
        """factor * f."""
        spectrum = self.spectrum and (factor * self.spectrum[0], self.spectrum[1])
        return replace(
            self,
            hessian=factor * self.hessian,
            linear=factor * self.linear,
            constant=factor * self.constant,
            spectrum=spectrum,
        )

    def prox(self, centre, penalty):
        """The minimiser of f(x) + (penalty/2) ||x - centre||^2."""
        values, vectors = self.spectrum
        pull = self.linear + penalty * (centre - self.shift)
        return self.shift + vectors @ ((vectors.T @ pull) / (values + penalty))


def diagonalised(quadratic: Quadratic) -> Quadratic:
    """The same quadratics (leading client axis) with their spectrum."""
    return replace(quadratic, spectrum=tuple(jnp.linalg.eigh(quadratic.hessian)))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FactoredQuadratic(Quadratic):
    """A quadratic with the inverse of H + diag(penalty), for one penalty: one product a proximal step.

    ``penalty`` is a number, or one for each coordinate.
    """

    inverse: Any = ()

    def prox(self, centre, penalty):
        """The minimiser of f(x) + (1/2) sum_k penalty_k (x_k - centre_k)^2, for the penalty factored."""
        return self.shift + self.inverse @ (self.linear + penalty * (centre - self.shift))


def factored(quadratic: Quadratic, penalty) -> FactoredQuadratic:
    """The quadratic, diagonalised, with its proximal step for one penalty."""
    values, vectors = quadratic.spectrum
    if jnp.ndim(penalty):
        inverse = jnp.linalg.inv(quadratic.hessian + jnp.diag(penalty))
    else:
        inverse = (vectors / (values + penalty)) @ vectors.T
    parts = quadratic.hessian, quadratic.linear, quadratic.constant, quadratic.shift
    return FactoredQuadratic(*parts, inverse=0.5 * (inverse + inverse.T))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SquaredDistance:
    """f(x) = (weight/2) ||x - target||^2, with ``target`` in the shape of x: averaging's objective."""

    target: Any
    weight: Any

    def value(self, x):
        """f(x)."""
        return 0.5 * self.weight * ((x - self.target) ** 2).sum()

    def grad(self, x):
        """grad f(x)."""
        return self.weight * (x - self.target)

    def hessian_product(self, x, direction):
        """The Hessian applied to a direction."""
        return self.weight * direction

    def second_derivative(self, x):
        """The Hessian over the raveled parameters (P, P)."""
        return self.weight * jnp.eye(x.size, dtype=x.dtype)

    def scaled(self, factor):
        """factor * f."""
        return replace(self, weight=factor * self.weight)

    def prox(self, centre, penalty):
        """The minimiser of f(x) + (penalty/2) ||x - centre||^2; the penalty may differ by coordinate."""
        return (self.weight * self.target + penalty * centre) / (self.weight + penalty)
