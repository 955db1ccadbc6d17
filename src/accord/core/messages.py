"""What crosses the wire: weighted means of messages, and their exact size in bytes."""

import math

import jax
import jax.numpy as jnp
import numpy as np


def size_in_bytes(message) -> int:
    """Bytes of a message's arrays, from shapes and dtypes alone (arrays or shape structs)."""
    leaves = [
        leaf if hasattr(leaf, "dtype") else np.asarray(leaf) for leaf in jax.tree.leaves(message)
    ]
    return sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in leaves)


def wire_bytes(inbox, message, state, stateless: bool, state_in_message: bool) -> tuple[int, int]:
    """(up, down) of one client in one round; a stateless client's state travels too."""
    up, down = size_in_bytes(message), size_in_bytes(inbox)
    if not stateless:
        return up, down
    size = size_in_bytes(state)
    return up + (0 if state_in_message else size), down + size


def pack(message) -> bytes:
    """The message's arrays as the bytes that a transport would carry."""
    return b"".join(np.ascontiguousarray(leaf).tobytes() for leaf in jax.tree.leaves(message))


def expand(mask, leaf):
    """A mask over clients (m,), shaped so that it broadcasts against a leaf (m, ...)."""
    return mask.reshape(mask.shape + (1,) * (leaf.ndim - mask.ndim))


def choose(mask, new, old):
    """Per client: the new value where the mask says so, the old one elsewhere."""
    return jax.tree.map(lambda a, b: jnp.where(expand(mask, a), a, b), new, old)


def weighted_sum(weights, stacked):
    """sum_i weights_i message_i over the leading client axis."""

    def one(leaf):
        # The mean of integers is no integer.
        leaf = leaf if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf.astype(weights.dtype)
        return jnp.tensordot(weights.astype(leaf.dtype), leaf, 1)

    return jax.tree.map(one, stacked)


def everyone(stacks, weights):
    """The weighted mean of all clients' messages, one entry of ``stacks`` per bucket of clients."""
    parts = [weighted_sum(w, s) for w, s in zip(weights, stacks, strict=True)]
    return jax.tree.map(lambda *p: sum(p), *parts)


def mean(stacks, weights, masks, absent):
    """(mean, share): per message part the weighted mean over the clients that ``absent`` names.

    ``stacks``, ``weights`` and ``masks`` have one entry per bucket of clients, each with a leading client
    axis; ``weights`` sum to one over all buckets, ``share`` is the weight of the clients heard.
    """
    share = sum(jnp.sum(w * m) for w, m in zip(weights, masks, strict=True))
    among = [w * m / jnp.where(share > 0, share, 1) for w, m in zip(weights, masks, strict=True)]
    over_all, over_heard = everyone(stacks, weights), everyone(stacks, among)
    rule = jax.tree.broadcast(absent, over_all)
    mixed = jax.tree.map(lambda r, a, b: a if r == "latest" else b, rule, over_all, over_heard)
    return mixed, share
