"""Penalties on the coefficients: smooth ones in every client's objective, and the server's regulariser."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Ridge:
    """(l2/2) ||x||^2."""

    l2: Any

    def value(self, x):
        return 0.5 * self.l2 * (x * x).sum()

    def grad(self, x):
        return self.l2 * x

    def bend(self, x, direction):
        return self.l2 * direction

    def scaled(self, factor):
        """factor times the penalty."""
        return replace(self, l2=factor * self.l2)

    def curvature(self) -> tuple[float, float]:
        """(least, largest) second derivative."""
        return self.l2, self.l2


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BoundedPenalty:
    """weight * sum_j alpha x_j^2 / (1 + alpha x_j^2), the non-convex penalty of Zhang et al. (2021)."""

    weight: Any
    alpha: Any

    def value(self, x):
        square = self.alpha * x * x
        return self.weight * (square / (1 + square)).sum()

    def grad(self, x):
        return 2 * self.weight * self.alpha * x / (1 + self.alpha * x * x) ** 2

    def bend(self, x, direction):
        square = self.alpha * x * x
        return 2 * self.weight * self.alpha * (1 - 3 * square) / (1 + square) ** 3 * direction

    def scaled(self, factor):
        """factor times the penalty."""
        return replace(self, weight=factor * self.weight)

    def curvature(self) -> tuple[float, float]:
        """(least, largest) second derivative: the least is at alpha x^2 = 1, the largest at 0."""
        return -0.5 * self.weight * self.alpha, 2 * self.weight * self.alpha


@partial(jax.tree_util.register_dataclass, data_fields=("l1",), meta_fields=("intercept",))
@dataclass(frozen=True)
class Lasso:
    """The regulariser h(x) = l1 ||x||_1, which the server meets with a proximal step.

    With ``intercept`` the last entry, or row, of x is free.
    """

    l1: Any
    intercept: bool = False

    def weights(self, x):
        """The weight of each |x_k|, in the shape of x."""
        weights = self.l1 * jnp.ones_like(x)
        return weights.at[-1].set(0.0) if self.intercept else weights

    def value(self, x):
        """h(x)."""
        return (self.weights(x) * abs(x)).sum()

    def prox(self, x, step):
        """The minimiser of h(y) + ||y - x||^2 / (2 step)."""
        return jnp.sign(x) * jnp.maximum(abs(x) - step * self.weights(x), 0)

    def least_subgradient(self, x, gradient):
        """The shortest vector of gradient + dh(x): zero exactly at the minimisers of F = f + h."""
        weights = self.weights(x)
        pulled = jnp.sign(gradient) * jnp.maximum(abs(gradient) - weights, 0)
        return jnp.where(x == 0, pulled, gradient + weights * jnp.sign(x))
