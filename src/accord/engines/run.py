"""``accord.run``: chunks of rounds, and between them recording, progress, stopping and statuses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from accord import tree
from accord.core import Status, status
from accord.engines.debug import Debug
from accord.engines.history import History
from accord.engines.job import check_record, check_whole, make_job, reference_is_cheap
from accord.engines.loop import drive
from accord.engines.measures import CONVERGED, DIVERGED, NOT_FINITE, Yardstick
from accord.engines.star import Star
from accord.engines.stop import Stop
from accord.theory import (
    Certificate,
    certificate,
    conditioning_hint,
    constants,
)

ENGINES = {"star": Star, "debug": Debug}
_EXPLOSION = 1e6


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """The outcome of ``accord.run``.

    ``x``: the model, NumPy arrays; ``xs``: recorded models stacked (with ``record=("x",)``, else None);
    ``status``: how the run ended; ``history``: one row a recorded round; ``start``: the measures of x0;
    ``algorithm``: with the hyper-parameters chosen; ``problem``; ``seed``; ``seconds`` in the rounds and
    ``compile_seconds``; ``state``: the engine's last state.
    """

    x: Any
    xs: Any
    status: Status
    history: History
    start: dict[str, float]
    algorithm: Any
    problem: Any
    seed: int
    seconds: float
    compile_seconds: float
    state: Any

    @property
    def certificate(self) -> Certificate:
        """How far x can be from the optimum."""
        return certificate(self.problem, self.x)

    def __repr__(self) -> str:
        rounds = int(self.state.round)
        return f"Run({type(self.algorithm).__name__}, {rounds} rounds, {self.status})"


def run(
    algorithm,
    problem,
    rounds: int,
    seed: int = 0,
    participation=1.0,
    x0=None,
    record=(),
    every: int = 1,
    stop: Stop | None = None,
    client_state: str = "client",
    dtype: str | None = None,
    *,
    engine: str = "star",
    reference: bool | None = None,
    progress: Callable[[dict], None] | None = None,
    resume: Run | None = None,
) -> Run:
    """Runs an algorithm on a problem for at most ``rounds`` communication rounds.

    ``participation`` is the share of the clients heard in a round, drawn uniformly, or booleans
    (rounds, clients). ``record=("x",)`` keeps every recorded model; ``every`` records each so-many-th round
    and the last. ``stop`` ends the run early (``accord.Stop``). ``client_state="server"`` keeps no state at
    the clients: it travels, and is counted. ``engine`` is "star" (compiled) or "debug". ``reference``
    says whether gap and distance to the optimum are measured: None does so for convex problems of up to
    2e7 rows x parameters, or whose reference is there already. ``progress`` is called between chunks
    with the latest row. ``resume`` is an earlier run of the same method, problem and seed: its rounds
    count, its history stays, and the new ones are those that a single run would have done.

    Raises ``ValueError`` or ``TypeError`` before the first round where an argument is wrong.
    """
    check_whole("rounds", rounds, 1, 31)
    check_whole("every", every, 1, 31)
    keep = check_record(record)
    if engine not in ENGINES:
        raise ValueError(f"engine: got {engine!r}; accepted are {', '.join(ENGINES)}")
    if stop is not None and not isinstance(stop, Stop):
        raise TypeError(f"stop: got {type(stop).__name__}; expected accord.Stop(gradient_norm=...)")
    job = make_job(algorithm, problem, seed, participation, x0, client_state, dtype)
    with jax.enable_x64(True):
        return _run(job, rounds, keep, every, stop, ENGINES[engine], reference, progress, resume)


def _run(job, rounds, keep, every, stop, engine, reference, progress, resume) -> Run:
    if job.schedule is not None and len(job.schedule) < rounds:
        raise ValueError(
            f"participation: {len(job.schedule)} rounds in the schedule, {rounds} to run"
        )
    if resume is not None:
        _check_resumes(resume, job, rounds)
    machine = engine(job)
    yardstick = yardstick_of(job, stop, _reference(job.problem, reference, stop))
    state = machine.init() if resume is None else jax.tree.map(jnp.array, resume.state)
    start = _start(job, yardstick) if resume is None else resume.start
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(job.x0))
    driven = drive(machine, state, yardstick, rounds, every, keep, size, progress)
    state, columns = driven.state, driven.columns
    x = jax.tree.map(np.asarray, state.server.x)
    history, models, before = _history(columns, machine.message_bytes), driven.models, 0.0
    if resume is not None:
        before = resume.seconds
        history = resume.history.followed_by(history, before)
        if keep and resume.xs is not None:
            models = jax.tree.map(lambda *m: np.concatenate(m), resume.xs, models)
    return Run(
        x=x,
        xs=models,
        status=_status(driven.code, columns, start, job, stop, int(state.round), x),
        history=history,
        algorithm=job.algorithm,
        problem=job.problem,
        seed=job.seed,
        start=start,
        seconds=before + driven.seconds,
        compile_seconds=driven.compile_seconds,
        state=state,
    )


def _check_resumes(resume, job, rounds) -> None:
    if not isinstance(resume, Run):
        raise TypeError(f"resume: got {type(resume).__name__}; expected what accord.run returned")
    if (resume.algorithm, resume.problem, resume.seed) != (job.algorithm, job.problem, job.seed):
        raise ValueError(
            "resume: the earlier run has another algorithm, problem or seed; give the same objects"
        )
    if int(resume.state.round) >= rounds:
        raise ValueError(
            f"rounds: got {rounds}; the run to resume has done {int(resume.state.round)}, give more"
        )


def _reference(problem, wanted, stop):
    needed = wanted or (stop is not None and stop.gap is not None)
    if wanted is None and not needed:
        if not reference_is_cheap(problem):
            return None
        try:
            return problem.reference()
        except ValueError:
            return None
    if not needed:
        return None
    found = problem.reference()
    if found is None:
        raise ValueError(
            "reference: the problem is not known to be convex, so it has no reference optimum"
        )
    return found


def bounds_of(stop, problem) -> tuple[float, float]:
    """(gradient norm, gap) at which a run stops; -1 is never reached."""
    if stop is None:
        return -1.0, -1.0
    known = stop.distance is not None
    return stop.thresholds(constants(problem).global_strong_convexity if known else None)


def yardstick_of(job, stop, reference) -> Yardstick:
    """What a run is held against: the stop's bounds, and what would be divergence from its start."""
    problem = job.problem
    norm, gap = bounds_of(stop, problem)
    # The scale of gradients: at x0, or at the default start where x0 is optimal for every client.
    surveys = [problem.survey(job.x0), problem.survey(problem.initial())]
    spread = max(apart + float(tree.norm(gradient)) for _, gradient, apart in surveys)
    spread = spread if spread > 1e-12 else 1.0
    explosion = _EXPLOSION * spread
    first = float(surveys[0][0])
    summit = first + _EXPLOSION * (abs(first) + spread)
    scale = Yardstick(norm, gap, explosion, summit)
    if job.algorithm.safeguarded and np.isfinite(first + spread):
        scale = Yardstick(norm, gap, finite=False)
    if reference is None:
        return scale
    optimum = reference.x if reference.unique else None
    return scale._replace(optimum=optimum, least=reference.objective)


