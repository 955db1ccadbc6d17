"""An objective over one vector, seen in rotated variables: f(V u)."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax

from accord.objectives import Quadratic, SquaredDistance


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rotated:
    """f(V u) for an objective over x = V u, with an orthogonal V (d, d)."""

    objective: Any
    basis: Any

    def value(self, u):
        """f(V u)."""
        return self.objective.value(self.basis @ u)

    def grad(self, u):
        """V' grad f(V u)."""
        return self.basis.T @ self.objective.grad(self.basis @ u)

    def hessian_product(self, u, direction):
        """V' H V applied to a direction."""
        image = self.objective.hessian_product(self.basis @ u, self.basis @ direction)
        return self.basis.T @ image

    @property
    def rows(self):
        """The rows that minibatches are drawn from."""
        return self.objective.rows

    def draw(self, key, batch_size):
        """Rows of a minibatch."""
        return self.objective.draw(key, batch_size)

    def minibatch_grad(self, u, index):
        """V' times the gradient estimate at V u."""
        return self.basis.T @ self.objective.minibatch_grad(self.basis @ u, index)


def rotated(objective, basis):
    """The objective in rotated variables; a quadratic stays one."""
    turn = basis.T
    if isinstance(objective, Quadratic):
        spectrum = objective.spectrum and (objective.spectrum[0], turn @ objective.spectrum[1])
        return dataclasses.replace(
            objective,
            hessian=turn @ objective.hessian @ basis,
            linear=turn @ objective.linear,
            shift=turn @ objective.shift,
            spectrum=spectrum,
        )
    if isinstance(objective, SquaredDistance):
        return dataclasses.replace(objective, target=turn @ objective.target)
    return Rotated(objective, basis)
