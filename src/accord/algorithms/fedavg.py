"""FedAvg: local gradient steps and averaging.

Problem: minimise F(x) = sum_i w_i f_i(x). One round:

    client   x from x_s; K times  x <- x - eta grad f_i(x);  x     up
    server   x_s = sum_i w_i x_i                                   down

Stable for eta <= 1/L. With K = 1 it is gradient descent on F; with K > 1 and clients that differ it
settles away from the minimiser of F, at a distance that grows with eta, K and the heterogeneity.

B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas, "Communication-Efficient Learning of
Deep Networks from Decentralized Data", AISTATS 2017, Algorithm 1.
"""

from dataclasses import dataclass

from accord import tree
from accord.core import Algorithm, Exactness, Model, static
from accord.oracles import steps


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """FedAvg.

    ``local_steps`` K (default about sqrt(kappa)); ``step_size`` eta (default 1/L); ``batch_size`` for
    minibatch gradients (default: full gradients).
    """

    local_steps: int | None = None
    step_size: float | None = None
    batch_size: int | None = static(None)

    source = "mcmahan2017communication"

    @property
    def exact(self):
        one = self.local_steps == 1 and not self.noisy
        return Exactness(one, "local_steps=1, full gradients, all clients", absent=False)

    def init_server(self, x):
        return Model(x)

    def client(self, state, inbox, objective, key):
        oracle = steps("gradient", self.local_steps, self.step_size, self.batch_size)
        x, _, gradients, _ = oracle(objective, inbox, tree.zeros_like(inbox), inbox, 0.0, key)
        return state, x, {"x": x, "gradients": gradients}

    def server(self, server, mean, share):
        return Model(mean)
