"""Inexact FedSplit: K gradient steps in place of the proximal step, and where they start.

Problem: minimise F(x) = sum_i w_i f_i(x). One round, with z_i = 2 x_s - y_i:

    client   x from ``start``; K times  x <- x - eta (grad f_i(x) + rho (x - z_i))
             y_i = 2 x - z_i                                       up
    server   x_s = sum_i w_i y_i                                   down

The published choice starts at z_i (``start="dual"``). At the optimum z_i = x* + grad f_i(x*)/rho is not
x*, so K steps do not end where they must: the method settles at a biased point. From x_s ("primal") or
from the client's last x^K ("warm") the start is x* at the optimum, and the method is exact. Stable for
eta <= 1/(L + rho).

R. Pathak, M. J. Wainwright, NeurIPS 2020; the bias and its cure: G. Zhang, K. Niwa,
W. B. Kleijn, IEEE TSIPN 8, 2022.
"""

from dataclasses import dataclass

from accord import tree
from accord.algorithms._primal_dual import Client, WarmPrimalDual
from accord.core import Exactness, static
from accord.oracles import steps


@dataclass(frozen=True)
class InexactFedSplit(WarmPrimalDual):
    """Inexact FedSplit.

    ``start`` is "dual" (z_i, as published: biased), "primal" (x_s) or "warm" (x_i^K); ``local_steps`` K;
    ``step_size`` eta (default 1/(L + rho)); ``penalty`` rho; ``batch_size`` for minibatch gradients.
    """

    local_steps: int | None = None
    step_size: float | None = None
    penalty: float | None = None
    start: str = "primal"
    batch_size: int | None = static(None)

    source = "pathak2020fedsplit"
    local = "gradient"

    @property
    def exact(self):
        return Exactness(
            self.start != "dual" and not self.noisy, 'start="primal" or "warm", full gradients'
        )

    def client(self, state, inbox, objective, key):
        centre = tree.reflect(inbox, state.upload)
        start = {"dual": centre, "primal": inbox, "warm": state.x}[self.start]
        oracle = steps("gradient", self.local_steps, self.step_size, self.batch_size)
        zero = tree.zeros_like(centre)
        x, _, gradients, _ = oracle(objective, start, zero, centre, self.penalty, key)
        upload = tree.reflect(x, centre)
        return Client(x, upload), upload, {"x": x, "gradients": gradients}
