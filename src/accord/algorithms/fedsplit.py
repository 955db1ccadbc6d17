"""FedSplit: Peaceman-Rachford splitting for federated optimisation, with exact proximal steps.

Problem: minimise F(x) = sum_i w_i f_i(x). One round, with gamma = 1/rho:

    client   z_i' = prox_{gamma f_i}(2 x - z_i)
             z_i <- z_i + 2 (z_i' - x)                             up
    server   x = sum_i w_i z_i                                     down

Linear rate (sqrt(kappa) - 1)/(sqrt(kappa) + 1) at gamma = 1/sqrt(L mu). It is PDMM over a centralised
network, round by round, with z_i here the upload y_i there.

R. Pathak, M. J. Wainwright, "FedSplit: an algorithmic framework for fast federated optimization",
NeurIPS 2020, Algorithm 1.
"""

from dataclasses import dataclass

from accord import tree
from accord.algorithms._primal_dual import PrimalDual


@dataclass(frozen=True)
class FedSplit(PrimalDual):
    """FedSplit with exact proximal steps.

    ``penalty`` rho = 1/gamma > 0 (default sqrt(L mu)); ``oracle``, the local solver (default exact).
    """

    penalty: float | None = None
    oracle: object = None

    source = "pathak2020fedsplit"
    exact_when = "strongly convex f_i, an oracle without minibatch noise"
    local = "exact"

    def client(self, state, inbox, objective, key):
        centre = tree.reflect(inbox, state)
        zero = tree.zeros_like(centre)
        solution = self.oracle(objective, inbox, zero, centre, self.penalty, key)
        moved = tree.add_scaled(state, 2, tree.subtract(solution.last, inbox))
        return moved, moved, {"x": solution.last, "gradients": solution.gradients}
