"""A client's objective with a linear predictor: mean loss over its rows, plus penalties."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("features", "targets", "row_weights", "rows", "penalties"),
    meta_fields=("loss", "intercept"),
)
@dataclass(frozen=True)
class LinearObjective:
    """f(x) = sum_r row_weights_r loss(<a_r, x>, y_r) + sum of penalties(x).

    ``features`` (n, d); ``targets`` (n,); ``row_weights`` (n,), summing to one over the client's
    ``rows`` true rows and zero on padding. x has shape (d,), or (d, C) for softmax; with
    ``intercept`` it has one more row, the last, which no penalty touches.
    """

    features: Any
    targets: Any
    row_weights: Any
    rows: Any
    penalties: tuple
    loss: Any
    intercept: bool = False

    def _predict(self, features, x):
        return features @ x[:-1] + x[-1] if self.intercept else features @ x

    def _pull_back(self, features, residuals):
        # A' r without a transposed copy of A, which XLA makes for a single client.
        pulled = lax.dot_general(features, residuals, (((0,), (0,)), ((), ())))
        if not self.intercept:
            return pulled
        return jnp.concatenate([pulled, residuals.sum(0)[None]])

    def _weigh(self, weights, residuals):
        return weights[:, None] * residuals if residuals.ndim == 2 else weights * residuals

    def _penalised(self, function, x, *directions):
        """A penalty's gradient-like function on the coefficients, zero on the intercept."""
        if not self.intercept:
            return function(x, *directions)
        inner = function(x[:-1], *(v[:-1] for v in directions))
        return jnp.concatenate([inner, 0 * x[-1:]])

    def value(self, x):
        """f(x)."""
        losses = self.loss.value(self._predict(self.features, x), self.targets)
        coefficients = x[:-1] if self.intercept else x
        return self.row_weights @ losses + sum(p.value(coefficients) for p in self.penalties)

    def _grad_over(self, x, features, targets, weights):
        slopes = self.loss.slope(self._predict(features, x), targets)
        g = self._pull_back(features, self._weigh(weights, slopes))
        return g + sum(self._penalised(p.grad, x) for p in self.penalties)

    def grad(self, x):
        """grad f(x), in the shape of x."""
        return self._grad_over(x, self.features, self.targets, self.row_weights)

    def hessian_product(self, x, direction):
        """The Hessian of f at x applied to a direction."""
        eta = self._predict(self.features, x)
        bent = self.loss.bend(eta, self.targets, self._predict(self.features, direction))
        product = self._pull_back(self.features, self._weigh(self.row_weights, bent))
        return product + sum(self._penalised(p.bend, x, direction) for p in self.penalties)

    def scaled(self, factor):
        """factor * f."""
        penalties = tuple(p.scaled(factor) for p in self.penalties)
        return replace(self, row_weights=factor * self.row_weights, penalties=penalties)

    def draw(self, key, batch_size):
        """Indices of ``batch_size`` rows, uniform with replacement over the client's true rows."""
        return jax.random.randint(key, (batch_size,), 0, jnp.maximum(self.rows, 1))

    def minibatch_grad(self, x, index):
        """The unbiased gradient estimate from the rows ``index``, as ``draw`` gives them."""
        weights = self.row_weights[index] * self.rows / index.shape[0]
        return self._grad_over(x, self.features[index], self.targets[index], weights)
