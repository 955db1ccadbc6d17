"""The server app: one for every algorithm, and the joint fit of tables that stay at their sites."""

import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from flwr.serverapp import Grid

from accord.analysis.agreement import agree
from accord.analysis.fit import Exchange, Fit, Report, Task, fitted, make_problem
from accord.analysis.schema import INTERCEPT, Schema
from accord.analysis.solve import MOST_ROUNDS, Choice, fewest_rounds
from accord.analysis.summaries import Request, Summary
from accord.data import Clients
from accord.engines import Run, Stop
from accord.engines.job import check_whole
from accord.flower import durable
from accord.flower.engine import Engine
from accord.flower.events import Events
from accord.flower.post import Post
from accord.flower.remote import RemoteProblem
from accord.flower.sites import ChangedError, Sites, Terms
from accord.flower.store import digest_of
from accord.flower.wire import known_classes
from accord.problems.base import non_negative, positive


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
    """A run over sites, through changes of membership and restarts of the server."""

    def __init__(
        self, grid: Grid, task: dict[str, Any], greeting: dict[str, Any], options: Options
    ):
        self.options, self.epoch = options, 0
        self._task = hashlib.sha256(json.dumps(task, sort_keys=True).encode()).hexdigest()[:16]
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
        found = durable.load(self._checkpoint)
        return found if found and found[0]["task"] == self._task else None

    def run(self, once: Callable[["Session"], Any]) -> Any:
        """What ``once`` gives, begun anew whenever membership changes; the checkpoint ends with it."""
        self.events("begin", run=self._run, resumed=self._saved is not None)
        about = self._saved[0] if self._saved else {}
        self.epoch = about.get("epoch", 0)
        self.sites.gather(about.get("names"))
        while True:
            try:
                result = once(self)
                break
            except ChangedError as change:
                self._saved, self.former = None, self._engine
                self.epoch += 1
                self.events("start_anew", why=str(change), epoch=self.epoch)
                self.sites.admit_late()
        if self._checkpoint:
            self._checkpoint.unlink(missing_ok=True)
        return result

    def engine(self, plan: str, x, classes=None, keep: bool = False) -> Engine:
        """The engine of this epoch for a plan that the sites agree on, and models like x."""
        self.sites.agree_on(plan)
        if self._saved and self._saved[0]["plan"] != digest_of(plan):
            self.events(
                "plan_changed", why="the sites' data or the task differ from the checkpoint's"
            )
            self._saved, self.epoch = None, self.epoch + 1
        about = {"run": self._run, "task": self._task, "plan": digest_of(plan)}
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
            f"{e['client']} joined late, with {e['rows']:,} rows." for e in of("client_joined")
        ]
        told += [f"{e['client']} was not taken: {e['why']}." for e in of("client_declined")]
        for name in sorted({e["client"] for e in of("state_lost")}):
            told.append(f"{name} lost its state and was given it back from its last message.")
        told += [f"The method started anew: {e['why']}." for e in of("start_anew")]
        if refused := of("reply_refused"):
            names = sorted({e["client"] for e in refused})
            told.append(
                f"{len(refused)} replies were refused, of {', '.join(names)}: see log.jsonl."
            )
        return told


class TableFit:
    """The joint fit of the sites' tables: the options of ``accord.fit``, and the model so far."""

    def __init__(
        self, request: Request, *, l1=0.0, l2=0.0, threshold=1.0, algorithm=None, tolerance=1e-8,
        max_rounds=MOST_ROUNDS, compare_local=True,
    ):  # fmt: skip
        check_whole("max_rounds", max_rounds, 1, 31)
        self.request, self.compare_local = request, compare_local
        self._numbers = {
            "l1": non_negative("l1", l1),
            "l2": non_negative("l2", l2),
            "threshold": positive("threshold", threshold),
        }
        self._algorithm, self._tolerance, self._max_rounds = algorithm, tolerance, max_rounds
        self._schema: Schema | None = None

    def task(self) -> dict[str, Any]:
        """What identifies the fit, in plain values."""
        asked = {"request": self.request.to_json(), "method": repr(self._algorithm)}
        return asked | {"tolerance": self._tolerance} | self._numbers

    def once(self, session: Session) -> Fit:
        """The fit of the present members."""
        sites, numbers = session.sites, self._numbers
        x0 = self._original(session.former)
        summaries = {n: Summary.from_json(sites.post.cards[n]["summary"]) for n in sites.members}
        schema = agree(summaries, self.request)
        plan = json.dumps({"schema": schema.to_json(), **numbers})
        template = make_problem(schema, _one_row(schema), **numbers)
        problem = RemoteProblem(template, sites.rows(), sites.ask)
        start = _encoded(x0, schema, np.shape(problem.initial()))
        engine = session.engine(plan, problem.initial())
        self._schema = schema
        choice = self._choice(problem)
        task = Task(
            [], self.request, summaries, **numbers, algorithm=choice.algorithm,
            tolerance=self._tolerance, max_rounds=self._max_rounds,
        )  # fmt: skip
        model: Fit = fitted(
            task, schema, problem, choice, lambda m: self._reports(sites, m), run=engine, x0=start
        )
        notes = [*model.notes, *session.notes()]
        return replace(model, exchanges=_exchanges(model, task, sites), notes=notes)

    def _choice(self, problem) -> Choice:
        if self._algorithm is None:
            return fewest_rounds(problem)
        return Choice(self._algorithm, "asked for")

    def _reports(self, sites: Sites, model) -> list[Report]:
        about = {"model": model.to_json(), "compare_local": self.compare_local}
        told = sites.ask("report", about, {}, {})
        return [Report(name, t["joint"], t["own"]) for name, (t, _) in told.items()]

    def _original(self, former: Engine | None) -> dict[str, np.ndarray] | None:
        """The coefficients so far by name, on the tables' scale, where an epoch has ended."""
        if former is None or former.rounds is None or self._schema is None:
            return None
        T = self._schema.matrix()
        names = [*self._schema.columns, *([INTERCEPT] if self._schema.intercept else [])]
        return dict(zip(names, T @ former.rounds.x, strict=True))


