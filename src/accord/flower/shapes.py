"""The shapes of what a method sends and keeps, without any client's rows."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import flatten_util

from accord.core import keys, next_server


class _Anyone:
    """Stands for a client's objective where only shapes are wanted."""

    rows = 1

    def value(self, x):
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(x))

    def grad(self, x):
        return x

    def hessian_product(self, x, direction):
        return direction

    def second_derivative(self, x):
        flat, _ = flatten_util.ravel_pytree(x)
        return jnp.zeros((flat.size, flat.size), flat.dtype)

    def prox(self, target, penalty):
        return target

    def draw(self, key, batch_size):
        return jnp.zeros(batch_size, "int32")

    def minibatch_grad(self, x, index):
        return x


class Shapes:
    """Shape structs of what a resolved algorithm sends and keeps for models like x, a tree of arrays.

    ``server`` without its key; one client's ``inbox``, ``state`` and ``message``. Each is found when it is
    first wanted: tracing a client's work takes a while.
    """

    def __init__(self, algorithm, x, regulariser=None):
        self._algorithm, self._x, self._regulariser = algorithm, x, regulariser

    def _shape(self, function) -> Any:
        with jax.enable_x64(True):
            return jax.eval_shape(function, self._x)

    @functools.cached_property
    def inbox(self) -> Any:
        return self._shape(lambda x: self._algorithm.broadcast(first_server(self._algorithm, x)))

    @functools.cached_property
    def state(self) -> Any:
        return self._shape(lambda x: self._algorithm.init_client(x, _Anyone()))

    @functools.cached_property
    def message(self) -> Any:
        return self._shape(self._message)

    @functools.cached_property
    def server(self) -> Any:
        return self._shape(self._server)

    def _message(self, x):
        algorithm = self._algorithm
        inbox = algorithm.broadcast(first_server(algorithm, x))
        state = algorithm.init_client(x, _Anyone())
        return algorithm.client(state, inbox, _Anyone(), keys.run_key(0))[1]

    def _server(self, x):
        server, message = first_server(self._algorithm, x), self._message(x)
        after = next_server(self._algorithm, server, message, 1.0, self._regulariser)
        return keys.with_key(after, 0)


def first_server(algorithm, x):
    """The server's state before the first round, with some key."""
    return keys.with_key(
        algorithm.init_server(x), keys.server_key(keys.round_key(keys.run_key(0), 0))
    )
