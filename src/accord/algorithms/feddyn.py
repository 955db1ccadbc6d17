"""FedDyn: dynamic regularisation, a linear term that moves each client's optimum to the common one.

Problem: minimise F(x) = sum_i w_i f_i(x). One round, with alpha = rho:

    client   x_i = argmin f_i(x) - <g_i, x> + (rho/2) ||x - x_s||^2;  g_i <- g_i - rho (x_i - x_s)
             x_i                                                   up
    server   h <- h - rho sum_{i heard} w_i (x_i - x_s);  x_s = (mean of the x_i heard) - h/rho   down

With exact local solves and every client heard it is consensus ADMM, with g_i = -lambda_i. Converges for
convex f_i; g_i tends to grad f_i(x*). Primal: x_i, x_s. Dual: -g_i.

D. A. E. Acar, Y. Zhao, R. Matas, M. Mattina, P. Whatmough, V. Saligrama, "Federated Learning Based on
Dynamic Regularization", ICLR 2021, Algorithm 1.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from accord import tree
from accord.core import Algorithm


class Server(NamedTuple):
    """``x``: x_s; ``correction``: h."""

    x: Any
    correction: Any


@dataclass(frozen=True)
class FedDyn(Algorithm):
    """FedDyn.

    ``penalty`` alpha > 0 (default sqrt(L mu)); ``oracle``, the local solver (default exact).
    """

    penalty: float | None = None
    oracle: object = None

    source = "acar2021feddyn"
    exact_when = "an exact local solver"
    local = "exact"

    def init_server(self, x):
        return Server(x, tree.zeros_like(x))

    def init_client(self, x, objective):
        return tree.zeros_like(x)

    # The server's h assumes every client's g_i: a client that lost it cannot be restored from x_i.
    recover_client = None

    def dual(self, state, x):
        return state

    def broadcast(self, server):
        return server.x

    def client(self, state, inbox, objective, key):
        x, _, gradients, _ = self.oracle(objective, inbox, state, inbox, self.penalty, key)
        dual = tree.add_scaled(state, self.penalty, tree.subtract(x, inbox))
        return dual, x, {"x": x, "gradients": gradients}

    def server(self, server, mean, share):
        moved = tree.subtract(mean, server.x)
        correction = tree.add_scaled(server.correction, -self.penalty * share, moved)
        return Server(tree.add_scaled(mean, -1 / self.penalty, correction), correction)
