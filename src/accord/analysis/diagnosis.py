"""Why a fit has no minimiser, or more than one: the columns concerned, by name."""

import numpy as np

from accord.analysis.inference import involved
from accord.analysis.schema import INTERCEPT
from accord.theory import DENSE_LIMIT

_FLAT = 1e-11


def check_determined(problem, schema, solution) -> None:
    """Raises where the fit is not determined by the rows, and names the columns.

    Linearly dependent columns leave the Hessian singular everywhere. Columns that tell outcomes apart
    without error leave it regular at zero; their coefficients are the ones that have grown.
    """
    if solution.certificate.distance is not None or np.size(solution.x) > DENSE_LIMIT:
        return
    terms = [*schema.columns, *([INTERCEPT] if schema.intercept else [])]
    shape = np.shape(solution.x)
    first = problem.hessian(np.zeros(shape)) + _gauge(shape)
    units = np.sqrt(np.where(np.diag(first) > 0, np.diag(first), 1.0))
    values, vectors = np.linalg.eigh(first / np.outer(units, units))
    if values[0] <= _FLAT * values[-1]:
        raise ValueError(
            f"features: {involved(vectors[:, 0], shape, terms)} are linearly dependent, so that their "
            "coefficients are not determined: exclude one of them, or give l2 > 0"
        )
    if problem.loss.flattens and solution.escapes:
        columns = len(schema.columns)
        grown = solution.x[:columns].ravel() * units[: solution.x[:columns].size]
        raise ValueError(
            f"target: no finite fit exists: {involved(grown, (columns, *shape[1:]), terms)} can tell "
            "some outcomes apart without error, so that coefficients grow for ever: exclude columns, or "
            "give l2 > 0"
        )


def _gauge(shape) -> np.ndarray:
    """For softmax the projection on shifts of all classes alike, which no row determines."""
    size = int(np.prod(shape))
    if len(shape) == 1:
        return np.zeros((size, size))
    return np.kron(np.eye(shape[0]), np.full((shape[1], shape[1]), 1 / shape[1]))
