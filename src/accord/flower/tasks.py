"""What a run is for: the joint fit of tables that stay at their sites, or a problem of the user's own."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from accord.analysis.agreement import agree
from accord.analysis.fit import Exchange, Fit, Report, Task, fitted, make_problem
from accord.analysis.schema import INTERCEPT, Schema
from accord.analysis.solve import MOST_ROUNDS, Choice, fewest_rounds
from accord.analysis.summaries import Request, Summary
from accord.data import Clients
from accord.engines import Run, Stop
from accord.engines.job import check_whole
from accord.flower.engine import Engine
from accord.flower.remote import RemoteProblem
from accord.flower.session import Session
from accord.flower.sites import Sites
from accord.flower.wire import known_classes
from accord.problems.base import non_negative, positive


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
        self._former: Engine | None = None
        self._so_far: dict[str, np.ndarray] | None = None

    def task(self) -> dict[str, Any]:
        """What identifies the fit, in plain values."""
        asked = {"request": self.request.to_json(), "method": repr(self._algorithm)}
        return asked | {"tolerance": self._tolerance} | self._numbers

    def greeting(self) -> dict[str, Any]:
        """What every site is asked when it comes."""
        return {"request": self.request.to_json()}

    def once(self, session: Session) -> Fit:
        """The fit of the present members."""
        sites, numbers = session.sites, self._numbers
        if session.former is not None and session.former is not self._former:
            self._former, self._so_far = session.former, self._original(session.former)
        summaries = {n: Summary.from_json(sites.post.cards[n]["summary"]) for n in sites.members}
        schema = agree(summaries, self.request)
        plan = json.dumps({"schema": schema.to_json(), **numbers})
        template = make_problem(schema, _one_row(schema), **numbers)
        problem = RemoteProblem(template, sites.rows(), sites.ask)
        start = _encoded(self._so_far, schema, np.shape(problem.initial()))
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
        bounds = model.certificate
        session.events("certified", distance=bounds.distance, gap=bounds.gap)
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

    def _original(self, former: Engine) -> dict[str, np.ndarray]:
        """The coefficients by name, on the tables' scale, that an epoch has come to."""
        schema: Any = self._schema
        T = schema.matrix()
        names = [*schema.columns, *([INTERCEPT] if schema.intercept else [])]
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

    def greeting(self) -> dict[str, Any]:
        """What every site is asked when it comes: nothing but who it is."""
        return {}

    def once(self, session: Session) -> Run:
        """The run of the present members, or its next epoch."""
        problem, engine = self.opened(session)
        initial = self.initial if session.former is None else session.former.rounds.x
        rounds, seed = max(self.rounds - session.done, 1), session.options.seed
        return engine(self.algorithm, problem, rounds, seed, x0=initial, stop=self.stop)

    def opened(self, session: Session) -> tuple[RemoteProblem, Engine]:
        """The present members' problem, and the engine for it."""
        sites = session.sites
        template = self._template([sites.post.cards[name] for name in sites.members])
        problem = RemoteProblem(template, sites.rows(), sites.ask, self.weights)
        return problem, session.engine("{}", self.initial, known_classes(self.classes))

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
