"""Name: one line that says what the method does.

Problem: minimise F(x) = sum_i w_i f_i(x). One round, in plain symbols:

    client   x from x_s; one step  x <- x - eta grad f_i(x);  x    up
    server   x_s = sum_i w_i x                                     down

The step-size condition and the rate. What is primal, what is dual.

Authors, "Title", venue and year, algorithm number.
"""

from dataclasses import dataclass

from accord import tree
from accord.core import Algorithm, Exactness, Model


@dataclass(frozen=True)
class Skeleton(Algorithm):
    """The method's name.

    ``step_size`` eta (default 1/L): every hyper-parameter with its symbol and its default.
    """

    step_size: float | None = None

    # Class facts that differ from the contract's defaults; ``source`` is a key of accord.sources.
    absent = "participants"
    source = "mcmahan2017communication"

    @property
    def exact(self):
        return Exactness(True, "all clients", absent=False)

    # The five functions, in the order of a round. A state or message of more than one part is a
    # NamedTuple that gives each field its symbol.

    def init_server(self, x):
        return Model(x)

    def init_client(self, x, objective):
        return ()

    def broadcast(self, server):
        return server.x

    def client(self, state, inbox, objective, key):
        x = tree.add_scaled(inbox, -self.step_size, objective.grad(inbox))
        return state, x, {"x": x, "gradients": 1}

    def server(self, server, mean, share):
        return Model(mean)
