"""A certificate of optimality: how far a model can be from the optimum, from its gradient alone."""

from typing import NamedTuple

from accord import tree
from accord.theory.constants import constants


class Certificate(NamedTuple):
    """``gradient_norm`` ||grad F(x)||; ``distance`` >= ||x - x*||; ``gap`` >= F(x) - F(x*).

    The two bounds are ||grad F||/mu and ||grad F||^2/(2 mu), with mu the strong convexity of F; they are
    None where mu is 0 or not known.
    """

    gradient_norm: float
    distance: float | None
    gap: float | None


def certificate(problem, x) -> Certificate:
    """The certificate of a model."""
    norm = float(tree.norm(problem.gradient(x)))
    mu = constants(problem).global_strong_convexity
    if not mu:
        return Certificate(norm, None, None)
    return Certificate(norm, norm / mu, norm**2 / (2 * mu))
