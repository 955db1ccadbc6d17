"""``accord.compare``: several methods on one problem, on equal terms."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jax import tree_util

from accord import graph
from accord.core import checks
from accord.engines import run
from accord.files import write_whole
from accord.report.labels import labels, spelled
from accord.report.scores import Score, check_test, kind_of_score, score
from accord.report.style import power, scientific, share, short
from accord.theory import conditioning_hint, constants

TARGETS = (1e-2, 1e-4, 1e-8)
MEGABYTE = 1e6
LEAST = 1e-16

AXES = {
    "rounds": "communication rounds",
    "megabytes": "megabytes up and down, all clients",
    "gradients": "local gradients, a client's mean",
    "seconds": "seconds, compilation apart",
}
"""What a curve can be drawn against."""

MEASURES = {
    "gap": ("relative gap", "(F(x) - F(x*)) / (F(x0) - F(x*))"),
    "gradient_norm": ("relative gradient norm", "||grad F(x)|| / ||grad F(x0)||"),
}


@dataclass(frozen=True)
class Entry:
    """One method of a comparison: what was asked for, and its run or why it was refused."""

    name: str
    algorithm: Any
    run: Any = None
    refusal: str | None = None
    seconds: float = 0.0

    @property
    def status(self) -> str:
        """The name of the run's status, or "refused"."""
        return "refused" if self.run is None else self.run.status.name

    @property
    def sentence(self) -> str:
        """How it ended, in words."""
        return self.refusal or "" if self.run is None else self.run.status.sentence


class Curve(NamedTuple):
    """A method's relative measure, the start included, and what it is drawn against."""

    name: str
    place: int
    values: np.ndarray
    axes: dict[str, np.ndarray]


class Column(NamedTuple):
    """A column of the table: ``group`` over ``head`` in a terminal, ``words`` over it on a page.

    ``text`` writes a value; ``best`` is ``min`` or ``max``.
    """

    key: str
    group: str
    head: str
    words: str
    text: Callable[[Any], str]
    best: Callable

    def best_text(self, table) -> str | None:
        """How the best value is written, or None where there is nothing to choose."""
        known = [row[self.key] for row in table if row[self.key] is not None]
        return self.text(self.best(known)) if len(known) > 1 else None


def compare(
    algorithms: Sequence | Mapping[str, Any],
    problem,
    rounds: int = 200,
    seed: int = 0,
    *,
    network=None,
    test=None,
    names: Sequence[str] | None = None,
    progress: Callable[[str, dict], None] | None = None,
    targets: Sequence[float] = TARGETS,
    **options,
) -> "Comparison":
    """Runs methods one after another on a problem, and holds them side by side.

        comparison = accord.compare([accord.GPDMM(), accord.FedAvg()], problem, test=held_out)
        comparison.print()
        comparison.report("report.html")

    ``algorithms`` are instances, or a dictionary from names to instances; ``names`` replaces the
    automatic names. ``test`` are held-out rows of the same clients (``accord.Clients``).
    ``targets`` are the relative gaps whose cost the table tells. ``progress(name, row)`` is called
    when a method starts, with an empty row, and then with its latest row. ``rounds``, ``seed``
    and further ``options`` are those of ``accord.run``; with a
    ``network`` the algorithms are those of ``accord.graph``, and options those of ``accord.graph.run``.

    A method that the problem refuses is told as such in its row. Raises ``ValueError`` where every
    method is refused.
    """
    given, algorithms = _named(algorithms, names, network is None)
    targets = _checked_targets(targets)
    if network is not None and test is not None:
        raise ValueError("test: held-out rows are scored without a network only; leave one out")
    if test is not None:
        check_test(problem, test)
    entries = []
    for name, algorithm in zip(given, algorithms, strict=True):
        if progress:
            progress(name, {})
        began = time.perf_counter()
        outcome: dict[str, Any] = {}
        try:
            told = progress and functools.partial(progress, name)
            where = (problem,) if network is None else (network, problem)
            once: Callable = run if network is None else graph.run
            outcome["run"] = once(algorithm, *where, rounds, seed, progress=told, **options)
        except ValueError as error:
            outcome["refusal"] = str(error)
        except Exception as error:
            # The other methods' runs are not lost to a fault in one of them.
            outcome["refusal"] = f"{type(error).__name__}: {error}"
        entries.append(Entry(name, algorithm, **outcome, seconds=time.perf_counter() - began))
    refusals = {e.refusal: e.name for e in entries if e.refusal}
    if all(e.refusal for e in entries):
        reasons = [s if len(refusals) == 1 else f"{name}: {s}" for s, name in refusals.items()]
        raise ValueError("; ".join(reasons))
    participation = options.get("participation", 1.0)
    parts = problem, entries, rounds, seed, participation, test, targets
    if network is None:
        return Comparison(*parts)
    from accord.report.networks import NetworkComparison

    conditions = {
        name.replace("_", " "): _told(options[name])
        for name in ("activation", "loss_probability", "communication", "outages")
        if name in options
    }
    return NetworkComparison(network, conditions, *parts)


