"""The loop of rounds that engines share: compiled within a chunk, looked at by the host in between."""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from accord import tree
from accord.engines.measures import RUNNING

_CHUNK_SECONDS = 0.25
_CHUNK_ROUNDS = 256
_RECORD_BYTES = 2**25


class Record(NamedTuple):
    """Recorded rounds of a chunk: ``rows`` by column, ``models`` (capacity, ...) or (), ``used``."""

    rows: dict[str, Any]
    models: Any
    used: Any


def record_rounds(
    one_round, measure, judge, model, capacity, keep_models, state, every, end, last
) -> tuple[Any, Record, Any]:
    """Rounds up to ``end``, or until the judge says stop: (state, record, code), all traced.

    ``one_round(state)`` gives (state, what may be looked at); ``measure(state, seen)`` a row;
    ``judge(row)`` a code; ``model(state)`` what is recorded as x. ``state.round`` counts rounds done.
    """

    def is_due(state):
        x = model(state)
        lost = ~jnp.isfinite(tree.dot(x, x))
        return (state.round % every == 0) | (state.round == last) | lost

    def go(carry):
        state, seen = one_round(carry[0])
        return state, seen, is_due(state) | (state.round == end)

    def step(carry):
        """Rounds until one is due, or the chunk ends; then a row."""
        state, record, _ = carry
        begin = state, nothing, jnp.asarray(False)
        state, seen, _ = jax.lax.while_loop(lambda c: ~c[2], go, begin)
        due, row = is_due(state), measure(state, seen)
        code = jnp.where(due, judge(row), RUNNING)
        rows = {name: record.rows[name].at[record.used].set(row[name]) for name in row}
        models = record.models
        if keep_models:
            models = jax.tree.map(lambda m, x: m.at[record.used].set(x), models, model(state))
        return state, Record(rows, models, record.used + due), code

    def unfinished(carry):
        state, _, code = carry
        return (state.round < end) & (code == RUNNING)

    shapes = jax.eval_shape(one_round, state)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes[1])
    columns = jax.eval_shape(measure, *shapes)
    rows = {name: jnp.zeros(capacity + 1) for name in columns}
    models = ()
    if keep_models:
        models = jax.tree.map(
            lambda leaf: jnp.zeros((capacity + 1, *leaf.shape), leaf.dtype), model(state)
        )
    carry = state, Record(rows, models, 0), jnp.asarray(RUNNING)
    return jax.lax.while_loop(unfinished, step, carry)


def same_dtypes(new, old):
    """The new state in the old one's dtypes, so that a loop can carry it."""
    return jax.tree.map(lambda a, b: jnp.asarray(a).astype(b.dtype), new, old)


def unpacked(record: Record) -> tuple[dict[str, np.ndarray], Any]:
    """(rows, models) that a chunk recorded, as NumPy arrays."""
    used = int(record.used)
    rows = {name: np.asarray(column)[:used] for name, column in record.rows.items()}
    return rows, jax.tree.map(lambda m: np.asarray(m)[:used], record.models)


_MOST_PROGRAMS = 128
"""Each compiled program holds some 150 of the 65,530 memory maps that Linux grants a process."""


def make_room(advance) -> None:
    """Forgets a compiled function's programs when there are very many, which would end the process."""
    if advance._cache_size() >= _MOST_PROGRAMS:
        advance.clear_cache()


class Driven(NamedTuple):
    """A run's outcome: the last ``state``, recorded ``columns`` and ``models``, the judge's ``code``."""

    state: Any
    columns: dict[str, np.ndarray]
    models: Any
    code: int
    seconds: float
    compile_seconds: float


def drive(
    machine, state, yardstick, rounds: int, every: int, keep: bool, model_bytes: int,
    progress: Callable[[dict], None] | None,
) -> Driven:  # fmt: skip
    """Runs an engine chunk by chunk to ``rounds``, or until its judge says stop."""
    rows, models, code = [], [], RUNNING
    capacity = _capacity(model_bytes, keep, rounds, every)
    began = time.perf_counter()
    state, *_ = machine.advance(state, yardstick, every, 0, rounds, capacity, keep)
    compiled = time.perf_counter() - began
    done, length, elapsed = int(state.round), 1, 0.0
    while done < rounds and code == RUNNING:
        end = min(rounds, done + length)
        began = time.perf_counter()
        state, new, kept, code = machine.advance(
            state, yardstick, every, end, rounds, capacity, keep
        )
        took = time.perf_counter() - began
        before, done = done, int(state.round)
        new["seconds"] = elapsed + took * (new["round"] - before) / max(done - before, 1)
        elapsed += took
        rows.append(new)
        models.append(kept)
        length = _next_length(length, took, capacity * every)
        if progress and len(new["round"]):
            progress({name: float(column[-1]) for name, column in new.items()})
    rows = [r for r in rows if len(r["round"])]
    columns = {name: np.concatenate([r[name] for r in rows]) for name in rows[0]}
    xs = jax.tree.map(lambda *m: np.concatenate(m), *models) if keep else None
    return Driven(state, columns, xs, code, elapsed, compiled)


def _capacity(model_bytes: int, keep: bool, rounds: int, every: int) -> int:
    """Recorded rounds that a chunk may hold: bounded in number and in memory."""
    # It shapes the compiled program: few sizes, few programs.
    if not keep:
        return _CHUNK_ROUNDS
    most = min(_CHUNK_ROUNDS, math.ceil(rounds / every))
    most = min(most, max(1, _RECORD_BYTES // max(model_bytes, 1)))
    return 2 ** math.floor(math.log2(most)) if most > 1 else 1


def _next_length(length: int, took: float, most: int) -> int:
    """Twice as many rounds while a chunk is short, half as many where it is long."""
    if took < _CHUNK_SECONDS / 2:
        return min(2 * length, most)
    return max(1, length // 2) if took > 2 * _CHUNK_SECONDS else length
