"""What PDMM, FedSplit, inexact FedSplit, GPDMM and AGPDMM share.

Each client sends one vector y_i and the server takes the mean. A client that remembers the y_i it sent
rebuilds both its dual lambda_{s|i} = rho (y_i - x_s) and the centre z_i = x_s - lambda_{s|i}/rho =
2 x_s - y_i of its proximal sub-problem from the server's model alone, so one broadcast goes down.
sum_i w_i lambda_{s|i} = 0 after every server step, whatever the clients did ([PDMM-C] eq. 32).
"""

from typing import Any, ClassVar, NamedTuple

from accord import tree
from accord.core import Algorithm, Model


class PrimalDual(Algorithm):
    """The server's half, and the client's where its state is the message y_i."""

    absent: ClassVar[Any] = "latest"
    state_in_message: ClassVar[bool] = True
    proximal = True
    penalty: Any

    @property
    def proximal_step(self):
        return 1 / self.penalty

    def init_server(self, x):
        return Model(x)

    def init_client(self, x, objective):
        return x

    def init_message(self, x):
        return x

    def recover_client(self, x, message):
        return message

    def dual(self, state, x):
        return tree.scale(self.penalty, tree.subtract(self.upload(state), x))

    def upload(self, state):
        """The y_i that a client's state holds."""
        return state

    def server(self, server, mean, share):
        return Model(mean)


class Client(NamedTuple):
    """``x``: the last local iterate x_i^K; ``upload``: y_i."""

    x: Any
    upload: Any


class WarmPrimalDual(PrimalDual):
    """The same, where the client also keeps its last iterate."""

    state_in_message: ClassVar[bool] = False

    def init_client(self, x, objective):
        return Client(x, x)

    def recover_client(self, x, message):
        return Client(x, message)

    def upload(self, state):
        return state.upload
