"""What a run is for: the joint fit of tables that stay at their sites, or a problem of the user's own."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from accord.analysis.agreement import agree
from accord.analysis.fit import Exchange, Fit, Report, Task, fitted, make_problem, report_of
from accord.analysis.schema import INTERCEPT, Schema
from accord.analysis.solve import MOST_ROUNDS, Choice, fewest_rounds
from accord.analysis.summaries import Request, Summary
from accord.data import Clients
from accord.engines import Run, Stop
from accord.engines.job import check_whole
from accord.flower.engine import Engine
from accord.flower.remote import WEIGHTS, RemoteProblem
from accord.flower.session import Ended, Session
from accord.flower.site import check_batches
from accord.flower.sites import Sites, finite
from accord.flower.wire import RefusedError, flatten, known_classes
from accord.problems.base import non_negative, positive
from accord.report.fits import MEASURED

_CARD: dict[str, Any] = {
    "name": str, "dtype": str, "convex": bool | None, "offers": list, "bounded": bool,
    "quadratic": bool, "strongly_convex": bool, "l2": float,
}  # fmt: skip
"""What a site with a problem of its own says of it, and of which type that is."""


class TableFit:
    """The joint fit of the sites' tables: the options of ``accord.fit``, and the model so far."""

    def __init__(
        self, request: Request, *, l1=0.0, l2=0.0, threshold=1.0, algorithm=None, tolerance=1e-8,
        max_rounds=MOST_ROUNDS, compare_local=True,
    ):  # fmt: skip
        check_whole("max_rounds", max_rounds, 1, 31)
        positive("tolerance", tolerance)
        self.request, self.compare_local = request, compare_local
        self._numbers = {
            "l1": non_negative("l1", l1),
            "l2": non_negative("l2", l2),
            "threshold": positive("threshold", threshold),
        }
        self._algorithm, self._tolerance, self._max_rounds = algorithm, tolerance, max_rounds

    def task(self) -> dict[str, Any]:
        """What identifies the fit, in plain values."""
        asked = {"request": self.request.to_json(), "method": repr(self._algorithm)}
        return asked | {"tolerance": self._tolerance} | self._numbers

    def greeting(self) -> dict[str, Any]:
        """What every site is asked when it comes."""
        return {"request": self.request.to_json()}

    def check(self, card: dict[str, Any]) -> None:
        """Raises for a site whose answer to the greeting is none."""
        if not isinstance(card.get("summary"), str):
            raise RefusedError("it has no summary of a table: is its app client_app()?")
        if Summary.from_json(card["summary"]).rows != card["rows"]:
            raise RefusedError("its summary is of another number of rows")
        if not card["rows"]:
            raise RefusedError("its table has no rows that count; fill it, or leave the site out")
        check_batches(self._algorithm, finite(card.get("least_batch"), "least_batch"))

    def once(self, session: Session) -> Fit:
        """The fit of the present members."""
        sites, numbers = session.sites, self._numbers
        summaries = {n: Summary.from_json(sites.post.cards[n]["summary"]) for n in sites.members}
        schema = agree(summaries, self.request)
        plan = json.dumps({"schema": schema.to_json(), **numbers})
        template = make_problem(schema, _one_row(schema), **numbers)
        problem = RemoteProblem(template, sites.rows(), sites.ask)
        start = None if session.ended is None else _translated(session.ended, schema, problem)
        engine = session.engine(plan, problem.initial())
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
        rows = _one_row(model.schema)
        wanted = set(report_of(model, "", *rows[0]).joint)

        def check(told):
            for counts in [told.get("joint")] + [told.get("own")] * self.compare_local:
                if not isinstance(counts, dict) or set(counts) != wanted:
                    raise RefusedError(f"its counts are {str(counts)[:80]}")
                for name, value in counts.items():
                    # A site's own measure is undefined where it has but one class.
                    if name != "auc" or value == value:
                        finite(value, name)

        told = sites.ask("report", about, {}, {}, check)
        # Who was asked twice is still where it was among the sites.
        answers = {name: told[name][0] for name in sites.members}
        return [Report(name, t["joint"], t["own"]) for name, t in answers.items()]


def _one_row(schema: Schema) -> Clients:
    """One client with one row of zeros, for everything of a problem but its rows."""
    return Clients.from_arrays([(np.zeros((1, len(schema.columns))), np.zeros(1, int))])


def _translated(ended: Ended, schema: Schema, problem) -> np.ndarray | None:
    """A model as that of another schema, by way of the tables' scale; new columns get zero."""
    former, shape = Schema.from_json(json.loads(ended.plan)["schema"]), np.shape(problem.initial())
    old, new = _names(former), _names(schema)
    x = ended.model(np.zeros(()))
    if x.shape != (len(old), *shape[1:]):
        return None
    told = dict(zip(old, former.matrix() @ x, strict=True))
    mapped = np.array([told.get(name, np.zeros(shape[1:])) for name in new])
    return np.linalg.solve(schema.matrix(), mapped)


def _names(schema: Schema) -> list[str]:
    return [*schema.columns, *([INTERCEPT] if schema.intercept else [])]


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
    if "fit" in counted:
        counted["fit"] = counted["fit"]._replace(part=MEASURED)
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

    def __post_init__(self):
        check_whole("rounds", self.rounds, 1, 31)
        if self.weights not in WEIGHTS:
            raise ValueError(f'weights: got {self.weights!r}; accepted are "rows" and "equal"')

    def task(self) -> dict[str, Any]:
        """What identifies the run, in plain values."""
        start = {n: a.tolist() for n, a in flatten(self.initial, "").items()}
        return {
            "algorithm": repr(self.algorithm), "stop": repr(self.stop), "weights": self.weights,
            "initial": start, "classes": [cls.__qualname__ for cls in self.classes],
        }  # fmt: skip

    def check(self, card: dict[str, Any]) -> None:
        """Raises for a site whose answer to the greeting is none."""
        lacking = set(_CARD) - set(card)
        if lacking:
            raise RefusedError(
                f"it says nothing of {', '.join(sorted(lacking))}: is its app client_app(problem)?"
            )
        for name, kind in _CARD.items():
            if not isinstance(card[name], kind):
                raise RefusedError(f"its {name} is {card[name]!r}")
        finite(card["l2"], "l2")
        check_batches(self.algorithm, finite(card.get("least_batch"), "least_batch"))

    def greeting(self) -> dict[str, Any]:
        """What every site is asked when it comes: nothing but who it is."""
        return {}

    def once(self, session: Session) -> Run:
        """The run of the present members, or its next epoch."""
        problem, engine = self.opened(session)
        ended = session.ended
        initial = self.initial if ended is None else ended.model(self.initial)
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