def _told(option) -> str:
    """A condition in words: a whole sequence of activations is not spelled out."""
    sequence = isinstance(option, np.ndarray | list | tuple) and len(option) > 3
    return f"a sequence of {len(option)}" if sequence else str(option)


def _named(algorithms, names, on_star: bool) -> tuple[list[str], list]:
    if isinstance(algorithms, Mapping):
        if names is not None:
            raise ValueError("names: the dictionary names its algorithms already; leave names out")
        names, algorithms = algorithms.keys(), algorithms.values()
    elif isinstance(algorithms, str) or not isinstance(algorithms, Sequence):
        raise TypeError(
            f"algorithms: got {type(algorithms).__name__}; accepted is a list of algorithms, "
            "or a dictionary from names to algorithms"
        )
    algorithms = list(algorithms)
    if not algorithms:
        raise ValueError("algorithms: the list is empty; give at least one, as accord.GPDMM()")
    for algorithm in algorithms if on_star else ():
        checks.check_algorithm(algorithm)
    names = labels(algorithms) if names is None else [str(n) for n in names]
    if len(names) != len(algorithms) or len(set(names)) != len(names):
        raise ValueError(f"names: got {names}; expected {len(algorithms)} names, all different")
    return names, algorithms


def _checked_targets(targets) -> tuple[float, ...]:
    targets = tuple(float(t) for t in targets)
    if not targets or not all(0 < t < 1 for t in targets):
        raise ValueError(f"targets: got {targets}; accepted are relative gaps between 0 and 1")
    return tuple(sorted(set(targets), reverse=True))


