"""What is measured of a model, and what the measures say about going on: shared by all engines."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from accord import tree
from accord.core.messages import everyone
from accord.problems import value_and_client_gradients, with_regulariser

RUNNING, CONVERGED, DIVERGED, NOT_FINITE = range(4)


class Yardstick(NamedTuple):
    """What a run is measured against.

    ``gradient_norm`` and ``gap``: stop at or below both (-1: never); ``explosion`` and ``summit``: a
    gradient norm, or an objective, above it means divergence; ``finite``: a value that is
    not finite ends the run; ``optimum`` and ``least``: x* and F(x*), or None.
    """

    gradient_norm: Any = -1.0
    gap: Any = -1.0
    explosion: Any = jnp.inf
    summit: Any = jnp.inf
    finite: Any = True
    optimum: Any = None
    least: Any = None


def model_measures(
    objectives, weights, x, yardstick: Yardstick, regulariser=None
) -> dict[str, Any]:
    """objective and gradient_norm of F at x; gap and distance where the optimum is known."""
    value, gradient = everyone(value_and_client_gradients(objectives, x), weights)
    value, gradient = with_regulariser(x, value, gradient, regulariser)
    row = {"objective": value, "gradient_norm": tree.norm(gradient)}
    if yardstick.least is not None:
        row["gap"] = value - yardstick.least
    if yardstick.optimum is not None:
        row["distance"] = tree.norm(tree.subtract(x, yardstick.optimum))
    return row


def consensus_measures(models, weights, masks, x, penalty) -> dict[str, Any]:
    """consensus over the clients heard, and with a penalty rho the dual residual.

    ``models``, ``weights`` and ``masks`` have one entry per bucket with a leading client axis.
    """
    squares: Any = 0.0
    share: Any = 0.0
    largest: Any = 0.0
    for stack, w, mask in zip(models, weights, masks, strict=True):
        apart = jax.tree.leaves(jax.tree.map(lambda a, b: a - b, stack, x))
        rows = [a.reshape(len(w), -1) for a in apart]
        squares += jnp.sum(w * mask * sum((r**2).sum(1) for r in rows))
        share += jnp.sum(w * mask)
        per_client = jnp.max(jnp.stack([jnp.max(abs(r), 1, initial=0) for r in rows]), 0)
        largest = jnp.maximum(largest, jnp.max(per_client * mask))
    row = {"consensus": jnp.sqrt(squares / jnp.where(share > 0, share, 1))}
    if penalty is not None:
        row["dual_residual"] = penalty * largest
    return row


def judge(row: dict[str, Any], yardstick: Yardstick):
    """RUNNING, CONVERGED, DIVERGED or NOT_FINITE, from a recorded row."""
    norm = row["gradient_norm"]
    reached = (norm <= yardstick.gradient_norm) & (row.get("gap", -1.0) <= yardstick.gap)
    away = (norm > yardstick.explosion) | (row["objective"] > yardstick.summit)
    code = jnp.where(away, DIVERGED, RUNNING)
    lost = ~jnp.isfinite(row["objective"] + norm) & yardstick.finite
    code = jnp.where(lost, NOT_FINITE, code)
    return jnp.where(reached, CONVERGED, code)
