"""Scaffnew (ProxSkip): gradient steps with shifts, and communication with a small probability.

Problem: minimise F(x) = sum_i w_i f_i(x). One iteration at every client:

    xhat_i = x_i - eta (grad f_i(x_i) - h_i)
    with probability p_c all communicate: x_i <- sum_i w_i xhat_i, h_i <- h_i + (p_c/eta) (x_i - xhat_i)
    otherwise x_i <- xhat_i

A communication round is T ~ Geometric(p_c) iterations, T drawn by the server and sent with the model;
the shift is corrected when the next model arrives. Reaches accuracy eps in O(sqrt(kappa) log 1/eps)
communications for eta <= 1/L and p_c = 1/sqrt(kappa). sum_i w_i h_i = 0, and h_i tends to grad f_i(x*).

K. Mishchenko, G. Malinovsky, S. Stich, P. Richtárik, "ProxSkip: Yes! Local Gradient Steps Provably Lead
to Communication Acceleration! Finally!", ICML 2022, Algorithm 2.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from accord import tree
from accord.core import Algorithm, repeat
from accord.core.keys import iterations_until_communication


class Server(NamedTuple):
    """``x``: the model; ``key``: the round's key."""

    x: Any
    key: Any


class Inbox(NamedTuple):
    """``x``: the model; ``iterations``: T."""

    x: Any
    iterations: Any


class Client(NamedTuple):
    """``upload``: the xhat_i last sent; ``shift``: h_i before that model's mean was known."""

    upload: Any
    shift: Any


@dataclass(frozen=True)
class Scaffnew(Algorithm):
    """Scaffnew.

    ``step_size`` eta (default 1/L); ``communication_probability`` p_c in (0, 1] (default
    1/sqrt(kappa)). Defined with every client in every round.
    """

    step_size: float | None = None
    communication_probability: float | None = None

    absent = None
    source = "mishchenko2022proxskip"
    exact_when = "every client in every round"

    def init_server(self, x):
        return Server(x, 0)

    def init_client(self, x, objective):
        return Client(x, tree.zeros_like(x))

    # sum_i w_i h_i = 0 must hold: a client that lost its h_i cannot be restored from its message.
    recover_client = None

    def _shift(self, state, x):
        ratio = self.communication_probability / self.step_size
        return tree.add_scaled(state.shift, ratio, tree.subtract(x, state.upload))

    def dual(self, state, x):
        return tree.scale(-1, self._shift(state, x))

    def broadcast(self, server):
        skip = 1 - self.communication_probability
        return Inbox(server.x, iterations_until_communication(server.key, skip, 0))

    def client(self, state, inbox, objective, key):
        shift = self._shift(state, inbox.x)

        def iterate(t, x):
            return tree.add_scaled(x, -self.step_size, tree.subtract(objective.grad(x), shift))

        x = repeat(inbox.iterations, iterate, inbox.x)
        info = {"x": x, "gradients": inbox.iterations, "iterations": inbox.iterations}
        return Client(x, shift), x, info

    def server(self, server, mean, share):
        return Server(mean, server.key)