class Comparison:
    """The outcome of ``accord.compare``.

    ``entries``: one per method in the order given; ``runs``: name -> ``Run`` of those that ran;
    ``refused``: name -> sentence of those that did not. ``measure``, which targets and curves are
    of, relative to its value at x0, is "gap", or "gradient_norm" where no optimum is known.
    """

    def __init__(self, problem, entries, rounds, seed, participation, test, targets):
        self.problem, self.entries, self.test = problem, tuple(entries), test
        self.rounds, self.seed, self.participation = rounds, seed, participation
        self.targets = targets
        self.runs = {e.name: e.run for e in entries if e.run is not None}
        self.refused = {e.name: e.refusal for e in entries if e.run is None}
        self.measure = self._measure()

    axes = AXES
    measures = MEASURES
    subtitle = "minimise F(x) = sum_i w_i f_i(x), without pooling rows"

    @property
    def caption(self) -> str:
        """What the pictures are of."""
        return f"{self.problem.name}, {len(self.problem)} clients"

    def _measure(self) -> str:
        known = all("gap" in r.history for r in self.runs.values())
        return "gap" if known else "gradient_norm"

    def __repr__(self) -> str:
        return f"Comparison({', '.join(e.name for e in self.entries)}; {self.rounds} rounds)"

    @functools.cached_property
    def floor(self) -> float:
        """The least relative measure that is drawn: what lies below is rounding."""
        if self.measure != "gap":
            return LEAST
        start = next(iter(self.runs.values())).start
        noise = np.finfo(self.problem.dtype).eps * abs(start["objective"] - start["gap"])
        return max(LEAST, float(noise / start["gap"])) if start["gap"] > 0 else LEAST

    @functools.cached_property
    def curves(self) -> list[Curve]:
        """One curve per run, with the start as its first point."""
        return [
            Curve(e.name, k, *self._curve(e.run))
            for k, e in enumerate(self.entries)
            if e.run is not None
        ]

    @functools.cached_property
    def scores(self) -> dict[str, Score]:
        """name -> score on the held-out rows, of the runs whose model is finite."""
        if self.test is None:
            return {}
        found = {n: score(self.problem, r.x, self.test) for n, r in self.runs.items()}
        return {name: s for name, s in found.items() if s is not None}

    @functools.cached_property
    def optimum_score(self) -> Score | None:
        """The score of the optimum x* itself, where it is known."""
        if self.test is None or self.measure != "gap":
            return None
        return score(self.problem, self.problem.reference().x, self.test)

    @functools.cached_property
    def columns(self) -> list[Column]:
        """The numeric columns of the table, in order."""
        words = self.measures[self.measure][0]
        spent = [
            Column(f"{key}_to_{power(t)}", group, power(t), told.format(words), short, min)
            for key, group, told in self._costs()
            for t in self.targets
        ]
        n = len(self.targets)
        return spent[:n] + self._at_end() + spent[n:]

    def _costs(self) -> list[tuple[str, str, str]]:
        """What is counted until a target is reached: (key, group, words)."""
        return [
            ("rounds", "rounds", "rounds to a {} of"),
            ("gradients", "grads", "local gradients to"),
            ("uplink_megabytes", "MB up", "MB up to"),
            ("downlink_megabytes", "MB down", "MB down to"),
        ]

    def _at_end(self) -> list[Column]:
        columns = [Column("distance", "||x-x*||", "at end", "||x-x*||", scientific, min)]
        if self.test is not None:
            kind = kind_of_score(self.problem)
            told = f"held-out {kind}"
            columns += [
                Column(kind, kind, "all", told, share, max),
                Column(f"lowest_{kind}", kind, "lowest", told, share, max),
            ]
        return columns

    def table(self) -> list[dict[str, Any]]:
        """One dictionary per method; a value that cannot be had is None.

        ``..._to_1e-4`` is what it took to bring the relative gap to 1e-4, at the first recorded
        round there; ``distance`` is ||x - x*|| at the end; ``sentence`` says how the run ended.
        """
        return [self._row(e) for e in self.entries]

    def _row(self, entry: Entry) -> dict[str, Any]:
        row: dict[str, Any] = {"method": entry.name, "status": entry.status}
        row |= {column.key: None for column in self.columns}
        row |= {"rounds": None, "seconds": None, "lowest_client": None, "sentence": entry.sentence}
        if self.test is None:
            del row["lowest_client"]
        if entry.run is None:
            return row
        history = entry.run.history
        row |= {"rounds": int(history["round"][-1]), "seconds": entry.run.seconds}
        curve = next(c for c in self.curves if c.name == entry.name)
        for target in self.targets:
            at = np.flatnonzero(curve.values[1:] <= target)
            if len(at):
                row |= {
                    f"{k}_to_{power(target)}": v for k, v in self._spent(history, at[0]).items()
                }
        if "distance" in history and np.isfinite(history["distance"][-1]):
            row["distance"] = float(history["distance"][-1])
        if entry.name in self.scores:
            kind, own = kind_of_score(self.problem), self.scores[entry.name]
            told = {kind: own.overall, f"lowest_{kind}": own.least}
            row |= {key: None if np.isnan(value) else value for key, value in told.items()}
            if own.lowest is not None:
                row["lowest_client"] = self.problem.clients.names[own.lowest]
        return row

    def _curve(self, run) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        history, first = run.history, run.start[self.measure]
        values = np.concatenate([[first], history[self.measure]]) / (first if first > 0 else 1.0)
        found = self._drawn_against(history)
        axes = {k: np.concatenate([[0], v]) for k, v in found.items() if v is not None}
        return values, axes

    def _drawn_against(self, history) -> dict[str, np.ndarray | None]:
        return {
            "rounds": history["round"],
            "megabytes": (history["uplink_bytes"] + history["downlink_bytes"]) / MEGABYTE,
            "gradients": history.get("gradients"),
            "seconds": history["seconds"],
        }

    def _spent(self, history, at: int) -> dict[str, Any]:
        """What a run had spent at a recorded row."""
        spent = {
            "rounds": int(history["round"][at]),
            "uplink_megabytes": float(history["uplink_bytes"][at]) / MEGABYTE,
            "downlink_megabytes": float(history["downlink_bytes"][at]) / MEGABYTE,
        }
        if "gradients" in history:
            spent["gradients"] = float(history["gradients"][at])
        return spent

    def facts(self) -> list[tuple[str, str]]:
        """What was run, and what theory knows of the problem, as (name, value)."""
        problem, c = self.problem, constants(self.problem)
        heard = self.participation
        facts = [
            ("clients", str(len(problem))),
            *problem_facts(problem, c),
            ("rounds", str(self.rounds)),
            ("participation", f"{heard:g}" if np.ndim(heard) == 0 else "a schedule"),
            ("seed", str(self.seed)),
            ("dtype", problem.dtype),
        ]
        if self.measure == "gap":
            facts.insert(6, ("F(x*)", f"{problem.reference().objective:.6g}"))
        penalties = ", ".join(spelled(p) for p in getattr(problem, "penalties", ()))
        return [*facts, ("penalty", penalties)] if penalties else facts

    def notes(self) -> list[str]:
        """What a reader of the table wants to know beside it."""
        words, formula = self.measures[self.measure]
        lines = [
            f"{', '.join(power(t) for t in self.targets)}: what was spent until the {words} "
            f"{formula} was that small; - if it never was in {self.rounds} rounds. {self._counted()}"
        ]
        if any(entry.status == "budget_spent" for entry in self.entries):
            lines[0] += " budget_spent: all rounds that were allowed were run; it is no failure."
        best = self.optimum_score
        if best is not None:
            kind = kind_of_score(self.problem)
            lines.append(
                f"{kind}: on held-out rows, over all of them and of the client with the lowest. The "
                f"optimum itself has {share(best.overall)} and {share(best.least)}."
            )
        hint = conditioning_hint(self.problem, self.problem.initial())
        if hint:
            lines.append(hint)
        twins = self.twins()
        if twins:
            lines.append(f"The same, round by round: {'; '.join(' = '.join(g) for g in twins)}.")
        for entry in self.entries:
            if entry.status not in ("converged", "budget_spent"):
                lines.append(f"{entry.name}: {entry.status}: {entry.sentence}")
        return lines

    def _counted(self) -> str:
        return "Gradients are a client's mean, MB (1e6 bytes) those of all clients together."

    def figures(self) -> list[tuple[str, str, bytes]]:
        """Further pictures for the page: (title, caption, PNG)."""
        return []

    def twins(self) -> list[list[str]]:
        """Groups of methods whose curves are the same, round by round, down to rounding."""
        groups: list[list[Curve]] = []
        for curve in self.curves:
            group = next((g for g in groups if _coincide(g[0].values, curve.values)), None)
            if group:
                group.append(curve)
            else:
                groups.append([curve])
        return [[c.name for c in g] for g in groups if len(g) > 1]

    def dataframe(self):
        """The table as a polars DataFrame."""
        import polars

        return polars.DataFrame(self.table(), infer_schema_length=None)

    def write_csv(self, path) -> Path:
        """Writes the table as CSV, whole or not at all."""
        return write_whole(Path(path), self.dataframe().write_csv())

    def print(self, console=None) -> None:
        """Prints the table, in as many parts as the width of the terminal asks for."""
        from accord.report.terminal import show

        show(self, console)

    def plots(self, folder) -> list[Path]:
        """Writes the curves as PNG files into a folder, which is made if need be."""
        from accord.report.pictures import draw

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        return [
            write_whole(folder / f"{axis}.png", draw(self, axis))
            for axis in self.axes
            if any(axis in c.axes for c in self.curves)
        ]

    def report(self, path, title: str | None = None) -> Path:
        """Writes everything as one self-contained HTML file, which loads nothing."""
        from accord.report.page import render

        return write_whole(Path(path), render(self, title))


def problem_facts(problem, c) -> list[tuple[str, str]]:
    """What is known of a problem with constants c."""
    size = sum(np.size(leaf) for leaf in tree_util.tree_leaves(problem.initial()))
    return [
        ("rows", f"{problem.clients.rows:,}"),
        ("parameters", f"{size:,}"),
        ("L" + (", an estimate" if c.estimated else ""), f"{c.smoothness:.4g}"),
        ("mu", "not known" if c.strong_convexity is None else f"{c.strong_convexity:.4g}"),
        ("kappa", "not known" if c.condition is None else f"{c.condition:.4g}"),
    ]


def _coincide(a: np.ndarray, b: np.ndarray) -> bool:
    if len(a) != len(b):
        return False
    seen = np.maximum(a, b) > 1e-10
    if min(a[seen].min(initial=1.0), b[seen].min(initial=1.0)) > 0.5 * max(a[0], b[0]):
        return False  # What hardly moved tells nothing.
    return seen.sum() > 1 and np.allclose(a[seen], b[seen], rtol=1e-4, atol=0)
