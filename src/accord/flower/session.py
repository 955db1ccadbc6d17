"""A run over sites from its beginning to its end: restarts of the server, changes of membership, notes."""

import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flwr.serverapp import Grid

from accord.engines.job import check_whole
from accord.flower import durable
from accord.flower.engine import Engine
from accord.flower.events import Events
from accord.flower.post import Post
from accord.flower.sites import ChangedError, Sites, Terms
from accord.flower.store import digest_of


@dataclass(frozen=True)
class Options:
    """What a run has besides its task: who takes part, where files go, how often F is measured.

    ``output``: the folder of the log, the checkpoint and the results, None for no files; ``resume``: go on
    with an unfinished run of the same task that is found there; ``participation`` and ``seed`` as in
    ``accord.run``; ``measure_every``: rounds between measures of F, None: every round for models of up to
    10,000 numbers, else every tenth.
    """

    output: Path | None = None
    terms: Terms = Terms()  # noqa: RUF009
    resume: bool = True
    participation: float = 1.0
    seed: int = 0
    measure_every: int | None = None

    def __post_init__(self):
        check_whole("seed", self.seed, 0, 63)
        if self.measure_every is not None:
            check_whole("measure_every", self.measure_every, 1, 31)

    def every(self, x) -> int:
        """The rounds between measures of F for models like x."""
        if self.measure_every is not None:
            return self.measure_every
        return 1 if sum(np.size(leaf) for leaf in jax.tree.leaves(x)) <= 10_000 else 10


class Session:
    """A run over sites, through changes of membership and restarts of the server.

    ``epoch`` counts the starts of the method, ``done`` the rounds before the last of them.
    """

    def __init__(
        self, grid: Grid, task: dict[str, Any], greeting: dict[str, Any], options: Options
    ):
        self.options, self.epoch, self.done = options, 0, 0
        self._task = hashlib.sha256(json.dumps(task, sort_keys=True).encode()).hexdigest()[:16]
        self._damaged = False
        self._saved = self._unfinished()
        self._run = self._saved[0]["run"] if self._saved else secrets.token_hex(8)
        if options.output:
            options.output.mkdir(parents=True, exist_ok=True)
        log = options.output / "log.jsonl" if options.output else None
        if log and not self._saved:
            log.unlink(missing_ok=True)
        self.former: Engine | None = None
        self._engine: Engine | None = None
        self.events = Events(log)
        post = Post(grid, greeting, self.events, options.terms.patience)
        self.sites = Sites(post, options.terms, self.events, self._run)

    @property
    def _checkpoint(self) -> Path | None:
        return self.options.output / "checkpoint.npz" if self.options.output else None

    def _unfinished(self):
        """The checkpoint of the same task, if it is to be resumed."""
        if self._checkpoint is None or not self.options.resume:
            return None
        there = self._checkpoint.exists()
        found = durable.load(self._checkpoint)
        self._damaged = there and found is None
        return found if found and found[0]["task"] == self._task else None

    def run(self, once: Callable[["Session"], Any]) -> Any:
        """What ``once`` gives, begun anew whenever membership changes; the checkpoint ends with it."""
        self.events("begin", run=self._run, resumed=self._saved is not None)
        if self._damaged:
            self.events("checkpoint_damaged", why="it cannot be read: the run begins again")
        about = self._saved[0] if self._saved else {}
        self.epoch, self.done = about.get("epoch", 0), about.get("done", 0)
        self.sites.gather(about.get("names"))
        while True:
            try:
                result = once(self)
                break
            except ChangedError as change:
                self.begin_anew(change)
        if self._checkpoint:
            self._checkpoint.unlink(missing_ok=True)
        return result

    def begin_anew(self, change: ChangedError) -> None:
        """Another epoch, with the members that there are now; ``former`` is the last that had a model."""
        ended, self._saved, self._engine = self._engine, None, None
        if ended is not None and ended.rounds is not None:
            self.former = ended
            self.epoch, self.done = ended.epoch, self.done + ended.rounds.round
        self.epoch += 1
        self.events("start_anew", why=str(change), epoch=self.epoch)
        self.sites.admit_late()

    def engine(self, plan: str, x, classes=None, keep: bool = False) -> Engine:
        """The engine of this epoch for a plan that the sites agree on, and models like x."""
        self.sites.agree_on(plan)
        if self._saved and self._saved[0]["plan"] != digest_of(plan):
            self.events(
                "plan_changed", why="the sites' data or the task differ from the checkpoint's"
            )
            self._saved, self.epoch = None, self.epoch + 1
        about = {"run": self._run, "task": self._task, "plan": digest_of(plan), "done": self.done}
        self._engine = Engine(
            self.sites, self.epoch, self._checkpoint, about, self._saved,
            self.options.participation, self.options.every(x), classes, keep,
        )  # fmt: skip
        return self._engine

    def notes(self) -> list[str]:
        """What a reader should know of the run, in sentences."""
        of = self.events.of
        told = [
            f"{e['client']} left for good, {e['missed']} times without a reply: its rows no longer count."
            for e in of("client_left")
        ]
        told += [
            f"{e['client']} had not come back when the run was resumed: its rows no longer count."
            for e in of("client_missing")
        ]
        told += [
            f"{e['client']} joined late, with {e['rows']:,} rows." for e in of("client_joined")
        ]
        told += [f"{e['client']} was not taken: {e['why']}." for e in of("client_declined")]
        for name in sorted({e["client"] for e in of("state_restored")}):
            told.append(f"{name} lost its state and was given it back from its last message.")
        told += [f"The method started anew: {e['why']}." for e in of("start_anew")]
        if refused := of("reply_refused"):
            names = sorted({e["client"] for e in refused})
            told.append(
                f"{len(refused)} replies were refused, of {', '.join(names)}: see log.jsonl."
            )
        return told
