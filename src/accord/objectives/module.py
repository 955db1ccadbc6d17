"""A client's objective from a PyTorch module, called from compiled JAX code."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from accord import tree

_ALONE = threading.Lock()
"""XLA may call for a value and a gradient at once, and a module holds one set of parameters at a time."""


class TorchHost:
    """A module with the rows of all clients, on PyTorch's side: mean losses and their derivatives.

    Parameters come and go as dictionaries of NumPy arrays by the module's names.
    """

    def __init__(self, module, loss: Callable, rows: list[tuple[Any, Any]]):
        self._module, self._loss, self._rows = module, loss, rows

    def mean_loss(self, parameters, client: int, index=None):
        """The mean loss over a client's rows, or those of ``index``, as a tensor."""
        import torch

        X, y = self._rows[client]
        if index is not None:
            X, y = X[index], y[index]
        if not len(y):
            return 0.0 * sum(p.sum() for p in parameters.values())
        return self._loss(torch.func.functional_call(self._module, parameters, (X,)), y)

    def value(self, x, client):
        """f_i(x) without its penalty."""
        return self.mean_loss(_tensors(x), int(client)).detach().numpy()

    def grad(self, x, client, index=None):
        """Its gradient, over all rows or those of ``index``."""
        import torch

        parameters = _tensors(x, wanted=True)
        index = None if index is None else torch.from_numpy(np.array(index, np.int64))
        total = self.mean_loss(parameters, int(client), index)
        slopes = torch.autograd.grad(total, list(parameters.values()), materialize_grads=True)
        return {name: s.numpy() for name, s in zip(parameters, slopes, strict=True)}

    def product(self, x, direction, client):
        """Its Hessian applied to a direction."""
        import torch

        parameters = _tensors(x, wanted=True)
        leaves, along = list(parameters.values()), list(_tensors(direction).values())
        total = self.mean_loss(parameters, int(client))
        slopes = torch.autograd.grad(total, leaves, create_graph=True, materialize_grads=True)
        moved = sum((s * v).sum() for s, v in zip(slopes, along, strict=True))
        if not moved.requires_grad:
            # A loss that is linear in the parameters does not bend.
            return {name: np.zeros_like(leaf) for name, leaf in x.items()}
        bent = torch.autograd.grad(moved, leaves, materialize_grads=True)
        return {name: b.numpy() for name, b in zip(parameters, bent, strict=True)}


def _tensors(x, wanted: bool = False) -> dict[str, Any]:
    import torch

    tensors = {name: torch.from_numpy(np.array(leaf)) for name, leaf in x.items()}
    return {name: t.requires_grad_(wanted) for name, t in tensors.items()}


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("client", "rows", "l2"),
    meta_fields=("host",),
)
@dataclass(frozen=True)
class TorchObjective:
    """f(x) = the module's mean loss over the rows of ``client`` + (l2/2) ||x||^2, x by parameter names."""

    client: Any
    rows: Any
    l2: Any
    host: TorchHost

    def _call(self, function, shapes, *args):
        """A function of the host from compiled code; doubles cross as pairs of 32-bit words.

        The thread that makes the call knows nothing of JAX's 64-bit mode, and would halve them.
        """

        likes = tuple(jax.tree.map(_shape, args))

        def called(*packed):
            given = jax.tree.map(_unpacked, packed, likes)
            with _ALONE:
                return jax.tree.map(_words, function(*given))

        sent = jax.tree.map(_packed_shape, shapes)
        got = jax.pure_callback(
            called, sent, *jax.tree.map(_packed, args), vmap_method="sequential"
        )
        return jax.tree.map(lambda a, like: lax.bitcast_convert_type(a, like.dtype), got, shapes)

    def value(self, x):
        """f(x)."""
        shape = jax.ShapeDtypeStruct((), jax.tree.leaves(x)[0].dtype)
        loss = self._call(self.host.value, shape, x, self.client)
        return loss + 0.5 * self.l2 * tree.dot(x, x)

    def grad(self, x):
        """grad f(x), in the structure of x."""
        slopes = self._call(self.host.grad, _shapes(x), x, self.client)
        return tree.add_scaled(slopes, self.l2, x)

    def hessian_product(self, x, direction):
        """The Hessian of f at x applied to a direction."""
        bent = self._call(self.host.product, _shapes(x), x, direction, self.client)
        return tree.add_scaled(bent, self.l2, direction)

    def draw(self, key, batch_size):
        """Indices of ``batch_size`` rows, uniform with replacement over the client's rows."""
        return jax.random.randint(key, (batch_size,), 0, jnp.maximum(self.rows, 1))

    def minibatch_grad(self, x, index):
        """The unbiased gradient estimate from the rows ``index``, as ``draw`` gives them."""
        slopes = self._call(self.host.grad, _shapes(x), x, self.client, index)
        return tree.add_scaled(slopes, self.l2, x)


def _packed(leaf):
    return lax.bitcast_convert_type(jnp.asarray(leaf), "uint32")


def _unpacked(words, like):
    return np.ascontiguousarray(words).reshape(-1).view(like.dtype).reshape(like.shape)


def _packed_shape(like):
    words = (np.dtype(like.dtype).itemsize // 4,)
    return jax.ShapeDtypeStruct(like.shape + (words if words != (1,) else ()), "uint32")


def _words(array):
    shape = _packed_shape(array).shape
    return np.ascontiguousarray(array).reshape(-1).view(np.uint32).reshape(shape)


def _shape(leaf):
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _shapes(x):
    return jax.tree.map(_shape, x)
