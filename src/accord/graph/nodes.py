"""Problems whose nodes have models of different dimensions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from accord.problems import Problem
from accord.problems.base import finite_numbers, non_negative
from accord.problems.quadratic import QuadraticProblem


class NodeProblem(QuadraticProblem):
    """Quadratics f_i over x_i of dimension ``dimensions[i]``, held in vectors of the largest one.

    For ``accord.graph.run`` on a network whose constraints say what the nodes have in common. A node's
    entries beyond its dimension are 0 at any solution.
    """

    def __init__(self, hessians, linears, constants, dtype):
        self.dimensions = np.array([len(b) for b in linears])
        m, d = len(linears), int(self.dimensions.max())
        H, b = np.zeros((m, d, d)), np.zeros((m, d))
        for i, k in enumerate(self.dimensions):
            H[i, :k, :k], b[i, :k] = hessians[i], linears[i]
            # Unused entries are held at zero by a curvature within those of the node.
            spare = np.arange(k, d)
            H[i, spare, spare] = max(np.trace(hessians[i]) / k, 1e-6)
        super().__init__(H, b, constants, dtype=dtype)
        self.name = "nodes"

    @property
    def common(self) -> bool:
        """Whether all nodes have the same dimension."""
        return bool((self.dimensions == self.dimensions[0]).all())


def quadratics(
    hessians: Sequence[Any], linears: Sequence[Any], constants=None, dtype="float64"
) -> Problem:
    """f_i(x_i) = (1/2) <x_i, H_i x_i> - <b_i, x_i> + c_i for nodes whose dimensions may differ.

    ``hessians`` is a list of symmetric positive semi-definite matrices (d_i, d_i), ``linears`` one of vectors
    (d_i,), ``constants`` (nodes,).
    """
    if len(hessians) != len(linears) or not len(linears):
        raise ValueError(
            f"hessians, linears: {len(hessians)} and {len(linears)}; expected one of each per node"
        )
    vectors = [np.atleast_1d(finite_numbers(f"linears[{i}]", b)) for i, b in enumerate(linears)]
    matrices = [
        finite_numbers(f"hessians[{i}]", H, (len(b), len(b)))
        for i, (H, b) in enumerate(zip(hessians, vectors, strict=True))
    ]
    return NodeProblem(matrices, vectors, constants, dtype)


def least_squares(arrays: Sequence[Any], l2: float = 0.0, dtype="float64") -> Problem:
    """f_i(x_i) = (1/(2 n_i)) ||A_i x_i - y_i||^2 + (l2/2) ||x_i||^2 for ``[(A_1, y_1), ...]``.

    The nodes' numbers of columns may differ. A node without rows has the penalties alone.
    """
    l2 = non_negative("l2", l2)
    hessians, linears, constants = [], [], []
    for i, (A, y) in enumerate(arrays):
        A, y = finite_numbers(f"arrays[{i}]: A", A), finite_numbers(f"arrays[{i}]: y", y)
        if A.ndim != 2 or y.shape != A.shape[:1] or not A.shape[1]:
            raise ValueError(
                f"arrays[{i}]: A has shape {A.shape} and y {y.shape}; expected (rows, columns) and (rows,)"
            )
        n = max(len(y), 1)
        hessians.append(A.T @ A / n + l2 * np.eye(A.shape[1]))
        linears.append(A.T @ y / n)
        constants.append(0.5 * (y @ y) / n)
    return quadratics(hessians, linears, constants, dtype)
