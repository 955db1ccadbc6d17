"""ADMM, the augmented-Lagrangian scheme for consensus.

Problem: minimise F(x) = sum_i w_i f_i(x) subject to x_i = x. One round, with s = 1/rho:

    client   x_i = argmin f_i(x) + <lambda_i, x - x_s> + (rho/2) ||x - x_s||^2
             lambda_i <- lambda_i + rho (x_i - x_s);  x_i + lambda_i/rho   up
    server   x_s = sum_i w_i (x_i + lambda_i/rho)                          down

Converges for convex f_i at every rho > 0. Primal: x_i, x_s. Dual: lambda_i, equal to -grad f_i(x*) at
the optimum. An absent client counts with the last vector it sent.

S. Boyd, N. Parikh, E. Chu, B. Peleato, J. Eckstein, "Distributed Optimization and Statistical Learning
via the Alternating Direction Method of Multipliers", FnT Machine Learning 3, 2011,
section 7.1, whose clients move alike while its server reports the mean of the x_i; scheme (3) of
X. Zhang et al., "FedPD", IEEE TSP 69, 2021.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from accord import tree
from accord.core import Algorithm, Model


class Client(NamedTuple):
    """``x``: x_i, where the next local solve starts; ``dual``: lambda_i; ``memory``: the oracle's."""

    x: Any
    dual: Any
    memory: Any


@dataclass(frozen=True)
class ADMM(Algorithm):
    """Consensus ADMM.

    ``penalty`` rho > 0 (default sqrt(L mu)); ``oracle``, the local solver (default exact).
    """

    penalty: float | None = None
    oracle: object = None

    absent = "latest"
    source = "boyd2011admm"
    oracle_memory = True
    exact_when = "an oracle without minibatch noise"
    local = "exact"
    proximal = True

    @property
    def proximal_step(self):
        return 1 / self.penalty

    def init_server(self, x):
        return Model(x)

    def init_client(self, x, objective):
        return Client(x, tree.zeros_like(x), self.oracle.init(x))

    def init_message(self, x):
        return x

    def recover_client(self, x, message):
        dual = tree.scale(self.penalty, tree.subtract(message, x))
        return Client(x, dual, self.oracle.init(x))

    def dual(self, state, x):
        return state.dual

    def client(self, state, inbox, objective, key):
        x, _, gradients, memory = self.oracle(
            objective, state.x, state.dual, inbox, self.penalty, key, state.memory
        )
        dual = tree.add_scaled(state.dual, self.penalty, tree.subtract(x, inbox))
        upload = tree.add_scaled(x, 1 / self.penalty, dual)
        return Client(x, dual, memory), upload, {"x": x, "gradients": gradients}

    def server(self, server, mean, share):
        return Model(mean)
