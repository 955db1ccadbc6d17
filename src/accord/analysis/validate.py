"""Leave-one-client-out validation: how a model of the other clients does on a client it has not seen."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from accord.analysis.agreement import agree
from accord.analysis.diagnosis import check_determined
from accord.analysis.families import FAMILIES, metric, pooled, site_statistics
from accord.analysis.fit import check_usable, encoded_clients, make_problem, prepared, start
from accord.analysis.solve import default_algorithm, solve


class HeldOut(NamedTuple):
    """A client whose rows took no part in the fit it is held against.

    ``rows``; ``loss`` and ``score`` on them of the model that the other clients agree on; ``note``: why
    there are none, or how their fit fell short.
    """

    client: str
    rows: int
    loss: float
    score: float
    note: str = ""


class Validation(NamedTuple):
    """The outcome of ``accord.leave_one_out``: ``clients``, and over all their rows ``loss``, ``score``
    (named by ``metric``; an AUC is the mean of the clients', by rows)."""

    clients: list[HeldOut]
    metric: str
    loss: float
    score: float

    def dataframe(self):
        """One row a client, as a polars DataFrame."""
        import polars

        return polars.DataFrame([c._asdict() for c in self.clients], infer_schema_length=None)

    def print(self, console=None) -> None:
        """The clients as a table on a terminal."""
        from accord.report.fits import show_validation

        show_validation(self, console)


def leave_one_out(
    source, target: str, client: str | None = None, *, progress: Callable | None = None, **options
) -> Validation:
    """Fits all clients but one, for each client in turn, and measures the model on the one left out.

    Preprocessing, too, knows only the other clients: a category that only the one left out has counts as
    the baseline there. ``options`` are those of ``accord.fit``. ``progress(client)`` is called before
    each fit. Raises ``ValueError`` as ``accord.fit`` does, and where there are fewer than two clients.
    """
    task = prepared(source, target, client, **options)
    sites, request, summaries = task.sites, task.request, task.summaries
    if len(sites) < 2:
        raise ValueError("client: there is one client only; leaving it out leaves no rows")
    # What is inferred from all clients stays, so that every fit is of the same kind.
    _, kind = agree(summaries, request).explained
    request, family = replace(request, model=kind), FAMILIES[kind]
    results, sums = [], []
    for k, site in enumerate(sites):
        if progress:
            progress(site.name)
        rows, note = summaries[site.name].rows, "no rows"
        loss = score = float("nan")
        others = {name: s for name, s in summaries.items() if name != site.name}
        try:
            told, note = _one(task, request, others, k) if rows else (None, note)
        except ValueError as error:
            told, note = None, str(error)
        if told:
            loss, score = told["loss"] / rows, metric(family, told, rows)
            sums.append(told)
        results.append(HeldOut(site.name, rows, loss, score, note))
    if not sums:
        raise ValueError(f"client: no client could be left out: {results[0].note}")
    totals = pooled(sums)
    loss, score = totals["loss"] / totals["rows"], metric(family, totals, totals["rows"])
    return Validation(results, family.metric, loss, score)


def _one(task, request, others, k: int) -> tuple[dict[str, float], str]:
    """The statistics of client k under the model of the others, and what that falls short of."""
    schema = agree(others, request)
    clients = encoded_clients(schema, task.sites, unknown="baseline")
    problem = make_problem(schema, clients, task.l1, task.l2, task.threshold)
    # At weight zero the client is absent, and every fit has the same shapes: one compiled program.
    weights = np.where(np.arange(len(clients)) == k, 0.0, problem.weights)
    problem = problem.reweighted(weights)
    algorithm = task.algorithm or default_algorithm(problem).algorithm
    solution = solve(problem, algorithm, task.tolerance, task.max_rounds, x0=start(problem, schema))
    check_usable(solution)
    check_determined(problem, schema, solution)
    X, y = clients[k]
    family = FAMILIES[schema.explained[1]]
    told = site_statistics(family, solution.x, X, y, schema.intercept, task.threshold)
    return told, "" if solution.status.name == "converged" else solution.status.sentence
