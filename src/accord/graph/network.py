"""Networks: who talks to whom, and what neighbours have to agree on."""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from accord.graph import families
from accord.graph.constraints import Constraints

_DENSE = 600
"""The most nodes for which a spectrum is computed densely."""


class Network:
    """An undirected network without self-loops or parallel edges.

    ``Network([(0, 1), (1, 2)])`` from pairs of node numbers, or of names where ``nodes`` is a list of
    names; ``nodes`` is their number or their names (default: the largest number plus one).
    ``positions`` (nodes, 2) places them for a drawing.

    ``edges`` (E, 2) with i < j in every row, sorted; ``degrees`` (nodes,); ``len(network)`` nodes.
    Directed edges, two for each edge, are numbered by ``source``, then ``target``; ``reverse`` is the
    number of the opposite one, and node i's are ``offsets[i]`` to ``offsets[i + 1]``.

    Raises ``ValueError`` for a self-loop, an edge given twice, or a node that is not there.
    """

    def __init__(self, edges: Any, nodes: int | Sequence[Any] | None = None, positions=None):
        pairs, self._names, self._count = _checked_edges(edges, nodes)
        self._index(pairs)
        self.positions = _checked_positions(positions, self._count)
        self.constraints: Constraints | None = None

    def _index(self, pairs: np.ndarray) -> None:
        from scipy.sparse import csr_array

        n, E = self._count, len(pairs)
        first, second = pairs[:, 0], pairs[:, 1]
        ends = np.concatenate([first, second]), np.concatenate([second, first])
        table = csr_array((np.arange(2 * E, dtype=np.int32), ends), shape=(n, n))
        # Parallel edges were merged by adding up their numbers: then some are missing.
        if table.nnz < 2 * E:
            keys, counts = np.unique(np.sort(pairs, 1), axis=0, return_counts=True)
            i, j = keys[counts > 1][0]
            raise ValueError(
                f"edges: {self._pair(i, j)} is given {counts.max()} times; "
                "give each undirected edge once"
            )
        table.sort_indices()
        self.offsets = table.indptr.astype(np.int32)
        self.target = table.indices.astype(np.int32)
        self._order = table.data

    def _pair(self, i, j) -> str:
        return f"({self.names[i]}, {self.names[j]})"

    @functools.cached_property
    def source(self) -> np.ndarray:
        """The node that each directed edge starts from."""
        return np.repeat(np.arange(self._count, dtype=np.int32), self.degrees)

    @functools.cached_property
    def reverse(self) -> np.ndarray:
        """The number of the directed edge the other way."""
        size = len(self._order)
        place = np.empty(size, np.int32)
        place[self._order] = np.arange(size, dtype=np.int32)
        return place[(self._order + size // 2) % max(size, 1)]

    @functools.cached_property
    def edges(self) -> np.ndarray:
        """The undirected edges (E, 2), i < j, sorted."""
        forward = self.source < self.target
        return np.stack([self.source[forward], self.target[forward]], 1)

    @property
    def degrees(self) -> np.ndarray:
        """The number of neighbours of each node."""
        return np.diff(self.offsets)

    @property
    def names(self) -> Sequence[Any]:
        """The nodes' names, or their numbers."""
        return range(self._count) if self._names is None else self._names

    def number(self, name) -> int:
        """The number of the node with a name; raises ``ValueError`` where there is none."""
        if self._names is None:
            if isinstance(name, int | np.integer) and 0 <= name < self._count:
                return int(name)
        elif name in self._numbers:
            return self._numbers[name]
        raise ValueError(f"node {name!r}: the network has no such node; it has {self._listed()}")

    @functools.cached_property
    def _numbers(self) -> dict[Any, int]:
        return {name: i for i, name in enumerate(self.names)}

    def _listed(self) -> str:
        if self._names is None:
            return f"0 to {self._count - 1}"
        first = ", ".join(repr(n) for n in self._names[:4])
        return first if self._count <= 4 else f"{first}, ... ({self._count} nodes)"

    def neighbours(self, i: int) -> np.ndarray:
        """The numbers of a node's neighbours."""
        return self.target[self.offsets[i] : self.offsets[i + 1]]

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        kind = "" if self.constraints is None else ", with constraints"
        return f"Network({self._count} nodes, {len(self.target) // 2} edges{kind})"

    # What the algorithms' speed depends on.

    def adjacency(self):
        """The adjacency matrix, as a scipy sparse array (nodes, nodes)."""
        from scipy.sparse import csr_array

        ones = np.ones(len(self.target))
        return csr_array((ones, self.target, self.offsets), shape=(self._count,) * 2)

    @functools.cached_property
    def components(self) -> np.ndarray:
        """The number of the connected component of each node."""
        from scipy.sparse.csgraph import connected_components

        return connected_components(self.adjacency(), directed=False)[1]

    @property
    def connected(self) -> bool:
        """Whether every node can be reached from every other."""
        return bool((self.components == 0).all())

    @functools.cached_property
    def diameter(self) -> float:
        """The longest of the shortest paths, in edges; infinite for a network in parts.

        Takes a breadth-first search from every node.
        """
        from scipy.sparse.csgraph import dijkstra

        if not self.connected:
            return math.inf
        chunk = max(1, 10**7 // self._count)
        table, longest = self.adjacency(), 0.0
        for first in range(0, self._count, chunk):
            sources = np.arange(first, min(first + chunk, self._count))
            longest = max(longest, dijkstra(table, unweighted=True, indices=sources).max())
        return float(longest)

    @functools.cached_property
    def algebraic_connectivity(self) -> float:
        """The second smallest eigenvalue of the Laplacian D - A; 0 for a network in parts."""
        from scipy.sparse import diags_array

        if not self.connected:
            return 0.0
        # Of top I - L the constant vector has the largest eigenvalue, and the one looked for comes next.
        top = 2.0 * self.degrees.max()
        lifted = diags_array(top - self.degrees.astype(float)) + self.adjacency()
        return top - float(_eigenvalues(lifted, [(top, np.ones(self._count))], 1e-9).max())

    @property
    def bipartite(self) -> bool:
        """Whether the nodes fall into two sets without an edge inside."""
        return not self._odd.any()

    @functools.cached_property
    def _sides(self) -> np.ndarray:
        """+1 or -1 by the parity of the steps from the first node of each part."""
        from scipy.sparse.csgraph import dijkstra

        first = np.unique(self.components, return_index=True)[1]
        steps = dijkstra(self.adjacency(), unweighted=True, indices=first, min_only=True)
        return np.where(steps % 2 == 0, 1.0, -1.0)

    @functools.cached_property
    def _odd(self) -> np.ndarray:
        """Whether each part has a cycle of odd length, that is, is not bipartite."""
        inside = self._sides[self.source] == self._sides[self.target]
        odd = np.zeros(self.components.max() + 1, bool)
        odd[self.components[self.source[inside]]] = True
        return odd

    @functools.cached_property
    def mixing_rate(self) -> float:
        """The largest |eigenvalue| of D^-1/2 A D^-1/2 other than 1 and, in a bipartite part, -1.

        Beyond 600 nodes good to a thousandth: parameters are chosen by it, no more.
        """
        root = np.sqrt(np.maximum(self.degrees, 1.0))
        normalised = self.adjacency() * (1 / root)[:, None] * (1 / root)[None, :]
        known = []
        for part, odd in enumerate(self._odd):
            own = np.where((self.components == part) & (self.degrees > 0), root, 0.0)
            if own.any():
                known += [(1.0, own)] + ([] if odd else [(-1.0, self._sides * own)])
        return float(abs(_eigenvalues(normalised, known, 1e-3)).max())

    @functools.cached_property
    def mixing_spectrum(self) -> tuple[float, float]:
        """(least, second largest) eigenvalue of W, the matrix of Metropolis weights."""
        from scipy.sparse import csr_array, diags_array

        across, own = self.metropolis_weights()
        W = csr_array((across, self.target, self.offsets), shape=(self._count,) * 2)
        values = _eigenvalues(W + diags_array(own), [(1.0, np.ones(self._count))], 1e-3)
        return float(values.min()), float(values.max())

    def metropolis_weights(self) -> tuple[np.ndarray, np.ndarray]:
        """(w_ij of every directed edge, w_ii of every node): W is symmetric, its rows sum to one.

        w_ij = 1 / (1 + max(degree_i, degree_j)). L. Xiao, S. Boyd, S. Lall, "Distributed average
        consensus with time-varying Metropolis weights", 2006.
        """
        degrees = self.degrees.astype(float)
        across = 1 / (1 + np.maximum(degrees[self.source], degrees[self.target]))
        return across, 1 - np.bincount(self.source, across, self._count)

    # Constraints.

    def with_constraints(self, constraints: Mapping | Sequence[int]) -> "Network":
        """The same network with constraints B_{i|j} x_i - B_{j|i} x_j = c on its edges.

        ``constraints`` maps edges (i, j) to (B_ij, B_ji) or (B_ij, B_ji, c), where B_ij is a matrix
        (rows, dimension of node i) or, as a list of whole numbers, the coordinates of x_i that take
        part; c defaults to 0. Edges that are not named keep x_i = x_j. A single list of coordinates
        means those of every node: neighbours agree on them, and the others stay private.
        """
        new = object.__new__(Network)
        new.__dict__.update(self.__dict__)
        new.constraints = Constraints(self, constraints)
        return new

    # Families.

    @classmethod
    def _made(cls, made) -> "Network":
        edges, nodes, positions = made
        return cls(edges, nodes, positions)

    @classmethod
    def from_networkx(cls, graph) -> "Network":
        """A networkx graph: its nodes in their order, with their positions where it has ``pos``."""
        return cls._made(families.from_networkx(graph))

    @classmethod
    def ring(cls, nodes: int) -> "Network":
        """A cycle."""
        return cls._made(families.ring(nodes))

    @classmethod
    def path(cls, nodes: int) -> "Network":
        """A line of nodes."""
        return cls._made(families.path(nodes))

    @classmethod
    def grid(cls, rows: int, columns: int) -> "Network":
        """A rectangle, each node beside up to four others; node r * columns + c."""
        return cls._made(families.grid(rows, columns))

    @classmethod
    def torus(cls, rows: int, columns: int) -> "Network":
        """A rectangle whose opposite borders touch: four neighbours each."""
        return cls._made(families.torus(rows, columns))

    @classmethod
    def complete(cls, nodes: int) -> "Network":
        """Everyone beside everyone."""
        return cls._made(families.complete(nodes))

    @classmethod
    def star(cls, nodes: int) -> "Network":
        """Node 0 in the middle of all others: the server and its clients."""
        return cls._made(families.star(nodes))

    @classmethod
    def erdos_renyi(cls, nodes: int, probability: float, seed: int = 0) -> "Network":
        """Each pair is an edge with one probability; drawn until connected."""
        return cls._made(families.erdos_renyi(nodes, probability, seed))

    @classmethod
    def random_geometric(cls, nodes: int, radius: float | None = None, seed: int = 0) -> "Network":
        """Points in the unit square, beside each other up to a distance; drawn until connected.

        The default radius, sqrt(2 log(n) / n), makes most draws connected.
        """
        return cls._made(families.random_geometric(nodes, radius, seed))

    @classmethod
    def barabasi_albert(cls, nodes: int, attachments: int = 2, seed: int = 0) -> "Network":
        """Each new node joins ``attachments`` others, the popular ones more often: hubs."""
        return cls._made(families.barabasi_albert(nodes, attachments, seed))

    @classmethod
    def small_world(
        cls, nodes: int, neighbours: int = 4, rewiring: float = 0.1, seed: int = 0
    ) -> "Network":
        """A ring of ``neighbours`` each (Watts and Strogatz), a share of its edges rewired at random."""
        return cls._made(families.small_world(nodes, neighbours, rewiring, seed))

    @classmethod
    def from_positions(cls, positions, neighbours: int = 3, names=None) -> "Network":
        """Sites in the plane, each joined to its nearest ones, and parts joined where they are closest."""
        edges, nodes, positions = families.from_positions(positions, neighbours)
        return cls._named(edges, nodes if names is None else list(names), positions)

    @classmethod
    def _named(cls, edges, nodes, positions) -> "Network":
        new = cls(edges, len(positions), positions)
        if not isinstance(nodes, int):
            _check_names(nodes, len(positions))
            new._names = tuple(nodes)
        return new

    def draw(self, values=None, path=None, axes=None, **options):
        """Draws the network, nodes coloured by ``values`` (nodes,): see ``accord.graph.drawing``."""
        from accord.graph.drawing import draw

        return draw(self, values, path, axes, **options)


def _checked_edges(edges, nodes):
    """(pairs (E, 2) of numbers, names or None, number of nodes)."""
    names = None
    if isinstance(nodes, bool | float | str):
        raise TypeError(f"nodes: got {nodes!r}; accepted are a whole number, or the nodes' names")
    if nodes is not None and not isinstance(nodes, int | np.integer):
        names = tuple(nodes)
        _check_names(names, len(names))
        numbers = {name: i for i, name in enumerate(names)}
        edges = [_named_pair(e, numbers) for e in edges]
    pairs = _pairs(edges)
    count = len(names) if names is not None else nodes
    if count is None:
        if not len(pairs):
            raise ValueError("edges: there are none; give at least one pair of nodes")
        count = int(pairs.max()) + 1
    count = int(count)
    _check_ends(pairs, count)
    if count < 2:
        raise ValueError(f"nodes: got {count}; a network has at least 2, which talk to each other")
    loops = pairs[:, 0] == pairs[:, 1]
    if loops.any():
        i = int(pairs[loops][0, 0])
        raise ValueError(
            f"edges: ({i}, {i}) is a self-loop: a node agrees with itself already; leave it out"
        )
    return pairs, names, count


def _check_ends(pairs, count: int) -> None:
    wrong = (pairs < 0) | (pairs >= count)
    if wrong.any():
        i, j = pairs[wrong.any(1)][0]
        raise ValueError(f"edges: ({i}, {j}) is not among the nodes 0 to {count - 1}")


def _pairs(edges) -> np.ndarray:
    if not isinstance(edges, np.ndarray):
        edges = list(edges) if isinstance(edges, Iterable) else edges
    try:
        pairs = np.asarray(edges)
    except ValueError:
        pairs = np.empty(0, object)
    if pairs.size == 0 and pairs.dtype != object:
        return np.zeros((0, 2), np.int32)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ValueError(
            f"edges: expected pairs of node numbers, as [(0, 1), (1, 2)], got an array of "
            f"{pairs.dtype} of shape {pairs.shape}; for names give nodes=[...] too"
        )
    if pairs.max() >= 2**31 or pairs.min() < 0:
        raise ValueError("edges: node numbers must be from 0 to 2^31 - 1")
    return pairs.astype(np.int32, copy=False)


def _named_pair(edge, numbers):
    pair = tuple(edge) if isinstance(edge, Iterable) else ()
    if len(pair) != 2:
        raise ValueError(f"edges: got {edge!r}; expected a pair of nodes")
    for name in pair:
        if name not in numbers:
            raise ValueError(f"edges: {edge!r}: {name!r} is not among the nodes")
    return numbers[pair[0]], numbers[pair[1]]


def _check_names(names, count: int) -> None:
    if len(names) != count:
        raise ValueError(f"nodes: {len(names)} names for {count} nodes")
    if len(set(names)) != count:
        twice = next(n for n in names if list(names).count(n) > 1)
        raise ValueError(f"nodes: {twice!r} names two nodes; every node wants its own name")


def _checked_positions(positions, count: int) -> np.ndarray | None:
    if positions is None:
        return None
    array = np.asarray(positions, float)
    if array.shape != (count, 2) or not np.isfinite(array).all():
        raise ValueError(f"positions: shape {array.shape}; expected finite numbers ({count}, 2)")
    return array


def _eigenvalues(matrix, known, tolerance: float) -> np.ndarray:
    """Eigenvalues of a symmetric matrix apart from known ones: all, or those at both ends of a large one."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    size = matrix.shape[0]
    known = [(value, vector / np.linalg.norm(vector)) for value, vector in known]
    if size <= _DENSE:
        dense = matrix.toarray() - sum(value * np.outer(v, v) for value, v in known)
        return np.linalg.eigvalsh(dense)

    def product(u):
        u = u.ravel()
        return matrix @ u - sum(value * (v @ u) * v for value, v in known)

    operator = LinearOperator((size, size), matvec=product, dtype=float)
    start = np.random.default_rng(0).standard_normal(size)
    options = {"tol": tolerance, "v0": start, "return_eigenvectors": False}
    try:
        return eigsh(operator, 2, which="BE", **options)
    except ArpackNoConvergence as stopped:
        return stopped.eigenvalues if len(stopped.eigenvalues) else np.array([0.999])
