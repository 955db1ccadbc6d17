"""GPDMM: gradient-based PDMM over a centralised network.

Problem: minimise F(x) = sum_i w_i f_i(x). One round, with z_i = 2 x_s - y_i:

    client   x from its last x_i^K; K times  x <- (x/eta + rho z_i - grad f_i(x)) / (1/eta + rho)
             y_i = 2 xbar_i - z_i,  xbar_i the mean of the K iterates      up
    server   x_s = sum_i w_i y_i                                           down

For eta <= 1/L, any rho > 0 and any K,
V = sum_i w_i [ ||x_i - x*||^2 / (2 eta K) + (rho/4) ||z_i - z_i*||^2 ], z_i* = x* + grad f_i(x*)/rho,
never increases; the rate is linear for strongly convex f_i. Primal: x_i, x_s.
Dual: lambda_{s|i} = rho (y_i - x_s).

G. Zhang, K. Niwa, W. B. Kleijn, "Revisiting the Primal-Dual Method of Multipliers for Optimisation
over Centralised Networks", IEEE TSIPN 8, 2022, Algorithm 1, eqs. (27)-(28).
"""

from dataclasses import dataclass

from accord import tree
from accord.algorithms._primal_dual import Client, WarmPrimalDual
from accord.core import static
from accord.oracles import steps


@dataclass(frozen=True)
class GPDMM(WarmPrimalDual):
    """GPDMM.

    ``local_steps`` K (default about sqrt(kappa)); ``step_size`` eta (default 1/L); ``penalty`` rho
    (default max(1/(K eta), sqrt(L mu))); ``batch_size`` for minibatch gradients.
    """

    local_steps: int | None = None
    step_size: float | None = None
    penalty: float | None = None
    batch_size: int | None = static(None)

    source = "zhang2022revisiting"
    local = "linearised"

    def client(self, state, inbox, objective, key):
        centre = tree.reflect(inbox, state.upload)
        oracle = steps("linearised", self.local_steps, self.step_size, self.batch_size)
        zero = tree.zeros_like(centre)
        x, average, gradients, _ = oracle(objective, state.x, zero, centre, self.penalty, key)
        upload = tree.reflect(average, centre)
        return Client(x, upload), upload, {"x": x, "gradients": gradients}
