"""``accord.graph.run``: a graph method on a network, from checks to history."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from accord.core import Status, status
from accord.core.checks import is_number
from accord.engines.history import History
from accord.engines.job import check_record, check_whole
from accord.engines.loop import drive
from accord.engines.measures import CONVERGED, DIVERGED, NOT_FINITE
from accord.graph.job import make_job
from accord.graph.machine import OPTIMALITY, Machine, Scale
from accord.graph.mixing import DGD
from accord.graph.network import Network
from accord.graph.reference import NetworkReference
from accord.theory import constants, has_bounds

COLUMNS = {
    "round": "rounds done",
    "activations": "times that a node acted, all nodes together",
    "messages": "messages sent: one to each neighbour, or one broadcast",
    "lost": "messages that did not arrive, in synchronous rounds up to those of the round before",
    "bytes": "bytes sent, all nodes together",
    "gradients": "local gradients, a node's mean (B of n rows: B/n; a factorised solve: 1)",
    "time": "time by the nodes' Poisson clocks",
    "objective": "sum_i f_i(x_i)",
    "gap": "sum_i f_i(x_i) less its value at the optimum; negative while nodes disagree",
    "distance": "sqrt(mean_i ||x_i - x_i*||^2)",
    "consensus": "sqrt(mean_i ||x_i - mean_j x_j||^2)",
    "residual": "max |B_{i|j} x_i - B_{j|i} x_j - c| over the edges",
    "dual_residual": "max |lambda_{i|j} + lambda_{j|i}| over the edges",
    "gradient_norm": "||mean_i grad f_i(x_i)||; with constraints the same of grad f_i - sum_j B' lambda",
    "seconds": "time in the rounds so far, measuring included, compilation apart",
}
"""Every column of a graph run's history and its meaning. A column that cannot be had is absent."""

_WHOLE = ("round", "activations", "messages", "lost", "bytes")
_EXPLOSION, _GROWN = 1e6, 10.0


@dataclass(frozen=True, eq=False, repr=False)
class NetworkRun:
    """The outcome of ``accord.graph.run``.

    ``x``: the nodes' models (nodes, ...), a list of arrays where their dimensions differ; ``xs``: the
    recorded ones (records, nodes, ...) with ``record=("x",)``, never trimmed, else None; ``status``;
    ``history``: one row a recorded round; ``start``: the measures before the first; ``algorithm`` with the
    parameters chosen; ``reference``: the optimum, or None; ``network``, ``problem``, ``seed``; ``seconds``
    in the rounds and ``compile_seconds``; ``state``: the engine's last state; ``machine``: the engine.
    """

    x: Any
    xs: Any
    status: Status
    history: History
    start: dict[str, float]
    algorithm: Any
    reference: NetworkReference | None
    network: Network
    problem: Any
    seed: int
    seconds: float
    compile_seconds: float
    state: Any
    machine: Machine

    @functools.cached_property
    def duals(self) -> Any:
        """lambda_{i|j} of every directed edge (2E, ...), by ``network.source`` and ``network.target``.

        None for methods without duals.
        """
        return self.machine.duals(self.state) if self.algorithm.on_edges else None

    def __repr__(self) -> str:
        rounds = int(self.state.round)
        return f"NetworkRun({type(self.algorithm).__name__}, {rounds} rounds, {self.status})"


def run(
    algorithm,
    network: Network,
    problem,
    rounds: int,
    seed: int = 0,
    activation="synchronous",
    loss_probability=0.0,
    record=(),
    *,
    every: int = 1,
    communication: str = "unicast",
    outages=(),
    weights: str = "equal",
    tolerance: float | None = None,
    x0=None,
    dtype: str | None = None,
    reference: bool | None = None,
    progress: Callable[[dict], None] | None = None,
) -> NetworkRun:
    """Runs a method on a network: minimise sum_i f_i(x_i) where neighbours agree.

    Client i of the problem is node i. ``algorithm`` is ``PDMM``, or for consensus ``DGD``, ``EXTRA``,
    ``GradientTracking`` or ``Gossip``. Every model and every z starts at ``x0``, by default at zero.

    - ``activation``: "synchronous" (all nodes together, on what was sent in the round before),
      "asynchronous" (a round is as many activations of one random node as there are nodes),
      ``RandomSubset(share)``, ``PoissonClock(rates)``, or an array: node numbers (rounds,) or
      (rounds, turns), one after another, or booleans (rounds, nodes).
    - ``loss_probability``: that of every message, or ``GilbertElliott``; ``outages``: a list of
      ``Outage(node, first, last)``.
    - ``communication``: "unicast", a message to each neighbour, or "broadcast", the model once to all
      of them, who know the rest where nothing is lost: the same rounds in fewer messages.
    - ``weights``: "equal" (every node with rows counts the same) or "problem" (f_i counts by the
      problem's weight w_i, which makes the optimum the problem's own).
    - ``record=("x",)`` keeps the models of recorded rounds: each ``every``-th and the last.
    - ``tolerance`` ends the run when consensus error (or the constraints' residual), dual residual and
      gradient norm are all that small.
    - ``reference`` says whether distances to the optimum are measured; None: where it is cheap.
    - ``progress`` is called between chunks with the latest row.

    Raises ``ValueError`` or ``TypeError`` before the first round where an argument is wrong.
    """
    check_whole("rounds", rounds, 1, 31)
    check_whole("every", every, 1, 31)
    check_whole("seed", seed, 0, 63)
    keep = check_record(record)
    if tolerance is not None and not (is_number(tolerance) and 0 < tolerance < np.inf):
        raise ValueError(f"tolerance: got {tolerance!r}; accepted is a number > 0, or None")
    if progress is not None and not callable(progress):
        raise TypeError(f"progress: got {progress!r}; accepted is a function of the latest row")
    job = make_job(
        algorithm, network, problem, rounds, seed, activation, loss_probability,
        communication=communication, outages=outages, weights=weights, x0=x0, dtype=dtype,
        reference=reference,
    )  # fmt: skip
    with jax.enable_x64(True):
        return _run(job, rounds, every, keep, tolerance, progress)


