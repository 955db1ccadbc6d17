"""PDMM over a centralised network: the primal-dual method of multipliers with exact local steps.

Problem: minimise F(x) = sum_i w_i f_i(x). One round, with z_i = 2 x_s - y_i:

    client   x_i = argmin f_i(x) + (rho/2) ||x - z_i||^2
             y_i <- (1 - theta) y_i + theta (2 x_i - z_i)          up
    server   x_s = sum_i w_i y_i                                   down

Relaxation theta = 1 is PDMM (Peaceman-Rachford splitting), theta = 1/2 is Douglas-Rachford splitting.
For f_i with L and mu > 0 the error contracts by (sqrt(kappa) - 1)/(sqrt(kappa) + 1) a round at
rho = sqrt(L mu); for merely convex f_i the iterates may cycle at theta = 1 and converge below it.
Primal: x_i, x_s. Dual: lambda_{s|i} = rho (y_i - x_s), equal to -grad f_i(x*) at the optimum.

G. Zhang, K. Niwa, W. B. Kleijn, "Revisiting the Primal-Dual Method of Multipliers for Optimisation
over Centralised Networks", IEEE TSIPN 8, 2022.
"""

from dataclasses import dataclass

from accord import tree
from accord.algorithms._primal_dual import PrimalDual


@dataclass(frozen=True)
class PDMM(PrimalDual):
    """Centralised PDMM.

    ``penalty`` rho > 0 (default sqrt(L mu)); ``relaxation`` theta in (0, 1] (default 1 where every f_i
    is strongly convex, else 1/2); ``oracle``, the local solver (default exact).
    """

    penalty: float | None = None
    relaxation: float | None = None
    oracle: object = None

    reveals = "a vector made of the optimum of its own rows near the model"
    source = "zhang2022revisiting"
    exact_when = "an oracle without minibatch noise; relaxation < 1 for merely convex f_i"
    local = "exact"

    def client(self, state, inbox, objective, key):
        centre = tree.reflect(inbox, state)
        zero = tree.zeros_like(centre)
        solution = self.oracle(objective, inbox, zero, centre, self.penalty, key)
        upload = tree.mix(self.relaxation, state, tree.reflect(solution.last, centre))
        return upload, upload, {"x": solution.last, "gradients": solution.gradients}
