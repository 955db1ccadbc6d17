"""Extreme eigenvalues of Hessians."""

import numpy as np

GRAM_LIMIT = 2048
"""The most features for which d x d matrices are formed."""


def extreme_eigenvalues(H: np.ndarray):
    """(largest, smallest) eigenvalue of symmetric matrices (..., d, d), the smallest less its rounding.

    It is 0 where rounding could have made it: a rank-deficient matrix has none of 1e-17.
    """
    if not np.isfinite(H).all():
        return np.full(H.shape[:-2], np.inf), np.zeros(H.shape[:-2])
    values = np.linalg.eigvalsh(H)
    noise = 64 * H.shape[-1] * np.finfo(float).eps * values[..., -1]
    return values[..., -1], np.maximum(values[..., 0] - noise, 0)


def largest_eigenvalue(A: np.ndarray) -> float:
    """sigma_max(A)^2."""
    from scipy.sparse.linalg import svds

    if not A.size:
        return 0.0
    if min(A.shape) <= GRAM_LIMIT:
        gram = A.T @ A if A.shape[1] <= A.shape[0] else A @ A.T
        return float(extreme_eigenvalues(gram)[0])
    return float(svds(A, k=1, return_singular_vectors=False)[0] ** 2)
