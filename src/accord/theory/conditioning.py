"""Whether a problem is so badly conditioned that no first-order method gets far, and what helps."""

import jax
import numpy as np

from accord.theory.constants import constants, has_bounds

_MUCH = 1e4
_MOST_PARAMETERS = 64


def conditioning_hint(problem, x) -> str | None:
    """A sentence where the condition number of F at x is above 1e4, else None.

    The Hessian of F at x tells for up to 64 parameters; else L/mu, where it is known.
    """
    flat = sum(np.size(leaf) for leaf in jax.tree.leaves(x))
    condition = None
    if flat <= _MOST_PARAMETERS and problem.convex:
        values = np.linalg.eigvalsh(problem.hessian(x))
        condition = values[-1] / values[0] if values[0] > 1e-15 * values[-1] else None
    elif has_bounds(problem):
        condition = constants(problem).condition
    if condition is None or condition < _MUCH:
        return None
    return (
        f"The condition number of F is {condition:.0e}: standardise the columns (mean 0, deviation 1), "
        "or raise l2."
    )
