"""FedPD: federated primal-dual optimisation with any local solver and skipped communication.

Problem: minimise F(x) = sum_i w_i f_i(x); the f_i may be non-convex. One iteration at every client,
with s = 1/rho and x_{0,i} the client's own copy of the model:

    x_i <- Oracle of  f_i(x) + <lambda_i, x - x_{0,i}> + (rho/2) ||x - x_{0,i}||^2  from x_i
    lambda_i <- lambda_i + rho (x_i - x_{0,i});  x_{0,i} <- x_i + lambda_i/rho

and then one coin for all clients: with probability 1 - p everybody communicates,
x_{0,i} <- x_s = sum_i w_i x_{0,i}; with probability p all keep their own x_{0,i}. A communication round
is thus T local iterations, T geometric, drawn by the server and sent with the model.

Non-convex f_i want s < (sqrt(5) - 1)/(4 L). With a constant p > 0 there is an error floor proportional
to s, p and the dissimilarity of the clients; p = 0, or p that falls to 0, removes it. With exact local
solves and p = 0 it is consensus ADMM. Dual: lambda_i, equal to -grad f_i(x*) at the optimum.

X. Zhang, M. Hong, S. Dhople, W. Yin, Y. Liu, "FedPD: A Federated Learning Framework with Adaptivity to
Non-IID Data", IEEE TSP 69, 2021, Algorithms 1 and 2 (Oracles I and II).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from jax.random import fold_in

from accord import tree
from accord.algorithms.admm import ADMM, Client
from accord.core import Exactness, repeat
from accord.core.keys import iterations_until_communication
from accord.core.ranges import check_hyperparameters


class Server(NamedTuple):
    """``x``: x_s; ``iteration``: local iterations announced so far; ``key``: the round's key."""

    x: Any
    iteration: Any
    key: Any


class Inbox(NamedTuple):
    """``x``: x_s; ``iterations``: T."""

    x: Any
    iterations: Any


@dataclass(frozen=True)
class LinearDecay:
    """The skip probability (T - t)/T at iteration t, with T = ``iterations``; 0 from T on."""

    iterations: int
    vanishes: ClassVar[bool] = True

    def __post_init__(self):
        check_hyperparameters(self)

    def __call__(self, iteration):
        left = self.iterations - iteration
        return left * (left > 0) / self.iterations


@dataclass(frozen=True)
class FedPD(ADMM):
    """FedPD.

    ``penalty`` rho = 1/s (default sqrt(L mu) with exact local solves); ``skip_probability`` p in [0, 1),
    a number, a function of the iteration (``LinearDecay``; one that falls to 0 says so by an attribute
    ``vanishes``), or None: from the clients' heterogeneity (then s is (sqrt(5) - 1)/(8 L) by default);
    ``oracle``, the local solver (default exact, or gradient descent where there is no exact one).
    """

    skip_probability: float | Callable | None = 0.0

    source = "zhang2021fedpd"

    @property
    def exact(self):
        p = self.skip_probability
        vanishes = getattr(p, "vanishes", False) or (isinstance(p, int | float) and p == 0)
        return Exactness(vanishes and not self.noisy, "skip_probability 0, or falling to 0")

    @property
    def proximal(self):
        return self.exact.reaches

    def init_server(self, x):
        return Server(x, 0, 0)

    def _iterations(self, server):
        p = self.skip_probability
        return iterations_until_communication(server.key, p, server.iteration)

    def broadcast(self, server):
        return Inbox(server.x, self._iterations(server))

    def client(self, state, inbox, objective, key):
        def iterate(t, carry):
            (start, dual, memory), centre, used = carry
            x, _, gradients, memory = self.oracle(
                objective, start, dual, centre, self.penalty, fold_in(key, t), memory
            )
            dual = tree.add_scaled(dual, self.penalty, tree.subtract(x, centre))
            centre = tree.add_scaled(x, 1 / self.penalty, dual)
            return Client(x, dual, memory), centre, used + gradients

        state, upload, gradients = repeat(inbox.iterations, iterate, (state, inbox.x, 0.0))
        return state, upload, {"x": state.x, "gradients": gradients, "iterations": inbox.iterations}

    def server(self, server, mean, share):
        return Server(mean, server.iteration + self._iterations(server), server.key)
