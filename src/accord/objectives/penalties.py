"""Smooth penalties on the coefficients, added to every client's objective."""

from dataclasses import dataclass, replace
from typing import Any

import jax


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
