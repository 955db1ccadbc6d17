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
        pulled = _transposed_product(features, residuals)
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

    def second_derivative(self, x):
        """The Hessian of f at x over the raveled parameters (P, P)."""
        # The penalties act coordinate by coordinate.
        bent = [self._penalised(p.bend, x, jnp.ones_like(x)) for p in self.penalties]
        return self._bent_rows(x, self.row_weights) + _diagonal(x, bent)

    def least_second_derivative(self, x, spread, radius):
        """A lower bound, as a matrix (P, P), on the Hessian of f within a ball around x.

        The ball holds the x + v with |eta(v)| <= radius ||spread a|| for the predictor eta of every row
        a (with its 1 for the intercept); ``spread`` is (k, d), or (k, d + 1). For softmax no two
        classes' predictors may move apart by more than that. A penalty counts with its least curvature.
        """
        moved = self._predict(self.features, spread.T)
        reach = radius * jnp.sqrt((moved**2).sum(1))
        kept = self.loss.remaining(self._predict(self.features, x), self.targets, reach)
        least = [
            self._penalised(lambda v, p=p: p.curvature()[0] * jnp.ones_like(v), x)
            for p in self.penalties
        ]
        return self._bent_rows(x, self.row_weights * kept) + _diagonal(x, least)

    def _bent_rows(self, x, weights):
        """sum_r weights_r times the Hessian of row r's loss, (P, P)."""
        eta = self._predict(self.features, x)
        rows = self.features
        if self.intercept:
            rows = jnp.concatenate([rows, jnp.ones_like(rows[:, :1])], axis=1)
        if eta.ndim == 1:
            bent = weights * self.loss.bend(eta, self.targets, jnp.ones_like(eta))
            return _transposed_product(rows, bent[:, None] * rows)

        def towards(direction):
            bent = self._weigh(weights, self.loss.bend(eta, self.targets, direction[None]))
            scaled = rows[:, :, None] * bent[:, None, :]
            return _transposed_product(rows, scaled)

        # (class, feature, feature, class) -> (feature, class) x (feature, class).
        blocks = lax.map(towards, jnp.eye(eta.shape[1], dtype=eta.dtype))
        return blocks.transpose(1, 0, 2, 3).reshape(x.size, x.size)

    def rounding(self, x):
        """The rounding error of ``grad`` in units of the precision, entry by entry, in the shape of x."""
        eta = self._predict(self.features, x)
        terms = self._predict(abs(self.features), abs(x))
        slopes = self.loss.rounding(eta, self.targets, terms)
        total = self._pull_back(abs(self.features), self._weigh(self.row_weights, slopes))
        return total + sum(abs(self._penalised(p.grad, x)) for p in self.penalties)

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


def _diagonal(x, parts):
    """The matrix (P, P) with the sum of the parts, each in the shape of x, on its diagonal."""
    return jnp.diag(sum(parts, jnp.zeros_like(x)).ravel())


def _transposed_product(A, B):
    """A' B without a transposed copy of A, which XLA makes for a single client."""
    return lax.dot_general(A, B, (((0,), (0,)), ((), ())))
