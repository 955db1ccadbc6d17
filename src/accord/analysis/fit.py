"""``accord.fit``: from the sites' tables to the joint model, with everything a reader wants to know of it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from accord.analysis.agreement import agree
from accord.analysis.diagnosis import check_determined
from accord.analysis.families import FAMILIES, metric, pooled, site_statistics
from accord.analysis.inference import Coefficient, coefficients, log_likelihood
from accord.analysis.local import local_models
from accord.analysis.model import Model
from accord.analysis.schema import Schema
from accord.analysis.solve import MOST_ROUNDS, Choice, Solution, default_algorithm, solve
from accord.analysis.summaries import Request, Summary, summarise
from accord.data import Clients
from accord.data.frames import joined
from accord.data.sites import Site, read_sites
from accord.engines import run
from accord.engines.job import check_whole
from accord.files import write_whole
from accord.problems.base import non_negative, positive
from accord.report.labels import spelled


class SiteResult(NamedTuple):
    """What one client contributes and gets.

    ``rows``; ``loss``: the joint model's mean loss on its rows; ``score``: the family's measure there;
    ``local_loss`` and ``local_score``: the same of a model fitted to these rows alone, which has seen
    nothing else: that it does better here says nothing of new rows (see ``leave_one_out``).
    """

    client: str
    rows: int
    loss: float
    score: float
    local_loss: float | None = None
    local_score: float | None = None


class Exchange(NamedTuple):
    """What one part of a fit sends: ``rounds``, and bytes ``up`` and ``down``, all clients together."""

    part: str
    rounds: int
    up: int
    down: int


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """The outcome of ``accord.fit``.

    ``model``: what predicts, with ``model.save(path)``; ``coefficients``: one ``Coefficient`` a number;
    ``sites``: one ``SiteResult`` a client; ``exchanges``; ``score`` and ``metric``: the fit's own
    measure over all rows; ``loss``: mean loss without penalties; ``log_likelihood``: None with
    penalties; ``notes``: sentences a reader should see; ``solution``: the run and its certificate.
    """

    model: Model
    coefficients: list[Coefficient]
    sites: list[SiteResult]
    exchanges: list[Exchange]
    metric: str
    score: float
    loss: float
    log_likelihood: float | None
    notes: list[str]
    solution: Solution
    choice: Choice

    @property
    def certificate(self):
        """How far the encoded coefficients can be from the pooled fit."""
        return self.solution.certificate

    @property
    def status(self):
        """How the fit ended."""
        return self.solution.status

    @property
    def rows(self) -> int:
        """The rows of all clients that were fitted."""
        return sum(s.rows for s in self.sites)

    def __repr__(self) -> str:
        clients = f"{len(self.sites)} client" + "s" * (len(self.sites) != 1)
        return f"Fit({self.model.kind}, {clients}, {self.rows} rows, {self.status})"

    def to_dict(self) -> dict[str, Any]:
        """The whole result in plain values, as ``--json`` writes it: NaN becomes None."""
        certificate = self.certificate
        run = self.solution.run
        content = {
            "model": self.model.kind,
            "target": self.model.schema.explained[0].name,
            "rows": self.rows,
            "status": {"name": str(self.status.name), "sentence": self.status.sentence},
            "algorithm": self.model.provenance["algorithm"],
            "reason": self.choice.reason,
            "coefficients": [c._asdict() for c in self.coefficients],
            "log_likelihood": self.log_likelihood,
            "loss": self.loss,
            self.metric: self.score,
            "certificate": {
                "gradient_norm": certificate.gradient_norm,
                "distance": certificate.distance,
                "gap": certificate.gap,
            },
            "exchanges": [e._asdict() for e in self.exchanges],
            "sites": [s._asdict() for s in self.sites],
            "notes": self.notes,
            "history": {k: np.asarray(v).tolist() for k, v in run.history.items()},
        }
        return _plain(content)

    def to_json(self) -> str:
        """``to_dict`` as JSON."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"

    def dataframe(self):
        """The coefficients as a polars DataFrame."""
        import polars

        return polars.DataFrame([c._asdict() for c in self.coefficients])

    def print(self, console=None) -> None:
        """The fit as tables on a terminal."""
        from accord.report.fits import show

        show(self, console)

    def report(self, path, title: str | None = None):
        """Writes the fit as one HTML page that loads nothing from elsewhere."""
        from accord.report.fits import write_report

        return write_report(self, path, title)

    def save(self, folder, title: str | None = None) -> dict[str, Path]:
        """Writes model.json, fit.json and report.html into a folder, which is made if need be.

        All is made before anything is written. Gives the paths by name.
        """
        from accord.report.fits import render

        contents = {
            "model": ("model.json", self.model.to_json()),
            "result": ("fit.json", self.to_json()),
            "report": ("report.html", render(self, title)),
        }
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        return {what: write_whole(folder / name, c) for what, (name, c) in contents.items()}

    def pictures(self, folder) -> list[Path]:
        """Writes the report's pictures as PNG files into a folder, which is made if need be."""
        from accord.report.fits import pictures

        return pictures(self, folder)


