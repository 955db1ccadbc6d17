"""Losses of a linear predictor: value, slope and curvature of one row.

``eta`` is the predictor, of shape (n,) or, for softmax, (n, C); ``y`` are the n targets. ``slope`` is
the derivative in eta, ``bend`` the second derivative applied to a direction. ``curvature`` bounds the
second derivative from above (None: unbounded); ``flattens`` says that it vanishes only at infinity.
``remaining`` bounds it from below nearby: where no predictor has moved by more than ``reach`` (n,), for
softmax no two by more than that relative to each other, ``bend`` is at least that many times what it is
here. ``rounding`` bounds the rounding error of ``slope`` in units of the precision, where the magnitudes
that eta is a sum of add up to ``terms``, in the shape of eta.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class SquaredLoss:
    """(1/2) (eta - y)^2."""

    curvature = 1.0
    flattens = False

    def value(self, eta, y):
        return 0.5 * (eta - y) ** 2

    def slope(self, eta, y):
        return eta - y

    def bend(self, eta, y, direction):
        return direction

    def remaining(self, eta, y, reach):
        return 1.0 + 0 * reach

    def rounding(self, eta, y, terms):
        return terms + abs(y)


@dataclass(frozen=True)
class LogisticLoss:
    """log(1 + exp(eta)) - y eta, with labels y in {0, 1}."""

    curvature = 0.25
    flattens = True

    def value(self, eta, y):
        return jnp.logaddexp(0.0, eta) - y * eta

    def slope(self, eta, y):
        return jax.nn.sigmoid(eta) - y

    def bend(self, eta, y, direction):
        p = jax.nn.sigmoid(eta)
        return p * (1 - p) * direction

    def remaining(self, eta, y, reach):
        # The curvature sigma(1 - sigma) falls with |eta|.
        far = abs(eta) + reach
        here, there = jnp.exp(-abs(eta)), jnp.exp(-far)
        return jnp.exp(-reach) * ((1 + here) / (1 + there)) ** 2

    def rounding(self, eta, y, terms):
        # The difference of two numbers near one is no better than they are.
        return jax.nn.sigmoid(eta) + abs(y) + self.bend(eta, y, terms)


@dataclass(frozen=True)
class SoftmaxLoss:
    """logsumexp(eta) - eta[y], with labels y in 0 .. classes - 1 and eta of shape (n, classes)."""

    classes: int

    curvature = 0.5
    flattens = True

    def _one_hot(self, eta, y):
        return (y[:, None] == jnp.arange(self.classes)).astype(eta.dtype)

    def value(self, eta, y):
        return jax.nn.logsumexp(eta, axis=1) - (self._one_hot(eta, y) * eta).sum(1)

    def slope(self, eta, y):
        return jax.nn.softmax(eta, axis=1) - self._one_hot(eta, y)

    def bend(self, eta, y, direction):
        p = jax.nn.softmax(eta, axis=1)
        return p * (direction - (p * direction).sum(1, keepdims=True))

    def remaining(self, eta, y, reach):
        # |E (v - E v)^2 (d - E d)| <= (max d - min d) Var v, integrated along the way.
        return jnp.exp(-reach)

    def rounding(self, eta, y, terms):
        p = jax.nn.softmax(eta, axis=1)
        return p * (1 + terms + (p * terms).sum(1, keepdims=True)) + self._one_hot(eta, y)


@dataclass(frozen=True)
class PoissonLoss:
    """exp(eta) - y eta, with counts y >= 0; the log-likelihood's constant log(y!) is left out."""

    curvature = None
    flattens = True

    def value(self, eta, y):
        return jnp.exp(eta) - y * eta

    def slope(self, eta, y):
        return jnp.exp(eta) - y

    def bend(self, eta, y, direction):
        return jnp.exp(eta) * direction

    def remaining(self, eta, y, reach):
        return jnp.exp(-reach)

    def rounding(self, eta, y, terms):
        return jnp.exp(eta) * (1 + terms) + abs(y)


@dataclass(frozen=True)
class HuberLoss:
    """(1/2) r^2 where |r| <= threshold, threshold (|r| - threshold / 2) beyond; r = eta - y."""

    threshold: float = 1.0

    curvature = 1.0
    flattens = False

    def value(self, eta, y):
        r = abs(eta - y)
        inside = 0.5 * r**2
        return jnp.where(r <= self.threshold, inside, self.threshold * (r - 0.5 * self.threshold))

    def slope(self, eta, y):
        return jnp.clip(eta - y, -self.threshold, self.threshold)

    def bend(self, eta, y, direction):
        return jnp.where(abs(eta - y) <= self.threshold, direction, 0 * direction)

    def remaining(self, eta, y, reach):
        return jnp.where(abs(eta - y) + reach <= self.threshold, 1.0, 0.0)

    def rounding(self, eta, y, terms):
        return terms + jnp.minimum(abs(y), self.threshold)
