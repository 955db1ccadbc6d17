"""What every engine needs of a run before its first round: checked, resolved and cast."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from accord.core import checks, complete, parameters
from accord.theory import resolve

CLIENT_STATES = ("client", "server")
_AUTOMATIC_REFERENCE = 2e7


class Job(NamedTuple):
    """A run that is ready to start.

    ``algorithm`` has no ``None`` left; ``x0`` is the start in the problem's dtype; ``heard`` is the number
    of clients of a round; ``schedule`` (rounds, m) says who takes part, or is None; ``stateless`` is
    True where client state travels.
    """

    algorithm: Any
    problem: Any
    seed: int
    dtype: str
    x0: Any
    heard: int
    schedule: np.ndarray | None
    stateless: bool

    @property
    def partial(self) -> bool:
        """Whether clients can be absent."""
        return self.schedule is not None or self.heard < len(self.problem)

    @property
    def prepared(self):
        """The problem laid out for this algorithm."""
        return self.problem.prepare(self.algorithm.needs, self.dtype)


def make_job(
    algorithm, problem, seed=0, participation=1.0, x0=None, client_state="client", dtype=None
) -> Job:
    """Checks everything that can be checked before compiling, and fills in the defaults."""
    with jax.enable_x64(True):
        return _make_job(algorithm, problem, seed, participation, x0, client_state, dtype)


def _make_job(algorithm, problem, seed, participation, x0, client_state, dtype) -> Job:
    from accord.problems import Problem

    checks.check_algorithm(algorithm)
    algorithm = complete(algorithm)
    if not isinstance(problem, Problem):
        raise TypeError(
            f"problem: expected one made by accord.problems, got {type(problem).__name__}"
        )
    if client_state not in CLIENT_STATES:
        raise ValueError(f'client_state: got {client_state!r}; accepted are "client" and "server"')
    check_whole("seed", seed, 0, 63)
    heard, schedule = _participation(participation, len(problem))
    algorithm = resolve(algorithm, problem, absence=_absence(heard, schedule, len(problem)))
    # Numbers as Python's own: a NumPy scalar would decide the dtype of the whole run.
    algorithm = parameters.join(*parameters.split(algorithm))
    job = Job(
        algorithm,
        problem,
        int(seed),
        dtype or problem.dtype,
        None,
        heard,
        schedule,
        client_state == "server",
    )
    checks.check_fit(algorithm, problem, job.partial)
    return job._replace(x0=checked_start(x0, problem, job.dtype))


def check_whole(name: str, value, least: int, bits: int) -> None:
    """Raises ``ValueError`` for anything but a whole number from ``least`` to 2^bits - 1."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not least <= value < 2**bits:
        raise ValueError(
            f"{name}: got {value!r}; accepted is a whole number from {least} to 2^{bits} - 1"
        )


def check_record(record) -> bool:
    """Whether models are recorded; raises ``ValueError`` for something else to be recorded."""
    one = isinstance(record, str) or not isinstance(record, Iterable)
    names = [record] if one else list(record)
    if any(not isinstance(name, str) or name != "x" for name in names):
        raise ValueError(
            f'record: got {record!r}; accepted is ("x",), the models of recorded rounds'
        )
    return bool(names)


def reference_is_cheap(problem) -> bool:
    """Whether the optimum is measured without being asked for: a convex problem of a moderate size."""
    size = problem.clients.rows * sum(np.size(a) for a in jax.tree.leaves(problem.initial()))
    ready = "_reference" in problem.__dict__
    return bool(problem.convex) and (size <= _AUTOMATIC_REFERENCE or ready)


def _participation(participation, clients: int):
    if np.ndim(participation) == 2:
        schedule = np.asarray(participation)
        if schedule.dtype != bool or schedule.shape[1] != clients:
            raise ValueError(
                f"participation: a schedule wants booleans of shape (rounds, {clients}), got "
                f"{schedule.dtype} {schedule.shape}"
            )
        if not schedule.any(1).all():
            raise ValueError("participation: a round of the schedule has no client at all")
        return clients, schedule
    if not isinstance(participation, float | int) or not 0 < participation <= 1:
        raise ValueError(
            f"participation: got {participation!r}; accepted is a share of the clients in (0, 1], or "
            "booleans of shape (rounds, clients)"
        )
    return max(1, round(participation * clients)), None


def _absence(heard: int, schedule, clients: int) -> float:
    """How much older than a round a client's gradient gets, as far as a stable step must know.

    For clients drawn at random 3 is enough however few they are, as in SAGA's step 1/(3 L); in a schedule
    it is the longest absence.
    """
    if schedule is None:
        return min(clients / heard, 3.0)
    longest = 1
    for column in schedule.T:
        rounds = np.flatnonzero(column)
        longest = max(longest, int(np.diff(np.concatenate([[-1], rounds, [len(column)]])).max()))
    return float(longest)


def checked_start(x0, problem, dtype):
    """The start on the device, in the problem's structure; raises ``ValueError`` where it does not fit."""
    expected = problem.initial()
    x0 = expected if x0 is None else x0
    if isinstance(expected, np.ndarray):
        x0 = np.asarray(x0)
        if x0.dtype.kind not in "fiub":
            raise ValueError(f"x0: got {x0.dtype}; accepted are numbers in the shape of the model")
    wanted, given = jax.tree.structure(expected), jax.tree.structure(x0)
    if wanted != given:
        raise ValueError(f"x0: its structure is {given}; expected {wanted}")
    x0 = jax.tree.map(lambda leaf: jnp.array(leaf, dtype), x0)
    for a, b in zip(jax.tree.leaves(x0), jax.tree.leaves(expected), strict=True):
        if a.shape != np.shape(b):
            raise ValueError(f"x0: an array of shape {a.shape}; expected {np.shape(b)}")
        if not math.isfinite(float(abs(a).sum())):
            raise ValueError("x0: has a NaN or infinite entry")
    return x0
