"""A run over sites from its beginning to its end: restarts of the server, changes of membership, notes."""

import hashlib
import json
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flwr.serverapp import Grid

from accord.core.checks import is_number
from accord.engines.job import check_whole
from accord.flower import durable
from accord.flower.engine import Engine
from accord.flower.events import Events
from accord.flower.post import Post
from accord.flower.sites import ChangedError, FailedError, Sites, Terms
from accord.flower.wire import flatten, unflatten


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
        if not is_number(self.participation) or not 0 < self.participation <= 1:
            raise ValueError(
                f"participation: got {self.participation!r}; accepted is a share of the sites in (0, 1]"
            )
        if self.measure_every is not None:
            check_whole("measure_every", self.measure_every, 1, 31)

    def every(self, x) -> int:
        """The rounds between measures of F for models like x."""
        if self.measure_every is not None:
            return self.measure_every
        return 1 if sum(np.size(leaf) for leaf in jax.tree.leaves(x)) <= 10_000 else 10


RESULTS = ("log.jsonl", "model.json", "fit.json", "report.html", "model.npz", "history.csv")
"""What a run writes into its folder, but the checkpoint."""

_MODEL = "server.x"
"""How the leaves of the server's model begin in a checkpoint."""


def _model_of(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: a for name, a in arrays.items() if name.startswith(_MODEL)}


def _put_aside(output: Path) -> None:
    """Moves what an earlier run has left in a folder into one in it: results of two runs must not mix."""
    there = [output / name for name in RESULTS if (output / name).exists()]
    if there:
        (output / "earlier").mkdir(exist_ok=True)
    for path in there:
        path.replace(output / "earlier" / path.name)


class Ended(NamedTuple):
    """The model of an epoch that is over: the ``plan`` it was for, and the ``leaves`` of x by their paths."""

    plan: str
    leaves: dict[str, np.ndarray]

    def model(self, like) -> Any:
        """x, in the structure of ``like``."""
        return unflatten(self.leaves, like, _MODEL)


class Session:
    """A run over sites, through changes of membership and restarts of the server.

    ``epoch`` counts the starts of the method, ``done`` the rounds before the last of them; ``ended`` is the
    last model so far, or None. ``task`` identifies what the run is for; ``greeting`` and ``check`` are those
    of ``Post``.
    """

    def __init__(
        self, grid: Grid, task: dict[str, Any], greeting: dict[str, Any], options: Options,
        check: Callable[[dict[str, Any]], Any] = lambda card: None,
    ):  # fmt: skip
        self.options, self.epoch, self.done = options, 0, 0
        self._task = hashlib.sha256(json.dumps(task, sort_keys=True).encode()).hexdigest()[:16]
        self._grid, self._greeting, self._check = grid, greeting, check
        self.ended: Ended | None = None
        self._saved: Any = None
        self._engine: Engine | None = None
        self._plan = ""
        if options.output:
            try:
                options.output.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ValueError(
                    f"output: {error.strerror}: {options.output}; give another folder"
                ) from None

    @property
    def _checkpoint(self) -> Path | None:
        return self.options.output / "checkpoint.npz" if self.options.output else None

    def run(self, once: Callable[["Session"], Any], deliver=lambda found: None) -> Any:
        """What ``once`` gives, begun anew whenever membership changes, and ``deliver`` has taken.

        The checkpoint ends only then. Raises ``FailedError`` where another run uses the folder.
        """
        output = self.options.output
        with ExitStack() as held:
            try:
                if output is not None:
                    held.enter_context(durable.locked(output / "lock", wait=False))
            except BlockingIOError:
                raise FailedError(
                    f"output: another run uses {output}; wait for its end, or give another folder"
                ) from None
            return self._run(once, deliver)

    def _run(self, once, deliver):
        self.open()
        try:
            self.sites.gather(self._saved[0]["names"] if self._saved else None)
            while True:
                try:
                    found = once(self)
                    break
                except ChangedError as change:
                    self.begin_anew(change)
            deliver(found)
        except Exception as error:
            self.events("failed", why=" ".join(str(error).split()))
            raise
        if self._checkpoint:
            self._checkpoint.unlink(missing_ok=True)
        name, sentence = found.status
        moved = [traffic for _, traffic in self.sites.traffic.values()]
        self.events(
            "ended", status=name, sentence=sentence, uplink_bytes=sum(t.up for t in moved),
            downlink_bytes=sum(t.down for t in moved),
        )  # fmt: skip
        return found

    def open(self) -> None:
        """Reads the checkpoint of an unfinished run of the same task, and begins the log."""
        output, checkpoint, damaged = self.options.output, self._checkpoint, False
        if checkpoint is not None and self.options.resume and checkpoint.exists():
            found = durable.load(checkpoint)
            damaged = found is None
            self._saved = found if found and found[0]["task"] == self._task else None
        log = output / "log.jsonl" if output else None
        if output and not self._saved:
            _put_aside(output)
        self.events = Events(log)
        about: dict[str, Any] = self._saved[0] if self._saved else {}
        self._run_id = about.get("run") or secrets.token_hex(8)
        post = Post(
            self._grid, self._greeting, self.events, self.options.terms.patience, self._check
        )
        self.sites = Sites(post, self.options.terms, self.events, self._run_id)
        self.events("begin", run=self._run_id, resumed=bool(self._saved))
        if damaged:
            self.events("checkpoint_damaged", why="it cannot be read: the run begins again")
        if self._saved:
            self.epoch, self.done = about["epoch"], about["done"]
            self.ended = Ended(about["plan"], _model_of(self._saved[1]))
            self.sites.restore(about["traffic"])

    def begin_anew(self, change: ChangedError) -> None:
        """Another epoch, with the members that there are now."""
        over, saved = self._engine, self._saved
        self._saved = self._engine = None
        if over is None or over.rounds is None:
            self.done += saved[0]["round"] if saved else 0
        else:
            self.ended = Ended(self._plan, flatten(over.rounds.x, _MODEL))
            self.epoch, self.done = over.epoch, self.done + over.rounds.round
        self.epoch += 1
        self.events("start_anew", why=str(change), epoch=self.epoch)
        self.sites.admit_late()

    def engine(self, plan: str, x, classes=None, keep: bool = False) -> Engine:
        """The engine of this epoch for a plan that the sites agree on, and models like x."""
        self.sites.agree_on(plan)
        self._plan = plan
        if self._saved:
            about = self._saved[0]
            why = "the sites are others" * (about["names"] != self.sites.members)
            why = why or "the sites' tables have changed" * (about["plan"] != plan)
            if why:
                self._saved, self.epoch = None, self.epoch + 1
                self.done += about["round"]
                self.events("start_anew", why=f"{why} since the checkpoint", epoch=self.epoch)
        told = {"run": self._run_id, "task": self._task, "plan": plan, "done": self.done}
        self._engine = Engine(
            self.sites, self.epoch, self._checkpoint, told, self._saved,
            self.options.participation, self.options.every(x), classes, keep,
        )  # fmt: skip
        return self._engine

    def notes(self) -> list[str]:
        """What a reader should know of the run, in sentences."""
        of = self.events.of
        told = [
            f"{e['client']} left for good ({e['why']}): its rows no longer count."
            for e in of("client_left")
        ]
        refused_nodes = dict.fromkeys(f"{e['client']}: {e['why']}" for e in of("node_refused"))
        told += [f"A node that came was of no use. {text}." for text in refused_nodes]
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
