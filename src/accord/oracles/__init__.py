"""Local solvers of the proximal sub-problem that the primal-dual methods share; the server's Newton step."""

from accord.oracles.base import Oracle, Solution
from accord.oracles.exact import Exact
from accord.oracles.first_order import (
    SGD,
    GradientDescent,
    Linearised,
    VarianceReduced,
    steps,
)
from accord.oracles.model import newton_step

__all__ = [
    "SGD",
    "Exact",
    "GradientDescent",
    "Linearised",
    "Oracle",
    "Solution",
    "VarianceReduced",
    "newton_step",
    "steps",
]