def fit(
    source,
    target: str | None = None,
    client: str | None = None,
    *,
    client_file=None,
    model: str | None = None,
    features: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    categorical: Sequence[str] = (),
    missing: str = "error",
    l1: float = 0.0,
    l2: float = 0.0,
    intercept: bool = True,
    standardise: bool = True,
    threshold: float = 1.0,
    algorithm=None,
    tolerance: float = 1e-8,
    max_rounds: int = MOST_ROUNDS,
    compare_local: bool = True,
    progress: Callable[[dict], None] | None = None,
) -> Fit:
    """Fits one model to the rows of all clients: the fit that pooling them would have given.

    ``source`` with ``client`` and ``client_file`` is what ``accord.data.read_sites`` takes: a table
    with a client column, a folder with one table per client, a LIBSVM file; or a list of sites.
    ``model`` is linear, logistic, softmax, poisson or huber; None infers one of the first three from
    ``target``. ``features`` (default all), ``exclude``, ``categorical`` and ``missing`` ("error",
    "mean", "drop" or "indicator") say how columns become numbers: one schema round agrees on it from
    per-client counts and sums (``accord.analysis.schema``).

    The objective is the mean loss over all rows + l1 ||w||_1 + (l2/2) ||w||^2, with w the coefficients
    of the encoded columns, brought to mean 0 and deviation 1 unless ``standardise=False``; the
    intercept is free. ``threshold`` is Huber's, in units of the target. ``algorithm`` (default: see
    ``accord.analysis.solve``) runs until the certificate bounds ||w - w*|| by ``tolerance`` x
    max(1, ||w||), or for ``max_rounds``. ``compare_local`` fits every client's rows alone, too.

    Raises ``ValueError`` in one line where an argument, a column or a cell does not fit.
    """
    task = prepared(
        source, target, client, client_file=client_file, model=model, features=features,
        exclude=exclude, categorical=categorical, missing=missing, l1=l1, l2=l2,
        intercept=intercept, standardise=standardise, threshold=threshold, algorithm=algorithm,
        tolerance=tolerance, max_rounds=max_rounds,
    )  # fmt: skip
    schema = agree(task.summaries, task.request)
    _target, _kind = schema.explained
    clients = encoded_clients(schema, task.sites)
    problem = make_problem(schema, clients, task.l1, task.l2, task.threshold)
    choice = default_algorithm(problem) if algorithm is None else Choice(algorithm, "asked for")
    reported = partial(_reports, problem, compare_local=compare_local)
    return fitted(task, schema, problem, choice, reported, progress=progress)


def fitted(task, schema, problem, choice, reported, run=run, progress=None, x0=None) -> Fit:
    """The fit of an agreed schema's problem, wherever its rows are.

    ``reported(model)`` gives every client's ``Report`` of it; ``run`` is the engine; ``x0`` the start.
    """
    solution = solve(
        problem, choice.algorithm, task.tolerance, task.max_rounds, progress=progress,
        x0=start(problem, schema) if x0 is None else x0, run=run,
    )  # fmt: skip
    check_usable(solution)
    check_determined(problem, schema, solution)
    x = _centred(solution.x, problem)
    model = Model(schema.explained[1], schema, x, schema.intercept, task.threshold)
    return _finished(model, problem, solution, choice, task, reported(model))


