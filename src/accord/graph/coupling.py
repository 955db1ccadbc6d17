"""How neighbours are coupled: sums over the edges of a node, and what a node's model shows on an edge.

Node i solves   min_x f_i(x) + (rho/2) sum_j ||B_{i|j} x - o_{i|j} - z_{i|j}||^2,   which is
f_i(x) + (rho/2) sum_k q_k (x_k - centre_k)^2 up to a constant once sum_j B' B = diag(q): the local solvers
of the star then serve every network. ``Consensus`` has B = I and q = degree; in ``Linear`` each node's
variables were rotated so that sum_j B' B is diagonal.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from accord.core.messages import expand

_UNROLLED = 32
"""The largest degree whose sum is written out, neighbour after neighbour."""

_FEW_TERMS, _MANY_NODES = 128, 5000
"""Small networks of many different degrees compile faster than they run: sums are written out for up to so
many terms, or from so many nodes on."""


class Neighbours(NamedTuple):
    """Neighbour lists, for one pass over all edges without arrays of the edges' ends.

    ``blocks``: (k, nodes of degree k) for the degrees whose sums are written out; ``hubs``: the edges (source
    among the hubs, target) of all other nodes; ``members``: the nodes of each block, then the hubs;
    ``place`` (nodes,) brings blocks into the nodes' order, () where they are in it.
    """

    blocks: tuple[Any, ...]
    hubs: tuple[Any, Any]
    members: tuple[Any, ...]
    place: Any


def neighbours(network) -> Neighbours:
    """The neighbour lists of a network."""
    degrees, offsets = network.degrees, network.offsets[:-1]
    kinds = np.unique(degrees[degrees <= _UNROLLED])
    if kinds.sum() > _FEW_TERMS and len(network) < _MANY_NODES:
        kinds = kinds[:0]
    members = [np.flatnonzero(degrees == k).astype(np.int32) for k in kinds]
    blocks = tuple(
        jnp.asarray(network.target[offsets[own] + np.arange(k, dtype=np.int32)[:, None]])
        for k, own in zip(kinds, members, strict=True)
    )
    hubs = np.flatnonzero(~np.isin(degrees, kinds)).astype(np.int32)
    source = np.repeat(np.arange(len(hubs), dtype=np.int32), degrees[hubs])
    target = np.concatenate([network.neighbours(i) for i in hubs]) if len(hubs) else source
    order = np.concatenate([*members, hubs])
    place = np.empty(len(network), np.int32)
    place[order] = np.arange(len(network), dtype=np.int32)
    kept = () if (place[1:] > place[:-1]).all() else jnp.asarray(place)
    return Neighbours(
        blocks,
        (jnp.asarray(source), jnp.asarray(target)),
        tuple(jnp.asarray(m) for m in (*members, hubs)),
        kept,
    )


def neighbour_sum(lists: Neighbours, x):
    """sum_j x_j over the neighbours j of each node, for one leaf (nodes, ...)."""
    parts = []
    for block in lists.blocks:
        rows = [x.at[index].get(mode="promise_in_bounds") for index in block]
        parts.append(sum(rows[1:], rows[0]) if rows else jnp.zeros((block.shape[1], *x.shape[1:])))
    source, target = lists.hubs
    hubs = len(lists.members[-1])
    if hubs:
        parts.append(edge_sum(x[target], source, hubs))
    total = jnp.concatenate(parts) if len(parts) > 1 else parts[0]
    return total if isinstance(lists.place, tuple) else total[lists.place]


def largest_pair(lists: Neighbours, s):
    """max |s_i + s_j| over the edges and entries, for one leaf (nodes, ...)."""
    largest = jnp.zeros((), s.dtype)
    for block, own in zip(lists.blocks, lists.members[:-1], strict=True):
        mine = s[own]
        for index in block:
            largest = jnp.maximum(largest, abs(mine + s[index]).max())
    source, target = lists.hubs
    if len(lists.members[-1]):
        largest = jnp.maximum(largest, abs(s[lists.members[-1]][source] + s[target]).max())
    return largest


def edge_sum(values, source, nodes: int):
    """sum over the edges of each node, for values (2E, ...) in the edges' order."""
    return jax.ops.segment_sum(values, source, nodes, indices_are_sorted=True)


class Edges(NamedTuple):
    """The directed edges, by source; in a padded layout followed by ``padding`` that nobody reads."""

    source: Any
    target: Any
    reverse: Any
    offsets: Any
    degrees: Any