def _one_row(schema: Schema) -> Clients:
    """One client with one row of zeros, for everything of a problem but its rows."""
    return Clients.from_arrays([(np.zeros((1, len(schema.columns))), np.zeros(1, int))])


def _encoded(coefficients, schema: Schema, shape) -> np.ndarray | None:
    """Coefficients on the tables' scale as those of a schema's encoded columns; new columns get zero."""
    if coefficients is None:
        return None
    names = [*schema.columns, *([INTERCEPT] if schema.intercept else [])]
    if any(np.shape(c) != shape[1:] for c in coefficients.values()):
        return None
    x = np.array([coefficients.get(name, np.zeros(shape[1:])) for name in names])
    return np.linalg.solve(schema.matrix(), x)


def _exchanges(found: Fit, task: Task, sites: Sites) -> list[Exchange]:
    """What each part of the fit sent, as it was counted."""
    schema = next(e for e in found.exchanges if e.part == "schema")
    counted = {
        part: Exchange(part, count, moved.up, moved.down)
        for part, (count, moved) in sites.traffic.items()
    }
    if "results" in counted:
        estimated = next(e for e in found.exchanges if e.part == "results")
        counted["results"] = estimated._replace(rounds=counted["results"].rounds)
    return [schema, *counted.values()]


@dataclass(frozen=True)
class OwnRun:
    """A run of a problem of the user's own: ``initial`` is its x0, the rest as in ``accord.run``."""

    algorithm: Any
    initial: Any
    rounds: int
    stop: Stop | None = None
    weights: str = "rows"
    classes: Sequence[type] = ()

    def task(self) -> dict[str, Any]:
        """What identifies the run, in plain values."""
        return {"algorithm": repr(self.algorithm), "stop": repr(self.stop), "weights": self.weights}

    def once(self, session: Session) -> Run:
        """The run of the present members, or its next epoch."""
        sites = session.sites
        cards = [sites.post.cards[name] for name in sites.members]
        problem = RemoteProblem(self._template(cards), sites.rows(), sites.ask, self.weights)
        initial, done = self.initial, 0
        before = session.former
        if before is not None and before.rounds is not None:
            initial, done = before.rounds.x, before.rounds.round
        engine = session.engine("{}", self.initial, known_classes(self.classes))
        rounds = max(self.rounds - done, 1)
        return engine(
            self.algorithm, problem, rounds, session.options.seed, x0=initial, stop=self.stop
        )

    def _template(self, cards):
        """What the sites say of their problems; where they differ, what holds for all."""
        first = cards[0]
        for card in cards:
            for name in ("name", "dtype"):
                if card[name] != first[name]:
                    raise ValueError(
                        f"objective: the sites' problems differ in {name}: {first[name]!r} and "
                        f"{card[name]!r}; give every site the same app"
                    )
        dtype = first["dtype"]
        initial = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), self.initial)
        return SimpleNamespace(
            dtype=dtype, name=first["name"], regulariser=None, initial=lambda: initial,
            convex=all(c["convex"] for c in cards) if None not in [c["convex"] for c in cards] else None,
            offers=frozenset.intersection(*(frozenset(c["offers"]) for c in cards)),
            bounded=all(c["bounded"] for c in cards), quadratic=all(c["quadratic"] for c in cards),
            strongly_convex=all(c["strongly_convex"] for c in cards), l2=min(c["l2"] for c in cards),
        )  # fmt: skip
