"""A client's objective from any JAX loss of one row, over any pytree of parameters."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import flatten_util

from accord import tree


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("features", "targets", "row_weights", "rows", "l2"),
    meta_fields=("loss",),
)
@dataclass(frozen=True)
class CustomObjective:
    """f(x) = sum_r row_weights_r loss(x, features_r, targets_r) + (l2/2) ||x||^2.

    ``loss(x, feature_row, target) -> scalar`` is differentiable JAX code.
    """

    features: Any
    targets: Any
    row_weights: Any
    rows: Any
    l2: Any
    loss: Callable

    def _value_over(self, x, features, targets, weights):
        losses = jax.vmap(self.loss, in_axes=(None, 0, 0))(x, features, targets)
        return weights @ losses + 0.5 * self.l2 * tree.dot(x, x)

    def value(self, x):
        """f(x)."""
        return self._value_over(x, self.features, self.targets, self.row_weights)

    def grad(self, x):
        """grad f(x), in the structure of x."""
        return jax.grad(self.value)(x)

    def hessian_product(self, x, direction):
        """The Hessian of f at x applied to a direction."""
        return jax.jvp(self.grad, (x,), (direction,))[1]

    def second_derivative(self, x):
        """The Hessian of f at x over the raveled parameters (P, P)."""
        flat, unravel = flatten_util.ravel_pytree(x)
        return jax.hessian(lambda v: self.value(unravel(v)))(flat)

    def scaled(self, factor):
        """factor * f."""
        return replace(self, row_weights=factor * self.row_weights, l2=factor * self.l2)

    def draw(self, key, batch_size):
        """Indices of ``batch_size`` rows, uniform with replacement over the client's true rows."""
        return jax.random.randint(key, (batch_size,), 0, jnp.maximum(self.rows, 1))

    def minibatch_grad(self, x, index):
        """The unbiased gradient estimate from the rows ``index``, as ``draw`` gives them."""
        weights = self.row_weights[index] * self.rows / index.shape[0]
        batch = self.features[index], self.targets[index], weights
        return jax.grad(self._value_over)(x, *batch)
