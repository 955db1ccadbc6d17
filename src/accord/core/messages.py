"""What crosses the wire: weighted means of messages, and their exact size in bytes."""

import math

import jax
import jax.numpy as jnp
import numpy as np


def size_in_bytes(message) -> int:
    """Bytes of a message's arrays, from shapes and dtypes alone (arrays or shape structs)."""
    return sum(
        math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize
        for leaf in jax.tree.leaves(message)
        if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    )


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
    return jax.tree.map(lambda leaf: jnp.tensordot(weights.astype(leaf.dtype), leaf, 1), stacked)


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