class Report(NamedTuple):
    """What a client says of a model: ``joint``, its counts of the joint model (``site_statistics``), and
    ``own``, those of a model fitted to its rows alone, or None."""

    client: str
    joint: dict[str, float]
    own: dict[str, float] | None = None


def report_of(model: Model, name: str, X, y, x_own=None) -> Report:
    """A client's report of a model from its encoded rows; ``x_own`` is its own model, or None."""
    family = FAMILIES[model.kind]

    def counted(x):
        return site_statistics(family, x, X, y, model.intercept, model.threshold)

    return Report(name, counted(model.x), None if x_own is None else counted(x_own))


def _reports(problem, model, compare_local) -> list[Report]:
    clients = problem.clients
    own = local_models(problem) if compare_local else [None] * len(clients)
    named = zip(clients.names, clients, own, strict=True)
    return [report_of(model, name, X, y, x) for name, (X, y), x in named]


class Task(NamedTuple):
    """What is to be fitted: the sites, what they were asked and said, and the options of ``fit``."""

    sites: Sequence[Site]
    request: Request
    summaries: dict[str, Summary]
    l1: float
    l2: float
    threshold: float
    algorithm: Any
    tolerance: float
    max_rounds: int


def prepared(
    source, target, client=None, *, client_file=None, model=None, features=None, exclude=(),
    categorical=(), missing="error", l1=0.0, l2=0.0, intercept=True, standardise=True,
    threshold=1.0, algorithm=None, tolerance=1e-8, max_rounds=MOST_ROUNDS,
) -> Task:  # fmt: skip
    """The sites read and asked: what comes before any fit. The arguments are those of ``fit``."""
    ready = isinstance(source, list | tuple) and all(isinstance(s, Site) for s in source)
    sites = source if ready else read_sites(source, client, client_file=client_file)
    request = Request(
        target=target, features=features, exclude=exclude, categorical=categorical,
        missing=missing, intercept=intercept, standardise=standardise, model=model,
    )  # fmt: skip
    summaries = {site.name: summarise(site.frame, request) for site in sites}
    check_whole("max_rounds", max_rounds, 1, 31)
    return Task(
        sites, request, summaries, non_negative("l1", l1), non_negative("l2", l2),
        positive("threshold", threshold), algorithm, tolerance, max_rounds,
    )  # fmt: skip


def encoded_clients(schema: Schema, sites: Sequence[Site], unknown: str = "error") -> Clients:
    """The sites' rows as numbers, every site by itself."""
    arrays = [schema.encode(site.frame, unknown=unknown) for site in sites]
    return Clients.from_arrays(arrays, [site.name for site in sites])


def make_problem(schema: Schema, clients: Clients, l1: float, l2: float, threshold: float):
    """The problem of a schema's model on encoded clients."""
    target, kind = schema.explained
    if kind != "huber" and threshold != 1:
        raise ValueError(
            f"threshold: got {threshold:g} with the model {kind!r}, which has no use for it; leave it out, "
            "or choose model='huber'"
        )
    options: dict[str, Any] = {"l1": l1, "l2": l2, "intercept": schema.intercept}
    if kind == "huber":
        options["threshold"] = threshold
    if kind == "softmax":
        options["classes"] = len(target.classes)
    return FAMILIES[kind].problem(clients, **options)


def start(problem, schema: Schema):
    """Where a fit starts: at zeros (None), of counts at the intercept that gives their mean.

    From zero, a Newton step towards a large mean would take exp(eta) beyond the largest number.
    """
    target, kind = schema.explained
    if kind != "poisson" or not schema.intercept:
        return None
    x = np.zeros(np.shape(problem.initial()))
    x[-1] = np.log(target.mean)
    return x


def check_usable(solution: Solution) -> None:
    """Raises where a run diverged, and its model is of no use."""
    if not solution.status.ok:
        method = type(solution.run.algorithm).__name__
        raise ValueError(f"algorithm: {method} {solution.status}")


