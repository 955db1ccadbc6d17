"""The compiled star engine: clients under ``vmap``, rounds in one compiled loop.

``Star`` is also how one steps by hand: ``init``, then ``round`` as often as wanted, with every state in
plain sight. ``advance`` runs many rounds in one compiled loop around the very same function.
"""

from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from accord.core import checks, keys, messages, next_server, parameters
from accord.engines.job import Job
from accord.engines.loop import make_room, record_rounds, same_dtypes, unpacked
from accord.engines.measures import (
    Yardstick,
    consensus_measures,
    judge,
    model_measures,
)


class State(NamedTuple):
    """Everything a run holds between rounds.

    ``server``; ``clients`` and ``latest`` (latest messages, kept only where clients can be absent), one
    entry per bucket with a leading client axis; ``round``: rounds done; ``iterations``, ``gradients``
    and ``heard``: totals so far.
    """

    server: Any
    clients: tuple[Any, ...]
    latest: tuple[Any, ...]
    round: Any
    iterations: Any
    gradients: Any
    heard: Any


class Setup(NamedTuple):
    """The arguments of the compiled program that stay the same during a run."""

    numbers: Any
    objectives: tuple[Any, ...]
    weights: tuple[Any, ...]
    members: tuple[Any, ...]
    regulariser: Any
    key: Any
    heard: Any
    schedule: Any


class Plan(NamedTuple):
    """What identifies the compiled program: hashable."""

    structure: parameters.Structure
    clients: int
    partial: bool
    stateless: bool


class Seen(NamedTuple):
    """What one may look at after a round: the clients' models and who was heard, per bucket."""

    models: Any
    masks: Any


def _participants(plan: Plan, setup: Setup, round_index, key):
    if not plan.partial:
        return [jnp.ones(w.shape, bool) for w in setup.weights]
    if setup.schedule is not None:
        mask = setup.schedule[round_index % len(setup.schedule)]
    else:
        mask = keys.participants(key, plan.clients, setup.heard)
    return [mask[m] for m in setup.members]


def one_round(plan: Plan, setup: Setup, state: State) -> tuple[State, Seen]:
    """One communication round: broadcast, all clients, weighted mean, server."""
    algorithm = parameters.join(setup.numbers, plan.structure)
    key = keys.round_key(setup.key, state.round)
    server = keys.with_key(state.server, keys.server_key(key))
    inbox = algorithm.broadcast(server)
    masks = _participants(plan, setup, state.round, key)
    recover = plan.stateless and algorithm.state_in_message
    clients, latest, infos = [], [], []
    for b, objective in enumerate(setup.objectives):
        draws = jax.vmap(keys.client_key, (None, 0))(key, setup.members[b])
        run = jax.vmap(algorithm.client, (0, None, 0, 0))
        new, message, info = run(state.clients[b], inbox, objective, draws)
        if recover:
            new = jax.vmap(algorithm.recover_client, (None, 0))(server.x, message)
        if plan.partial:
            new = messages.choose(masks[b], new, state.clients[b])
            message = messages.choose(masks[b], message, state.latest[b])
        clients.append(new)
        latest.append(message)
        infos.append(info)
    if plan.partial:
        mean, share = messages.mean(latest, setup.weights, masks, algorithm.absent)
        after = next_server(algorithm, server, mean, share, setup.regulariser)
        # A round that hears only clients of weight zero has no mean.
        after = jax.tree.map(lambda a, b: jnp.where(share > 0, a, b), after, server)
    else:
        mean = messages.everyone(latest, setup.weights)
        after = next_server(algorithm, server, mean, 1.0, setup.regulariser)
    new_state = State(
        after,
        tuple(clients),
        tuple(latest) if plan.partial else (),
        state.round + 1,
        state.iterations + jnp.max(jnp.asarray(infos[0].get("iterations", 0))),
        state.gradients
        + sum(jnp.sum(m * i.get("gradients", 0)) for m, i in zip(masks, infos, strict=True))
        / plan.clients,
        state.heard + sum(jnp.sum(m) for m in masks),
    )
    return same_dtypes(new_state, state), Seen([i.get("x") for i in infos], masks)


_one_round = jax.jit(one_round, static_argnums=0)


def _measure(plan: Plan, setup: Setup, state: State, seen: Seen, yardstick) -> dict[str, Any]:
    x = state.server.x
    row = model_measures(setup.objectives, setup.weights, x, yardstick, setup.regulariser)
    for name in ("round", "iterations", "gradients", "heard"):
        row[name] = getattr(state, name)
    if seen.models[0] is not None:
        dual = hasattr(plan.structure.cls, "dual")
        penalty = setup.numbers.get("penalty") if dual else None
        row |= consensus_measures(seen.models, setup.weights, seen.masks, x, penalty)
    return {name: jnp.asarray(value).astype("float64") for name, value in row.items()}


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)
def _advance(plan, capacity, keep_models, setup, state, yardstick, every, end, last):
    """Rounds up to ``end``, or until the judge says stop: (state, record, code)."""
    return record_rounds(
        lambda state: one_round(plan, setup, state),
        lambda state, seen: _measure(plan, setup, state, seen, yardstick),
        lambda row: judge(row, yardstick),
        lambda state: state.server.x,
        capacity, keep_models, state, every, end, last,
    )  # fmt: skip


