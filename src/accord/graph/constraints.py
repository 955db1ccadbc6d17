"""Linear constraints on the edges of a network: B_{i|j} x_i - B_{j|i} x_j = c."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Sides(NamedTuple):
    """The constraint of one edge (i, j), i < j: B_{i|j}, B_{j|i} (matrices or coordinates) and c."""

    first: np.ndarray
    second: np.ndarray
    constant: np.ndarray


class EdgeArrays(NamedTuple):
    """Constraints as arrays over the directed edges, padded with zeros.

    ``matrices`` (2E, m, d): B of the edge's source; ``offsets`` (2E, m): o with B_{i|j} x_i - o_{i|j} =
    B_{j|i} x_j - o_{j|i}, which is c/2 on one side and -c/2 on the other; ``rows`` (2E,): the true m.
    """

    matrices: np.ndarray
    offsets: np.ndarray
    rows: np.ndarray


class Constraints:
    """The constraints of all edges of a network; x_i = x_j where none is given."""

    def __init__(self, network, given: Mapping | Sequence[int]):
        self._network = network
        self._common = None
        self._sides: dict[tuple[int, int], Sides] = {}
        if isinstance(given, Mapping):
            for edge, value in given.items():
                self._add(edge, value)
        else:
            self._common = _side("constraints", given)
            if self._common.ndim != 1:
                raise ValueError(
                    "constraints: expected a mapping {(i, j): (B_ij, B_ji)}, or a list of the "
                    "coordinates on which all neighbours agree"
                )

    def _add(self, edge, value) -> None:
        network = self._network
        if not isinstance(edge, tuple) or len(edge) != 2:
            raise ValueError(f"constraints: the key {edge!r} is not an edge (i, j)")
        i, j = (network.number(name) for name in edge)
        where = f"constraints: edge {edge}"
        if j not in network.neighbours(i):
            raise ValueError(f"{where}: the network has no such edge")
        if not isinstance(value, tuple | list) or len(value) not in (2, 3):
            raise ValueError(f"{where}: expected (B_ij, B_ji) or (B_ij, B_ji, c)")
        first, second = (_side(where, side) for side in value[:2])
        if len(first) != len(second):
            raise ValueError(
                f"{where}: B_ij has {len(first)} rows and B_ji {len(second)}; "
                "B_ij x_i = B_ji x_j wants as many on both sides"
            )
        constant = np.zeros(len(first))
        if len(value) == 3:
            constant = np.asarray(value[2], float)
            if constant.shape != (len(first),) or not np.isfinite(constant).all():
                raise ValueError(
                    f"{where}: c has shape {constant.shape}; expected ({len(first)},), finite"
                )
        key = (min(i, j), max(i, j))
        if key in self._sides:
            raise ValueError(f"{where}: is constrained twice; give each edge once")
        swapped = Sides(second, first, -constant)
        self._sides[key] = Sides(first, second, constant) if i < j else swapped

    def _of(self, i: int, j: int) -> Sides | None:
        if self._common is not None:
            return Sides(self._common, self._common, np.zeros(len(self._common)))
        return self._sides.get((i, j))

    def sides(self, i: int, j: int, dimensions) -> Sides:
        """The constraint of edge (i, j), i < j, as matrices for nodes of these dimensions (nodes,)."""
        sides = self._of(i, j)
        if sides is None:
            sides = self._identity(i, j, dimensions)
        names = self._network.names
        pair = f"constraints: edge ({names[i]}, {names[j]})"
        first, second = (
            _matrix(f"{pair}: B of node {names[k]}", side, dimensions[k])
            for k, side in ((i, sides.first), (j, sides.second))
        )
        return Sides(first, second, sides.constant)

    def arrays(self, dimensions: np.ndarray) -> EdgeArrays:
        """The arrays for nodes of these dimensions (nodes,), which must fit."""
        network = self._network
        found = [self.sides(i, j, dimensions) for i, j in network.edges]
        if not any(side.any() for sides in found for side in sides[:2]):
            raise ValueError("network: it has no edge with a B that is not zero; nothing is shared")
        m, d = max(len(c) for _, _, c in found), int(dimensions.max())
        size = len(network.target)
        matrices, offsets = np.zeros((size, m, d)), np.zeros((size, m))
        rows = np.zeros(size, np.int64)
        forward = np.flatnonzero(network.source < network.target)
        for e, (first, second, constant) in zip(forward, found, strict=True):
            r, back = len(constant), network.reverse[e]
            matrices[e, :r, : first.shape[1]] = first
            matrices[back, :r, : second.shape[1]] = second
            offsets[e, :r], offsets[back, :r] = 0.5 * constant, -0.5 * constant
            rows[[e, back]] = r
        arrays = EdgeArrays(matrices, offsets, rows)
        self._check_feasible(arrays, dimensions)
        return arrays

    def _identity(self, i, j, dimensions) -> Sides:
        if dimensions[i] != dimensions[j]:
            names = self._network.names
            raise ValueError(
                f"constraints: edge ({names[i]}, {names[j]}) has none, and x_i = x_j is not possible "
                f"between nodes of dimension {dimensions[i]} and {dimensions[j]}; give it B_ij and B_ji"
            )
        every = np.arange(dimensions[i])
        return Sides(every, every, np.zeros(len(every)))

    def _check_feasible(self, arrays: EdgeArrays, dimensions: np.ndarray) -> None:
        """Raises where no x satisfies all constraints; without constants x = 0 does."""
        if not arrays.offsets.any():
            return
        from scipy.sparse.linalg import lsqr

        C, c, owners = stacked(self._network, arrays)
        x = lsqr(C, c, atol=1e-14, btol=1e-14, iter_lim=20 * sum(C.shape))[0]
        apart = abs(C @ x - c)
        if apart.max() > 1e-8 * abs(c).max():
            i, j = self._network.edges[owners[apart.argmax()]]
            names = self._network.names
            raise ValueError(
                f"constraints: no x satisfies them all; the nearest is {apart.max():.2g} off, most at "
                f"edge ({names[i]}, {names[j]}): check the constants c around a cycle"
            )


def stacked(network, arrays: EdgeArrays):
    """(C, c, owners): the constraints as C x = c over all nodes' variables in a row, d to a node.

    ``C`` is a scipy sparse array; ``owners`` is the number of the undirected edge of each row.
    """
    from scipy.sparse import coo_array

    d = arrays.matrices.shape[2]
    forward = np.flatnonzero(network.source < network.target)
    rows = arrays.rows[forward]
    first_row = np.concatenate([[0], np.cumsum(rows)])
    total = int(first_row[-1])
    values, places = [], []
    for sign, edges in ((1.0, forward), (-1.0, network.reverse[forward])):
        e, r, k = np.nonzero(arrays.matrices[edges])
        values.append(sign * arrays.matrices[edges][e, r, k])
        places.append((first_row[e] + r, network.source[edges][e] * d + k))
    place = tuple(np.concatenate(p) for p in zip(*places, strict=True))
    C = coo_array((np.concatenate(values), place), shape=(total, len(network) * d)).tocsr()
    owners = np.repeat(np.arange(len(forward)), rows)
    inside = np.arange(total) - first_row[owners]
    return C, 2 * arrays.offsets[forward[owners], inside], owners


def _side(where: str, side: Any) -> np.ndarray:
    """A matrix (rows, d) of floats, or coordinates (rows,) as whole numbers."""
    try:
        array = np.asarray(side)
    except ValueError:
        array = np.empty(0, object)
    if array.ndim == 1 and array.dtype.kind in "iu" and array.size:
        if (array < 0).any() or len(set(array.tolist())) < len(array):
            raise ValueError(f"{where}: coordinates {array.tolist()}: expected different ones >= 0")
        return array.astype(np.int64)
    if array.ndim == 2 and array.size and array.dtype.kind in "fiu" and np.isfinite(array).all():
        return array.astype(float)
    raise ValueError(
        f"{where}: got an array of {array.dtype} of shape {array.shape}; expected a matrix (rows, d) "
        "of finite numbers, or the coordinates that take part, as a list of whole numbers"
    )


def _matrix(where: str, side: np.ndarray, dimension: int) -> np.ndarray:
    if side.ndim == 2:
        if side.shape[1] != dimension:
            raise ValueError(f"{where} has {side.shape[1]} columns; its x has {dimension}")
        return side
    if side.max() >= dimension:
        raise ValueError(f"{where}: coordinate {side.max()}; its x has 0 to {dimension - 1}")
    return np.eye(dimension)[side]
