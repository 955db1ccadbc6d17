"""The shapes of what a method sends and keeps, without any client's rows."""

from typing import Any, NamedTuple

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


class Shapes(NamedTuple):
    """Shape structs: ``server`` without its key, and one client's ``inbox``, ``state`` and ``message``."""

    server: Any
    inbox: Any
    state: Any
    message: Any


def shapes_of(algorithm, x, regulariser=None) -> Shapes:
    """What a resolved algorithm sends and keeps for models like x, a tree of arrays."""

    def trace(x):
        server = first_server(algorithm, x)
        inbox = algorithm.broadcast(server)
        state = algorithm.init_client(x, _Anyone())
        _, message, _ = algorithm.client(state, inbox, _Anyone(), keys.run_key(0))
        after = next_server(algorithm, server, message, 1.0, regulariser)
        return keys.with_key(after, 0), inbox, state, message

    with jax.enable_x64(True):
        return Shapes(*jax.eval_shape(trace, x))


def first_server(algorithm, x):
    """The server's state before the first round, with some key."""
    return keys.with_key(
        algorithm.init_server(x), keys.server_key(keys.round_key(keys.run_key(0), 0))
    )