class Consensus(NamedTuple):
    """x_i = x_j on every edge."""

    edges: Edges

    def pull(self, rho):
        """The penalty of each node's proximal term (nodes,)."""
        return rho * self.edges.degrees

    def centre(self, z):
        """The centre of each node's proximal term: the mean of its z_{i|j}."""
        degrees, n = self.edges.degrees, len(self.edges.degrees)
        return jax.tree.map(lambda v: edge_sum(v, self.edges.source, n) / expand(degrees, v), z)

    def image(self, x):
        """What each edge's source shows on it."""
        return jax.tree.map(lambda v: v[self.edges.source], x)

    def centre_of(self, i, first, rows, valid):
        """The centre of node i from its own z_{i|j} (slots, ...)."""
        keep = lambda v: jnp.where(expand(valid, v), v, 0).sum(0) / self.edges.degrees[i]  # noqa: E731
        return jax.tree.map(keep, rows)

    def image_of(self, first, slots: int, x):
        """What node i shows on its edges (slots, ...), or a shape that broadcasts to it."""
        return jax.tree.map(lambda v: v[None], x)


class Linear(NamedTuple):
    """B_{i|j} x_i - o_{i|j} = B_{j|i} x_j - o_{j|i} on every edge, in rotated variables.

    ``matrices`` (2E, m, d), ``shifts`` o (2E, m), ``weights`` q (nodes, d).
    """

    edges: Edges
    matrices: Any
    shifts: Any
    weights: Any

    def pull(self, rho):
        """The penalties of each node's variables (nodes, d)."""
        return rho * self.weights

    def _centre(self, total, weights):
        return jnp.where(weights > 0, total / jnp.where(weights > 0, weights, 1), 0)

    def centre(self, z):
        """The centre of each node's proximal term."""
        pulled = jnp.einsum("emd,em->ed", self.matrices, z + self.shifts)
        return self._centre(edge_sum(pulled, self.edges.source, len(self.weights)), self.weights)

    def image(self, x):
        """B x - o of each edge's source."""
        return jnp.einsum("emd,ed->em", self.matrices, x[self.edges.source]) - self.shifts

    def _slots(self, first, slots):
        return (lax.dynamic_slice_in_dim(a, first, slots) for a in (self.matrices, self.shifts))

    def centre_of(self, i, first, rows, valid):
        """The centre of node i from its own z_{i|j} (slots, m)."""
        matrices, shifts = self._slots(first, len(rows))
        values = jnp.where(valid[:, None], rows + shifts, 0)
        return self._centre(jnp.einsum("emd,em->d", matrices, values), self.weights[i])

    def image_of(self, first, slots: int, x):
        """B x - o of node i on its edges (slots, m)."""
        matrices, shifts = self._slots(first, slots)
        return matrices @ x - shifts

    def pull_back(self, values):
        """sum_j B_{i|j}' values_{i|j} of each node, values (2E, m) without padding."""
        count = len(values)
        pulled = jnp.einsum("emd,em->ed", self.matrices[:count], values)
        return edge_sum(pulled, self.edges.source[:count], len(self.weights))


def degrees_of(network) -> Edges:
    """The nodes' degrees alone, where nothing is held on edges."""
    return Edges(None, None, None, None, jnp.asarray(network.degrees))


def edges_of(network, padding: int = 0) -> Edges:
    """The directed edges of a network."""
    source, target, reverse = (
        jnp.asarray(np.pad(ends, (0, padding)) if padding else ends)
        for ends in (network.source, network.target, network.reverse)
    )
    offsets, degrees = jnp.asarray(network.offsets), jnp.asarray(network.degrees)
    return Edges(source, target, reverse, offsets, degrees)


def rotation(network, arrays) -> tuple[np.ndarray, np.ndarray]:
    """(q (nodes, d), V (nodes, d, d)) with sum_j B' B = V diag(q) V' at each node."""
    n, d = len(network), arrays.matrices.shape[2]
    grams = np.einsum("emd,emk->edk", arrays.matrices, arrays.matrices)
    total = np.zeros((n, d, d))
    np.add.at(total, network.source, grams)
    if not (total * (1 - np.eye(d))).any():
        return np.einsum("ndd->nd", total).copy(), np.broadcast_to(np.eye(d), (n, d, d))
    weights, basis = np.linalg.eigh(total)
    noise = 64 * d * np.finfo(float).eps * weights[:, -1:]
    return np.where(weights > noise, weights, 0.0), basis


def linear(network, arrays, weights, basis, dtype, padding: int = 0) -> Linear:
    """The coupling of a network with constraints, in variables rotated by ``basis``."""
    matrices = np.einsum("emd,edk->emk", arrays.matrices, basis[network.source])
    pad = lambda a: np.pad(a, [(0, padding)] + [(0, 0)] * (a.ndim - 1))  # noqa: E731
    parts = (jnp.asarray(a, dtype) for a in (pad(matrices), pad(arrays.offsets), weights))
    return Linear(edges_of(network, padding), *parts)
