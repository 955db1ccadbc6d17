"""``accord compare``: methods on one problem over a star."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import accord
from accord.algorithms import parse_methods
from accord.cli.app import app
from accord.cli.shared import (
    L2,
    Bars,
    Intercept,
    Output,
    Rounds,
    Seed,
    Table,
    check_numbers,
    deliver,
    places,
    table_file,
)
from accord.core.checks import closest

METHODS = (
    "GradientDescent,FedAvg,FedProx,SCAFFOLD,Scaffnew,FedDyn,ADMM,FedPD,FedPD:skip_probability=0.3,"
    "PDMM,FedSplit,InexactFedSplit:start=primal,InexactFedSplit:start=dual,GPDMM,AGPDMM"
)
MODELS = ("softmax", "logistic", "least_squares", "poisson", "huber")


@app.command(
    epilog="Examples: accord compare --methods GPDMM,AGPDMM,FedPD:skip_probability=0.3 --rounds 100"
    "\n\naccord compare --data patients.csv --target outcome --client hospital --model logistic"
)
def compare(
    data: Annotated[str, typer.Option(help="digits, a .csv or .parquet table, or a data set's name.")]
    = "digits",
    target: Annotated[str | None, typer.Option(help="The table's column to predict.")] = None,
    client: Annotated[str | None, typer.Option(help="The table's column of clients.")] = None,
    features: Annotated[
        str | None, typer.Option(help="The features, with commas between; default: all others.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help=f"{', '.join(MODELS)}; softmax for digits.")
    ] = None,
    l2: L2 = 1e-2,
    intercept: Intercept = False,
    methods: Annotated[
        str, typer.Option(help="Names with commas between; parameters as NAME:local_steps=5.")
    ] = METHODS,
    rounds: Rounds = 300,
    seed: Seed = 0,
    participation: Annotated[float, typer.Option(help="The share of clients in a round.")] = 1.0,
    stop: Annotated[
        float | None, typer.Option(help="End a run where the gradient norm of F is so small.")
    ] = None,
    test_every: Annotated[
        int, typer.Option(help="Hold out each so-many-th row of every client (a table: or 0).")
    ] = 5,
    output: Output = Path("comparison/report.html"),
    csv: Table = None,
) -> None:  # fmt: skip
    """Run methods on one problem and write a table, pictures and a report."""
    from accord import report

    check_numbers(rounds, seed, stop)
    algorithms = parse_methods(methods)
    problem, test = _problem(data, target, client, features, model, l2, intercept, test_every)
    output = places(output, csv)
    bound = None if stop is None else accord.Stop(gradient_norm=stop)
    with Bars(rounds) as bars:
        comparison = report.compare(
            algorithms, problem, rounds, seed, test=test, participation=participation, stop=bound,
            progress=bars.show,
        )  # fmt: skip
    deliver(
        comparison, output, csv, f"{Path(data).name}: {len(algorithms)} methods on {problem.name}"
    )


def _problem(data, target, client, features, model, l2, intercept, test_every):
    """(problem, held-out clients or None)."""
    if model is not None and model not in MODELS:
        raise ValueError(closest(model, MODELS, "model"))
    if data == "digits":
        if target or client or features:
            raise ValueError("target, client, features: the digits have theirs; leave them out")
        train, test = accord.data.digits(test_every)
        model = model or "softmax"
    else:
        for name, value in (("target", target), ("client", client)):
            if value is None:
                raise ValueError(f"{name}: {data} is a table; say --{name} COLUMN")
        if model is None:
            raise ValueError(f"model: say which fits the column {target!r}: {', '.join(MODELS)}")
        chosen = None if features is None else [f.strip() for f in features.split(",")]
        clients = accord.data.read_table(
            table_file(data), target=target, client=client, features=chosen
        )
        train, test = _held_out(clients, test_every) if test_every else (clients, None)
    make = getattr(accord.problems, model)
    return make(train, l2=l2, intercept=intercept), test


def _held_out(clients, every: int):
    """(train, test): of every client, each ``every``-th row is held out."""
    if every < 2:
        raise ValueError(f"test-every: got {every}; accepted is 0, or a whole number >= 2")
    halves: tuple[list, list] = ([], [])
    for X, y in clients:
        held = np.arange(1, len(y) + 1) % every == 0
        halves[0].append((X[~held], y[~held]))
        halves[1].append((X[held], y[held]))
    train, test = (accord.Clients.from_arrays(half, clients.names) for half in halves)
    return train, test
