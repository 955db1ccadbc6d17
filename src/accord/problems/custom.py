"""Problems with a loss of the user's own."""

import jax
import jax.numpy as jnp
import numpy as np

from accord.objectives import CustomObjective
from accord.problems.base import Problem, non_negative, normalised, on_device


class CustomProblem(Problem):
    """Clients with any JAX loss of one row over any pytree of parameters: see ``custom``."""

    name = "custom"
    bounded = False

    def __init__(self, loss, init, clients, l2, weights, convex, dtype):
        super().__init__(clients, weights, dtype)
        if not callable(loss):
            raise TypeError("loss: expected a function loss(x, feature_row, target) -> scalar")
        self.loss, self.convex = loss, convex
        self.init = jax.tree.map(lambda leaf: np.asarray(leaf, self.dtype), init)
        self.l2 = non_negative("l2", l2)
        if not convex:
            self.offers = self.offers - {"prox"}
        self._check_loss()

    def _check_loss(self):
        X, y = next((X, y) for X, y in self.clients if len(y))
        with jax.enable_x64(True):
            row, target = (self._on_device(a, self.dtype) for a in (X[0], y[0]))
            out = jax.eval_shape(self.loss, self.init, row, target)
        if not hasattr(out, "shape") or out.shape != ():
            raise ValueError(
                f"loss: returned {out} for one row; expected a scalar: the loss takes a single row, "
                "not a batch"
            )

    def _on_device(self, array, dtype):
        return on_device(array, dtype if array.dtype.kind == "f" else None)

    def initial(self):
        return self.init

    @property
    def strongly_convex(self):
        return bool(self.convex) and self.l2 > 0

    def _build(self, bucket, dtype, layout):
        return CustomObjective(
            features=self._on_device(bucket.features, dtype),
            targets=self._on_device(bucket.targets, dtype),
            row_weights=jnp.asarray(normalised(bucket.row_weights), dtype),
            rows=jnp.asarray(self.clients.sizes[bucket.clients], "int32"),
            l2=jnp.full(len(bucket.clients), self.l2, dtype),
            loss=self.loss,
        )
