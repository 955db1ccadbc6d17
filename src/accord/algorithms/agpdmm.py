"""AGPDMM: accelerated gradient-based PDMM over a centralised network.

Problem: minimise F(x) = sum_i w_i f_i(x). One round, with z_i = 2 x_s - y_i:

    client   x from x_s; K times  x <- (x/eta + rho z_i - grad f_i(x)) / (1/eta + rho)
             y_i = 2 x - z_i, of the last iterate                  up
    server   x_s = sum_i w_i y_i                                   down

eta = 1/L was stable at every K and rho tried, 1.9/L was not. With K = 1 it is gradient descent with step
2 eta/(1 + rho eta), and as K grows it becomes PDMM. The client's state is the y_i that it sent. With the
state held by the server the client is stateless and two vectors go down, as in the paper.
Dual: lambda_{s|i} = rho (y_i - x_s).

G. Zhang, K. Niwa, W. B. Kleijn, "Revisiting the Primal-Dual Method of Multipliers for Optimisation
over Centralised Networks", IEEE TSIPN 8, 2022, Algorithm 2.
"""

from dataclasses import dataclass

from accord import tree
from accord.algorithms._primal_dual import PrimalDual
from accord.core import static
from accord.oracles import steps


@dataclass(frozen=True)
class AGPDMM(PrimalDual):
    """AGPDMM.

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
        centre = tree.reflect(inbox, state)
        oracle = steps("linearised", self.local_steps, self.step_size, self.batch_size)
        zero = tree.zeros_like(centre)
        x, _, gradients, _ = oracle(objective, inbox, zero, centre, self.penalty, key)
        upload = tree.reflect(x, centre)
        return upload, upload, {"x": x, "gradients": gradients}