def compiled_programs() -> int:
    """How many compiled programs the engine holds in this process."""
    return cast(Any, _advance)._cache_size()


class Star:
    """A run on the compiled star engine, ready to step.

    star = Star(make_job(accord.GPDMM(), problem))
    state = star.init()
    state, seen = star.round(state)
    state.server.x
    """

    def __init__(self, job: Job):
        self.job = job
        numbers, structure = parameters.split(job.algorithm)
        self.plan = Plan(structure, len(job.problem), job.partial, job.stateless)
        with jax.enable_x64(True):
            schedule = None if job.schedule is None else jnp.asarray(job.schedule)
            prepared = job.prepared
            self.setup = Setup(
                numbers,
                prepared.objectives,
                prepared.weights,
                prepared.clients,
                prepared.regulariser,
                keys.run_key(job.seed),
                job.heard,
                schedule,
            )
        self._shapes = self._trace()
        self.message_bytes = self._wire()

    def init(self) -> State:
        """The state before the first round."""
        algorithm, x = self.job.algorithm, self.job.x0
        with jax.enable_x64(True):
            key = keys.round_key(self.setup.key, 0)
            server = keys.with_key(algorithm.init_server(x), keys.server_key(key))
            stacks, latest = [], []
            for objective, w in zip(self.setup.objectives, self.setup.weights, strict=True):
                start = jax.vmap(algorithm.init_client, (None, 0), axis_size=len(w))
                stacks.append(start(x, objective))
                if self.job.partial:
                    latest.append(self._first_messages(len(w), objective))
            state = State(server, tuple(stacks), tuple(latest), 0, 0, 0.0, 0)
            return jax.tree.map(lambda leaf: jnp.array(leaf, jnp.asarray(leaf).dtype), state)

    def _first_messages(self, m, objective):
        """What clients not heard yet count as having sent; zeros where it is never read."""
        algorithm, x = self.job.algorithm, self.job.x0
        if hasattr(algorithm, "init_message"):
            message = algorithm.init_message(x)
        else:
            message = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), self._shapes[1])
        return jax.tree.map(lambda leaf: jnp.repeat(jnp.asarray(leaf)[None], m, 0), message)

    def _trace(self):
        """(inbox, message, client state) of one client, as shapes."""
        algorithm, x, objectives = self.job.algorithm, self.job.x0, self.setup.objectives
        key = keys.server_key(keys.round_key(self.setup.key, 0))

        def trace(x, objective):
            one = jax.tree.map(lambda leaf: leaf[0], objective)
            with checks.named(algorithm, "init_server"):
                server = keys.with_key(algorithm.init_server(x), key)
                checks.check_same("init_server", "model x", x, server.x)
            with checks.named(algorithm, "broadcast"):
                inbox = algorithm.broadcast(server)
            with checks.named(algorithm, "init_client"):
                state = algorithm.init_client(x, one)
            with checks.named(algorithm, "client"):
                new, message, info = algorithm.client(state, inbox, one, key)
                checks.check_same("client", "state", state, new)
                info.get("x")
            with checks.named(algorithm, "server"):
                after = next_server(algorithm, server, message, 1.0, self.setup.regulariser)
                checks.check_same("server", "server state", server, after)
            return inbox, message, state

        with jax.enable_x64(True):
            return jax.eval_shape(trace, x, objectives[0])

    def _wire(self) -> tuple[int, int]:
        """Bytes (up, down) of one client in one round."""
        told = self.job.algorithm.state_in_message
        inbox, message, state = self._shapes
        return messages.wire_bytes(inbox, message, state, self.job.stateless, told)

    def round(self, state: State) -> tuple[State, Seen]:
        """One round: the new state, and what the clients' models were."""
        with jax.enable_x64(True):
            return _one_round(self.plan, self.setup, state)

    def in_client_order(self, stacks) -> Any:
        """Per-bucket stacks, as ``state.clients`` and ``seen.models`` are, as one stack in client order."""
        order = np.argsort(np.concatenate([np.asarray(m) for m in self.setup.members]))
        return jax.tree.map(lambda *s: np.concatenate([np.asarray(p) for p in s])[order], *stacks)

    def duals(self, state: State) -> Any:
        """The dual lambda_{s|i} of every client, stacked in client order."""
        with jax.enable_x64(True):
            one = jax.vmap(self.job.algorithm.dual, (0, None))
            return self.in_client_order([one(c, state.server.x) for c in state.clients])

    def measure(self, x, yardstick: Yardstick) -> dict[str, float]:
        """The measures of a model, outside any round."""
        with jax.enable_x64(True):
            setup = self.setup
            row = _model_measures(setup.objectives, setup.weights, x, yardstick, setup.regulariser)
            return {name: float(value) for name, value in row.items()}

    def advance(self, state, yardstick, every, end, last, capacity, keep_models):
        """Rounds up to ``end``, recording every ``every``-th and the ``last``: (state, rows, models, code).

        The state that is given is used up.
        """
        make_room(_advance)
        with jax.enable_x64(True):
            state, record, code = _advance(
                self.plan, capacity, keep_models, self.setup, state, yardstick, every, end, last
            )
            return state, *unpacked(record), int(code)


_model_measures = jax.jit(model_measures)
