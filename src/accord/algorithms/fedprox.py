"""FedProx: FedAvg with a proximal term that holds the clients near the server's model.

Problem: minimise F(x) = sum_i w_i f_i(x). One round, with rho the proximal weight:

    client   x from x_s; K times  x <- x - eta (grad f_i(x) + rho (x - x_s));  x   up
    server   x_s = sum_i w_i x_i                                                   down

Stable for eta <= 1/(L + rho). rho = 0 is FedAvg. The bias of FedAvg shrinks as rho grows, and so does
the progress of a round; it does not vanish.

T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith, "Federated Optimization in
Heterogeneous Networks", MLSys 2020, Algorithm 2.
"""

from dataclasses import dataclass

from accord import tree
from accord.core import Algorithm, Exactness, Model, static
from accord.oracles import steps


@dataclass(frozen=True)
class FedProx(Algorithm):
    """FedProx.

    ``local_steps`` K (default about sqrt(kappa)); ``step_size`` eta (default 1/(L + rho)); ``penalty``
    rho >= 0 (default L/K); ``batch_size`` for minibatch gradients (default: full gradients).
    """

    local_steps: int | None = None
    step_size: float | None = None
    penalty: float | None = None
    batch_size: int | None = static(None)

    source = "li2020fedprox"
    local = "gradient"
    may_be_zero = ("penalty",)

    @property
    def exact(self):
        one = self.local_steps == 1 and not self.noisy
        return Exactness(one, "local_steps=1, full gradients, all clients", absent=False)

    def init_server(self, x):
        return Model(x)

    def client(self, state, inbox, objective, key):
        oracle = steps("gradient", self.local_steps, self.step_size, self.batch_size)
        zero = tree.zeros_like(inbox)
        x, _, gradients, _ = oracle(objective, inbox, zero, inbox, self.penalty, key)
        return state, x, {"x": x, "gradients": gradients}

    def server(self, server, mean, share):
        return Model(mean)
