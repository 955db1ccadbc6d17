"""The debug engine: one client after another, uncompiled, on unpadded rows.

It repeats the star engine's plumbing in plain Python, so that a failure names the algorithm, the round,
the client and the stage, and a debugger can stop anywhere.
"""

from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np

from accord import tree
from accord.core import keys, messages, next_server
from accord.engines.job import Job
from accord.engines.measures import (
    RUNNING,
    Yardstick,
    consensus_measures,
    judge,
    model_measures,
)
from accord.engines.star import Seen, State


class StageError(RuntimeError):
    """A failure inside an algorithm's function, with the place where it happened."""


class Debug:
    """A run on the debug engine: ``init``, ``round``, ``measure`` and ``advance`` as ``Star`` has them.

    ``message_bytes`` is known after the first round, from the messages themselves.
    """

    def __init__(self, job: Job):
        self.job = job
        self.message_bytes = (0, 0)
        self._key = keys.run_key(job.seed)
        self._prepared = job.prepared
        needs = job.algorithm.needs
        m = len(job.problem)
        self._objectives = [job.problem.client_objective(i, needs, job.dtype) for i in range(m)]
        with jax.enable_x64(True):
            self._weights = [jnp.asarray(w, job.dtype) for w in job.problem.weights]

    def init(self) -> State:
        """The state before the first round: ``clients`` and ``latest`` have one entry a client."""
        algorithm, x = self.job.algorithm, self.job.x0
        with jax.enable_x64(True):
            key = keys.server_key(keys.round_key(self._key, 0))
            with _stage(algorithm, 0, "init_server"):
                server = keys.with_key(algorithm.init_server(x), key)
            clients = []
            for i, objective in enumerate(self._objectives):
                with _stage(algorithm, 0, "init_client", self.job.problem.clients.names[i]):
                    clients.append(algorithm.init_client(x, objective))
            first = algorithm.init_message(x) if hasattr(algorithm, "init_message") else None
            return State(server, tuple(clients), (first,) * len(clients), 0, 0, 0.0, 0)

    def round(self, state: State) -> tuple[State, Seen]:
        """One round, client after client."""
        with jax.enable_x64(True):
            return self._round(state)

    def _round(self, state):
        algorithm, job = self.job.algorithm, self.job
        key = keys.round_key(self._key, state.round)
        server = keys.with_key(state.server, keys.server_key(key))
        with _stage(algorithm, state.round + 1, "broadcast"):
            inbox = algorithm.broadcast(server)
        mask = self._mask(state.round, key)
        clients, latest, infos = list(state.clients), list(state.latest), []
        for i in np.flatnonzero(mask):
            draw = keys.client_key(key, np.uint32(i))
            with _stage(algorithm, state.round + 1, "client", job.problem.clients.names[i]):
                clients[i], latest[i], info = algorithm.client(
                    clients[i], inbox, self._objectives[i], draw
                )
                if job.stateless and algorithm.state_in_message:
                    clients[i] = algorithm.recover_client(server.x, latest[i])
            infos.append(info)
            self.message_bytes = messages.wire_bytes(
                inbox, latest[i], clients[i], job.stateless, algorithm.state_in_message
            )
        share = sum(w for w, heard in zip(self._weights, mask, strict=True) if heard)
        if share > 0:
            mean = self._mean(latest, mask, share)
            with _stage(algorithm, state.round + 1, "server"):
                share = share if job.partial else 1.0
                server = next_server(algorithm, server, mean, share, self._prepared.regulariser)
        after = State(
            server,
            tuple(clients),
            tuple(latest),
            state.round + 1,
            state.iterations + int(infos[0].get("iterations", 0)),
            state.gradients + float(sum(i.get("gradients", 0) for i in infos)) / len(mask),
            state.heard + int(mask.sum()),
        )
        return after, Seen([i.get("x") for i in infos], mask)

    def _mask(self, round_index, key):
        job = self.job
        if job.schedule is not None:
            return job.schedule[round_index]
        if not job.partial:
            return np.ones(len(job.problem), bool)
        return np.asarray(keys.participants(key, len(job.problem), job.heard))

    def _mean(self, latest, mask, share):
        everyone = [(w, m) for w, m in zip(self._weights, latest, strict=True)]
        heard = [(w / share, m) for (w, m), h in zip(everyone, mask, strict=True) if h]
        over_heard = _sum(heard)
        if not self.job.partial or any(m is None for m in latest):
            return over_heard
        rule = jax.tree.broadcast(self.job.algorithm.absent, over_heard)
        over_all = _sum(everyone)
        return jax.tree.map(lambda r, a, b: a if r == "latest" else b, rule, over_all, over_heard)

    def measure(self, x, yardstick: Yardstick) -> dict[str, float]:
        """The measures of a model, outside any round."""
        with jax.enable_x64(True):
            prepared = self._prepared
            row = model_measures(
                prepared.objectives, prepared.weights, x, yardstick, prepared.regulariser
            )
            return {name: float(value) for name, value in row.items()}

    def _row(self, state, seen, yardstick):
        x = state.server.x
        row = self.measure(x, yardstick)
        for name in ("round", "iterations", "gradients", "heard"):
            row[name] = float(getattr(state, name))
        if seen.models[0] is not None:
            stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), *seen.models)
            weights = jnp.stack([w for w, h in zip(self._weights, seen.masks, strict=True) if h])
            algorithm = self.job.algorithm
            penalty = (
                algorithm.penalty
                if hasattr(algorithm, "dual") and hasattr(algorithm, "penalty")
                else None
            )
            ones = jnp.ones(len(weights), bool)
            row |= consensus_measures([stack], [weights], [ones], x, penalty)
        return {name: float(value) for name, value in row.items()}

    def advance(self, state, yardstick, every, end, last, capacity, keep_models):
        """Rounds up to ``end``: (state, rows, models, code)."""
        rows, models, code = [], [], RUNNING
        with jax.enable_x64(True):
            while state.round < end and code == RUNNING:
                state, seen = self._round(state)
                lost = not np.isfinite(tree.dot(state.server.x, state.server.x))
                if state.round % every == 0 or state.round == last or lost:
                    rows.append(self._row(state, seen, yardstick))
                    models.append(state.server.x)
                    code = int(judge(rows[-1], yardstick))
        names = rows[0] if rows else ["round"]
        columns = {name: np.array([row[name] for row in rows]) for name in names}
        kept = ()
        if keep_models and models:
            kept = jax.tree.map(lambda *leaves: np.stack(leaves), *models)
        return state, columns, kept, code


def _sum(pairs):
    total = tree.scale(*pairs[0])
    for weight, message in pairs[1:]:
        total = tree.add_scaled(total, weight, message)
    return total


@contextmanager
def _stage(algorithm, round_index, function, client=None):
    try:
        yield
    except Exception as error:
        who = f", client {client!r}" if client is not None else ""
        place = f"{type(algorithm).__name__}.{function}, round {round_index}{who}"
        raise StageError(f"{place}: {type(error).__name__}: {error}") from error
