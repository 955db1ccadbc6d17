"""Random keys: every engine draws the same numbers for the same (seed, round, client)."""

import jax
import jax.numpy as jnp
import numpy as np

_MOST_ITERATIONS = 10**6
"""Local iterations after which a round ends whatever the coin says: a schedule may be stuck at 1."""

_SERVER = 2**32 - 1
_PARTICIPATION = 2**32 - 2


def run_key(seed: int):
    """The key of a run."""
    return jax.random.key(seed)


def round_key(run, round_index):
    """The key of round ``round_index`` (counted from 0)."""
    return jax.random.fold_in(run, round_index)


def client_key(round_, client):
    """The key of a client in a round: fold_in(fold_in(seed, round), client)."""
    return jax.random.fold_in(round_, client)


def server_key(round_):
    """The key that the server draws its shared coins from."""
    return jax.random.fold_in(round_, _SERVER)


def participation_key(round_):
    """The key that decides who takes part in a round."""
    return jax.random.fold_in(round_, _PARTICIPATION)


def participants(round_, clients: int, count):
    """Who takes part in a round: ``count`` of the clients, uniform without replacement, as (m,)."""
    scores = jax.random.uniform(participation_key(round_), (clients,), dtype="float32")
    rank = jnp.argsort(jnp.argsort(scores))
    return rank < count


def with_key(server, key):
    """The server state with the round's key in its field ``key``, where it has such a field."""
    return server._replace(key=key) if hasattr(server, "key") else server


def iterations_until_communication(key, skip_probability, iteration):
    """T: local iterations until a coin that all clients share says to communicate.

    Iteration t ends with a coin that says *skip* with probability ``skip_probability``, a number or a
    function of t; T counts the iterations from ``iteration`` on, the communicating one included. With
    a constant p, P(T = k) = p^(k-1) (1 - p).
    """

    def skipped(k):
        p = skip_probability(iteration + k) if callable(skip_probability) else skip_probability
        skip = jax.random.uniform(jax.random.fold_in(key, k), dtype="float32") < p
        return skip & (k < _MOST_ITERATIONS)

    return jax.lax.while_loop(skipped, lambda k: k + 1, np.int32(0)) + np.int32(1)
