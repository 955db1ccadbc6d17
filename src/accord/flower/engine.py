"""The engine of runs over sites: called as ``accord.run`` is, with the same stop, statuses and history."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from accord import tree
from accord.core import Status, status
from accord.engines import Run, Stop
from accord.engines.history import INTEGERS, History
from accord.engines.job import make_job
from accord.engines.measures import CONVERGED, DIVERGED, NOT_FINITE, RUNNING, Yardstick, judge
from accord.engines.run import bounds_of, yardstick_of
from accord.flower import durable
from accord.flower.post import Traffic
from accord.flower.remote import RemoteProblem
from accord.flower.rounds import Rounds
from accord.flower.sites import DivergedError, Reply, Sites

_COLUMNS = (
    "round", "iterations", "gradients", "uplink_bytes", "downlink_bytes", "objective",
    "gradient_norm", "seconds",
)  # fmt: skip


class Engine:
    """Rounds with sites, one method from one start, which is what an epoch of a run is.

    Before every round the whole state is on disk in ``checkpoint``, with ``about`` beside it; ``saved`` is
    what was read there, to go on from. ``every``: the rounds between measures of F, which every site takes
    part in. ``keep``: also keep every model, as ``record=("x",)`` does.
    """

    def __init__(
        self, sites: Sites, epoch: int, checkpoint: Path | None = None, about=None, saved=None,
        participation: float = 1.0, every: int = 1, classes=None, keep: bool = False,
    ):  # fmt: skip
        self.sites, self.epoch, self._classes = sites, epoch, classes
        self._checkpoint, self._about, self._saved = checkpoint, about or {}, saved
        self._participation, self._every, self._keep = participation, every, keep
        self.rounds: Any = None
        self._rows: list[list[float]] = []
        self._models: list[Any] = []
        self._ready: Any = None
        self._scale: Yardstick | None = None
        self._before = 0.0
        self._moved = Traffic()
        self._began = time.monotonic()

    def __call__(
        self, algorithm, problem: RemoteProblem, rounds: int, seed: int = 0, *, x0=None,
        stop: Stop | None = None, reference=False, progress: Callable | None = None,
        resume: Run | None = None,
    ) -> Run:  # fmt: skip
        """As ``accord.run``; ``resume`` goes on with the rounds of the run that is under way."""
        if resume is None:
            self.start(algorithm, problem, seed, x0)
        state = self.rounds
        norm, gap = bounds_of(stop, problem)
        began, code = self._began, RUNNING
        while True:
            last = state.round >= rounds
            measured = last or state.round % self._every == 0
            try:
                ready = self._ready or self.sites.round(state, measured)
            except DivergedError:
                if not state.round or not self._rows[1:]:
                    raise
                code = NOT_FINITE
                break
            self._ready = ready
            row = self.measured(problem, ready, began, measured, last)
            if self._scale is None:
                # The first round has just measured F at the start, which is all that this asks for.
                self._scale = yardstick_of(self._job, None, None)
            if row is not None and state.round:
                with jax.enable_x64(True):
                    code = int(judge(row, self._scale._replace(gradient_norm=norm, gap=gap)))
                if progress:
                    progress(row)
            if last or code != RUNNING:
                break
            self.advance(ready)
        return self._run(problem, code, stop)

    def advance(self, replies: dict[str, Reply]) -> None:
        """The server's step from a round's replies, and the checkpoint before the next round."""
        state, self._ready = self.rounds, None
        heard = {n: r for n, r in replies.items() if r.message is not None}
        state.take(
            {n: r.message for n, r in heard.items()}, {n: r.numbers for n, r in heard.items()}
        )
        traffic = self._traffic()
        state.totals["uplink_bytes"] = traffic.up - self._moved.up
        state.totals["downlink_bytes"] = traffic.down - self._moved.down
        if self._keep:
            self._models.append(state.x)
        self.save()

    def _traffic(self) -> Traffic:
        """What the fit has moved in all epochs."""
        return self.sites.traffic.get("fit", (0, Traffic()))[1]

    def start(self, algorithm, problem, seed, x0) -> None:
        """Resolves the method and makes its first state, or that of the checkpoint."""
        self._job = make_job(algorithm, problem, seed, self._participation, x0)
        job = self._job
        self._moved = self._traffic()
        weights = dict(zip(problem.clients.names, problem.weights, strict=True))
        self.rounds = Rounds(
            job.algorithm, weights, job.x0, seed=seed, heard=job.heard,
            regulariser=problem.regulariser, epoch=self.epoch, classes=self._classes,
            dtype=job.dtype,
        )  # fmt: skip
        if self._saved is not None and not self.rounds.restore(*self._saved):
            # Sites that have done rounds of that epoch must not take these for the same.
            self.epoch = self.rounds.epoch = self.epoch + 1
            why = "the method, its seed or the sites differ from the checkpoint's"
            self.sites.events("start_anew", why=why, epoch=self.epoch)
        elif self._saved is not None:
            about = self._saved[0]
            self._rows, self._before = about["rows"], about["seconds"]
            self._scale = Yardstick(**about["scale"]) if about["scale"] else None
            # What was asked for once more on the way to the method's start is not of its rounds.
            up, down = (int(self.rounds.totals[f"{way}_bytes"]) for way in ("uplink", "downlink"))
            self._moved = Traffic(self._moved.up - up, self._moved.down - down)
            self.sites.events("resumed", round=self.rounds.round, epoch=self.epoch)
        self._began = time.monotonic()
        self.save()

    def measured(
        self, problem, replies, began, measured: bool = True, last: bool = False
    ) -> dict[str, float] | None:
        """The measures of the model that the round started from, where every site told its own."""
        state, t = self.rounds, self.rounds.totals
        if self._rows and self._rows[-1][0] == state.round:
            return dict(zip(_COLUMNS, self._rows[-1], strict=True))
        heard = sum(r.message is not None for r in replies.values())
        told = {n: ({"value": r.value}, {"gradient": r.gradient}) for n, r in replies.items()}
        row = None
        if measured and set(told) == set(problem.clients.names):
            problem.remember_survey(state.x, told)
            last = True
        if last:
            value, gradient, _ = problem.survey(state.x)
            seconds = self._before + time.monotonic() - began
            row = [
                state.round, t["iterations"], t["gradients"], t["uplink_bytes"],
                t["downlink_bytes"], value, float(tree.norm(gradient)), seconds,
            ]  # fmt: skip
            self._rows.append(row)
        found = None if row is None else dict(zip(_COLUMNS, row, strict=True))
        named = {name: found[name] for name in ("objective", "gradient_norm")} if found else {}
        self.sites.events(
            "round", round=state.round, heard=heard, of=len(state.participants()),
            uplink_bytes=t["uplink_bytes"], downlink_bytes=t["downlink_bytes"], **named,
        )  # fmt: skip
        return found

    def save(self) -> None:
        """Writes the state between two rounds to the checkpoint."""
        if self._checkpoint is None or self.rounds is None:
            return
        about, arrays = self.rounds.to_arrays()
        seconds = self._before + time.monotonic() - self._began
        scale = None
        if self._scale is not None:
            measures = ("explosion", "summit", "finite")
            scale = {name: np.asarray(getattr(self._scale, name)).item() for name in measures}
        traffic = {part: [n, *moved] for part, (n, moved) in self.sites.traffic.items()}
        about |= {"rows": self._rows, "seconds": seconds, "scale": scale, "traffic": traffic}
        about |= self._about
        durable.save(self._checkpoint, about, arrays)

    def _run(self, problem, code, stop) -> Run:
        state = self.rounds
        table = {
            n: np.array(c) for n, c in zip(_COLUMNS, zip(*self._rows, strict=True), strict=True)
        }
        start = {name: float(table[name][0]) for name in ("objective", "gradient_norm")}
        columns = {n: c[1:] if table["round"][0] == 0 else c for n, c in table.items()}
        for name in ("iterations", "gradients"):
            if not columns[name].any():
                del columns[name]
        columns |= {n: columns[n].astype(np.int64) for n in INTEGERS if n in columns}
        models = None
        if self._models:
            models = jax.tree.map(lambda *x: np.stack(x), *self._models)
        return Run(
            x=state.x, xs=models, status=_status(code, columns, stop, state.round),
            history=History(columns), algorithm=self._job.algorithm, problem=problem,
            seed=self._job.seed, start=start, seconds=float(columns["seconds"][-1]),
            compile_seconds=0.0, state=state,
        )  # fmt: skip


def _status(code, columns, stop, done: int) -> Status:
    value, norm = columns["objective"][-1], columns["gradient_norm"][-1]
    if code == CONVERGED:
        return Status(status.CONVERGED, f"after {done} rounds {stop.sentence()}.")
    if code in (DIVERGED, NOT_FINITE):
        name = status.DIVERGED if code == DIVERGED else status.NOT_FINITE
        return Status(
            name,
            f"in round {done} F was {value:.1e} and its gradient norm {norm:.1e}; lower step_size, raise "
            "penalty, or standardise the columns.",
        )
    return Status(
        status.BUDGET_SPENT, f"{done} rounds are done; the gradient norm of F is {norm:.1e}."
    )
