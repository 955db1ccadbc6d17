"""What every local solver shares: the sub-problem, its solution, one gradient step in two forms."""

from typing import Any, NamedTuple

from accord import tree
from accord.core.ranges import check_hyperparameters


class Solution(NamedTuple):
    """What a local solver returns.

    ``last`` and ``average`` (over the iterates after the start) are models, ``gradients`` counts
    local gradients (a minibatch of B of n rows counts B/n), ``memory`` is what the oracle keeps for
    its next call.
    """

    last: Any
    average: Any
    gradients: Any
    memory: Any = ()


class Oracle:
    """A local solver of   min_x  f(x) + <dual, x - centre> + (penalty/2) ||x - centre||^2.

    ``oracle(objective, start, dual, centre, penalty, key, memory)`` returns a ``Solution``;
    ``init(x)`` is the memory before the first call. For a model that is one vector the penalty may be a
    vector too: (1/2) sum_k penalty_k (x_k - centre_k)^2.
    """

    needs = frozenset({"grad"})
    noisy = False
    stateful = False

    def __post_init__(self):
        check_hyperparameters(self)

    def init(self, x):
        return ()

    def __call__(self, objective, start, dual, centre, penalty, key, memory=()) -> Solution:
        raise NotImplementedError


def gradient_step(x, gradient, dual, centre, penalty, step_size):
    """x - eta (g + dual + rho (x - centre)): a gradient step on the whole sub-problem."""
    return tree.map(
        lambda x, g, d, z: x - step_size * (g + d + penalty * (x - z)), x, gradient, dual, centre
    )


def linearised_step(x, gradient, dual, centre, penalty, step_size):
    """(x/eta + rho centre - dual - g) / (1/eta + rho): f linearised at x, the penalty kept exact.

    [FedPD] eq. (4) with gamma = eta and s = 1/rho; [PDMM-C] eqs. (27)-(28).
    """
    return tree.map(
        lambda x, g, d, z: (x - step_size * (g + d - penalty * z)) / (1 + step_size * penalty),
        x,
        gradient,
        dual,
        centre,
    )


FORMS = {"gradient": gradient_step, "linearised": linearised_step}