def _centred(x, problem):
    """For softmax, the numbers that no row and no penalty determines, brought to a mean of zero."""
    if x.ndim == 2:
        if problem.regulariser is None and not _ridge(problem):
            return x - x.mean(1, keepdims=True)
        if problem.intercept:
            return np.vstack([x[:-1], x[-1:] - x[-1].mean()])
    return x


def _ridge(problem) -> float:
    return float(sum(p.l2 for p in problem.penalties))


def _finished(model, problem, solution, choice, task, reports: list[Report]) -> Fit:
    """Everything that is told of a fit, from sums over the sites."""
    family, clients = FAMILIES[model.kind], problem.clients
    totals = pooled([r.joint for r in reports])
    penalised = problem.regulariser is not None or _ridge(problem) > 0
    exact_law = family.likelihood and not penalised
    numbers, notes = coefficients(model, problem, solution.certificate, totals, exact_law)
    run = solution.run
    if solution.status.name != "converged":
        notes.append(solution.status.sentence)
    provenance = {
        "accord": version("accord"),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "algorithm": spelled(run.algorithm),
        "rounds": int(run.history["round"][-1]),
        "l1": float(getattr(problem.regulariser, "l1", 0.0)),
        "l2": _ridge(problem),
        "certificate": solution.certificate.distance,
        "clients": {name: int(n) for name, n in zip(clients.names, clients.sizes, strict=True)},
    }
    return Fit(
        model=replace(model, provenance=_plain(provenance)),
        coefficients=numbers,
        sites=[_site_result(family, r) for r in reports],
        exchanges=_exchanges(task, model, problem, solution, sum(len(r.joint) for r in reports)),
        metric=family.metric,
        score=metric(family, totals, totals["rows"]),
        loss=totals["loss"] / totals["rows"],
        log_likelihood=log_likelihood(model.kind, totals) if exact_law else None,
        notes=[*model.schema.notes, *_filled(model.schema, task.summaries, exact_law), *notes],
        solution=solution,
        choice=choice,
    )


def _filled(schema: Schema, summaries: dict[str, Summary], errors: bool) -> list[str]:
    """What stands where values were missing, in a sentence; ``errors``: there are standard errors."""
    told = []
    for feature in schema.features:
        gone = sum(s.columns[feature.name].missing for s in summaries.values())
        if gone:
            fill = f"{feature.fill:.4g}" if feature.kind == "number" else repr(feature.fill)
            told.append(f"{gone:,} of {feature.name!r} with {fill}")
    if not told:
        return []
    known = "; standard errors take them for observed" if errors else ""
    return [f"missing values filled, of {schema.rows:,} rows: {joined(told)}{known}"]


def _site_result(family, report: Report) -> SiteResult:
    rows = report.joint["rows"]
    if not rows:
        return SiteResult(report.client, 0, float("nan"), float("nan"))
    told = [counts for counts in (report.joint, report.own) if counts is not None]
    pairs = [(counts["loss"] / rows, metric(family, counts, rows)) for counts in told]
    return SiteResult(report.client, int(rows), *(v for pair in pairs for v in pair))


def _exchanges(task, model, problem, solution, sums) -> list[Exchange]:
    m, x = len(problem), model.x
    answers = sum(len(s.to_json()) for s in task.summaries.values())
    asked = m * (len(task.request.to_json()) + len(model.schema.to_json()))
    history = solution.run.history
    up, down = (int(history[name][-1]) for name in ("uplink_bytes", "downlink_bytes"))
    parts = [
        Exchange("schema", 1, answers, asked),
        Exchange("fit", int(history["round"][-1]), up, down),
    ]
    if solution.certificate.coefficients is not None:
        # The gradient, its rounding and the Hessian; then the bound on the Hessian within a ball.
        square = x.size**2 * x.itemsize
        ball = not problem.quadratic
        first = 2 * x.nbytes + square
        parts.append(
            Exchange(
                "certificate", 1 + ball, m * (first + ball * square), m * (x.nbytes + ball * square)
            )
        )
    parts.append(Exchange("results", 1, 8 * sums, m * x.nbytes))
    return parts


def _plain(value):
    """Plain JSON values: numbers as Python's own, NaN and infinities as None."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value
