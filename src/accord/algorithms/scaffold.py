"""SCAFFOLD: local gradient steps corrected by control variates.

Problem: minimise F(x) = sum_i w_i f_i(x). One round:

    client   x from x_s; K times  x <- x - eta (grad f_i(x) - c_i + c)
             c_i <- c_i - c + (x_s - x) / (K eta);  x and c_i      up
    server   x_s <- x_s + eta_g (sum_{i heard} w_i x_i - x_s),  c = sum_i w_i c_i over all clients
                                                                   x_s and c down

Linear rate for strongly convex f_i; eta = 1/L was stable at every K tried. c_i estimates grad f_i(x*),
and starts at zero. With K = 1 and eta_g = 1 it is gradient descent with step eta.

S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh, "SCAFFOLD: Stochastic
Controlled Averaging for Federated Learning", ICML 2020, Algorithm 1, option II.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from accord import tree
from accord.core import Algorithm, static
from accord.oracles import steps


class Pair(NamedTuple):
    """``x``: a model; ``control``: a control variate. Server state, inbox and message alike."""

    x: Any
    control: Any


@dataclass(frozen=True)
class SCAFFOLD(Algorithm):
    """SCAFFOLD with option II.

    ``local_steps`` K (default about sqrt(kappa)); ``step_size`` eta (default 1/L); ``server_step_size``
    eta_g; ``batch_size`` for minibatch gradients (default: full gradients).
    """

    local_steps: int | None = None
    step_size: float | None = None
    server_step_size: float = 1.0
    batch_size: int | None = static(None)

    absent = Pair(x="participants", control="latest")
    state_in_message = True
    delayed = True
    source = "karimireddy2020scaffold"

    def init_server(self, x):
        return Pair(x, tree.zeros_like(x))

    def init_client(self, x, objective):
        return tree.zeros_like(x)

    def init_message(self, x):
        return Pair(x, tree.zeros_like(x))

    def recover_client(self, x, message):
        return message.control

    def dual(self, state, x):
        return tree.scale(-1, state)

    def broadcast(self, server):
        return server

    def client(self, state, inbox, objective, key):
        oracle = steps("gradient", self.local_steps, self.step_size, self.batch_size)
        drift = tree.subtract(inbox.control, state)
        x, _, gradients, _ = oracle(objective, inbox.x, drift, inbox.x, 0.0, key)
        travelled = tree.scale(1 / (self.local_steps * self.step_size), tree.subtract(inbox.x, x))
        control = tree.subtract(travelled, drift)
        return control, Pair(x, control), {"x": x, "gradients": gradients}

    def server(self, server, mean, share):
        return Pair(tree.mix(self.server_step_size, server.x, mean.x), mean.control)