def _start(job, yardstick) -> dict[str, float]:
    """The measures of x0."""
    value, gradient = job.problem.evaluate(job.x0)
    row = {"objective": float(value), "gradient_norm": float(tree.norm(gradient))}
    if yardstick.least is not None:
        row["gap"] = row["objective"] - float(yardstick.least)
    if yardstick.optimum is not None:
        row["distance"] = float(tree.norm(tree.subtract(job.x0, yardstick.optimum)))
    return row


def _history(columns, wire) -> History:
    up, down = wire
    heard = columns.pop("heard")
    columns["uplink_bytes"] = heard * up
    columns["downlink_bytes"] = heard * down
    if not columns["iterations"].any():
        del columns["iterations"]
    if not columns["gradients"].any():
        del columns["gradients"]
    for name in ("round", "iterations", "uplink_bytes", "downlink_bytes"):
        if name in columns:
            columns[name] = np.round(columns[name]).astype(np.int64)
    return History(columns)


def _status(code, columns, start, job, stop, done, x) -> Status:
    norm, value = columns["gradient_norm"][-1], columns["objective"][-1]
    if code == CONVERGED:
        return Status(status.CONVERGED, f"after {done} rounds {stop.sentence()}.")
    if code in (DIVERGED, NOT_FINITE) or not np.isfinite(value + norm):
        name = status.DIVERGED if code == DIVERGED else status.NOT_FINITE
        what = (
            f"F grew to {value:.1e} and its gradient norm to {norm:.1e}"
            if code == DIVERGED
            else "the model or its objective is NaN or infinite"
        )
        return Status(name, f"in round {done} {what}; {_cause(job, code == NOT_FINITE)}")
    scale = abs(start["objective"]) + start["gradient_norm"] + 1e-12
    if value > start["objective"] + scale:
        return Status(
            status.DIVERGED,
            f"after {done} rounds F is {value:.3g}, above the {start['objective']:.3g} it began with; "
            f"{_cause(job)}",
        )
    hint = conditioning_hint(job.problem, x) or ""
    return Status(
        status.BUDGET_SPENT,
        f"{done} rounds are done; the gradient norm of F is {norm:.1e}. {hint}".rstrip(),
    )


def _cause(job, overflow: bool = False) -> str:
    """The likely cause of divergence, in words."""
    c = constants(job.problem)
    algorithm = job.algorithm
    if algorithm.safeguarded and not overflow:
        return "the step tried last was too long, and would be halved next: give it more rounds."
    holder = algorithm if hasattr(algorithm, "step_size") else getattr(algorithm, "oracle", None)
    step = getattr(holder, "step_size", None)
    if step is not None and step > algorithm.step_bound / c.smoothness * (1 + 1e-9):
        return f"step_size {step:g} is above 1/L = {1 / c.smoothness:g}: lower it, or give None."
    if c.estimated:
        lower = "lower step_size" if step is not None else "scale the data"
        return f"L is only a local estimate here: {lower}, or start nearer to the optimum."
    if not job.problem.convex:
        return "the problem is not known to be convex: raise penalty, or lower step_size."
    if overflow:
        return f"values may overflow {job.dtype}: scale the data; else lower step_size."
    return "lower step_size, raise penalty, or hear more clients in a round."