def _run(job, rounds, every, keep, tolerance, progress) -> NetworkRun:
    machine = Machine(job)
    optimum = None if job.reference is None else machine.rotate(job.reference.x)
    state = machine.init()
    start = machine.measure(state, optimum)
    del start["round"]
    first = max(start.get(name, 0.0) for name in OPTIMALITY)
    # At a common start nodes may agree by accident: their own gradients tell the scale.
    slopes = jax.tree.leaves(job.problem.client_gradients(job.problem.initial()))
    spread = max((float(abs(g).max()) for g in slopes if g.size), default=1.0)
    size = max(first, spread, 1e-12)
    scale = Scale(-1.0 if tolerance is None else float(tolerance), _EXPLOSION * size, optimum)
    nbytes = sum(leaf.nbytes for leaf in jax.tree.leaves(job.x0))
    driven = drive(machine, state, scale, rounds, every, keep, nbytes, progress)
    return NetworkRun(
        x=_trimmed(machine.models(driven.state), job.problem),
        xs=driven.models,
        status=_status(driven.code, driven.columns, size, job, tolerance),
        history=_history(driven.columns, job),
        start=start,
        algorithm=job.method,
        reference=job.reference,
        network=job.network,
        problem=job.problem,
        seed=job.seed,
        seconds=driven.seconds,
        compile_seconds=driven.compile_seconds,
        state=driven.state,
        machine=machine,
    )


def _trimmed(x, problem):
    if getattr(problem, "common", True):
        return x
    return [own[:k] for own, k in zip(x, problem.dimensions, strict=True)]


def _history(driven, job) -> History:
    columns = dict(driven)
    columns["bytes"] = columns.pop("numbers") * np.dtype(job.dtype).itemsize
    if job.reference is not None:
        columns["gap"] = columns["objective"] - job.reference.objective
    if job.losses.rule == "none" and job.outages is None:
        del columns["lost"]
    if job.waking.rule != "rates":
        del columns["time"]
    for name in _WHOLE:
        if name in columns:
            columns[name] = np.round(columns[name]).astype(np.int64)
    return History(columns, COLUMNS)


def _status(code, columns, scale, job, tolerance) -> Status:
    last = {name: column[-1] for name, column in columns.items()}
    done = int(last["round"])
    apart = "consensus" if "consensus" in last else "residual"
    told = f"{apart.replace('consensus', 'consensus error')} {last[apart]:.1e}"
    if "dual_residual" in last:
        told += f", dual residual {last['dual_residual']:.1e}"
    told += f", gradient norm {last['gradient_norm']:.1e}"
    if code == CONVERGED:
        return Status(
            status.CONVERGED, f"after {done} rounds all are at most {tolerance:g}: {told}."
        )
    if code in (DIVERGED, NOT_FINITE):
        name = status.DIVERGED if code == DIVERGED else status.NOT_FINITE
        return Status(name, f"in round {done}: {told}; {_cause(job)}")
    if max(last.get(name, 0.0) for name in OPTIMALITY) > _GROWN * scale:
        return Status(status.DIVERGED, f"after {done} rounds: {told}, and growing; {_cause(job)}")
    return Status(status.BUDGET_SPENT, f"{done} rounds are done: {told}.{_note(job)}")


def _cause(job) -> str:
    if not job.method.on_edges:
        return "lower step_size, or give None: from the data."
    if job.problem.convex and job.method.relaxation == 1:
        return "give relaxation below 1, as for functions that are not strongly convex, or another penalty."
    return "raise penalty, or lower the oracle's step_size."


def _note(job) -> str:
    """What a reader of the status should know of the problem that was solved."""
    if isinstance(job.method, DGD):
        return " DGD stops short of the optimum, by a distance proportional to its step_size."
    if job.method.on_edges and job.method.relaxation == 1:
        known = constants(job.problem) if has_bounds(job.problem) else None
        if known is not None and known.strong_convexity == 0:
            return " Some f_i are flat in some direction: relaxation below 1 converges for sure."
    return ""
