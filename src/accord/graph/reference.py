"""The optimum on a network: the common minimiser, or a solve of the KKT system."""

from typing import Any, NamedTuple

import numpy as np

from accord.graph.constraints import EdgeArrays, stacked

_LARGEST = 4000


class NetworkReference(NamedTuple):
    """The minimiser of sum_i f_i(x_i) under the constraints.

    ``x`` stacks the nodes' models; ``duals`` (E, m): nu with grad f_i(x_i) = sum_j B_{i|j}' nu_{i|j} and
    nu_{j|i} = -nu_{i|j}, that of i < j in ``network.edges``' order (None for consensus).
    """

    x: Any
    objective: float
    duals: np.ndarray | None


def node_factors(problem) -> np.ndarray:
    """How often each f_i counts (nodes,): its weight times the number of nodes that have one.

    With equal weights a node with rows counts once, and a relay without rows not at all.
    """
    return problem.weights * np.count_nonzero(problem.weights)


def consensus_reference(problem) -> NetworkReference | None:
    """The common minimiser at every node; None where F is not known convex or has several."""
    import jax

    found = problem.reference()
    if found is None or not found.unique:
        return None
    m = len(problem)
    x = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (m, *np.shape(leaf))), found.x)
    counted = np.count_nonzero(problem.weights)
    return NetworkReference(x, counted * found.objective, None)


def kkt_reference(problem, network, arrays: EdgeArrays) -> NetworkReference | None:
    """The solution of  H x - C' nu = b,  C x = c  for quadratics; None for others, or large ones.

    None too where x is not unique; where constraints depend on each other the multipliers of least norm
    are given. Raises ``ValueError`` where there is no minimiser.
    """
    moments = problem.quadratics()
    if moments is None:
        return None
    H, b, shift = moments.hessian, moments.linear, np.asarray(moments.shift)
    n, d = b.shape
    C, c, owners = stacked(network, arrays)
    if n * d + len(c) > _LARGEST:
        return None
    factors = node_factors(problem)
    matrix = np.zeros((n * d + len(c),) * 2)
    for i in range(n):
        place = slice(i * d, (i + 1) * d)
        matrix[place, place] = factors[i] * H[i]
    dense = C.toarray()
    matrix[: n * d, n * d :], matrix[n * d :, : n * d] = -dense.T, -dense
    right = np.einsum("nij,nj->ni", H, shift) + b
    vector = np.concatenate([(factors[:, None] * right).ravel(), -c])
    solution = np.linalg.lstsq(matrix, vector, rcond=None)[0]
    residual = abs(matrix @ solution - vector).max()
    if residual > 1e-8 * (1 + abs(vector).max()):
        raise ValueError(
            f"reference: sum_i f_i falls without bound under the constraints (KKT residual {residual:.1e})"
        )
    curved = np.concatenate([matrix[: n * d, : n * d], dense])
    if np.linalg.matrix_rank(curved) < n * d:
        return None
    x = solution[: n * d].reshape(n, d)
    duals = np.zeros((owners.max() + 1, arrays.matrices.shape[1]))
    inside = np.concatenate([np.arange(k) for k in np.bincount(owners)])
    duals[owners, inside] = solution[n * d :]
    apart = x - shift
    values = 0.5 * np.einsum("ni,nij,nj->n", apart, H, apart) - (b * apart).sum(1)
    constants = np.asarray(moments.constant)
    return NetworkReference(x, float(factors @ (values + constants)), duals)
