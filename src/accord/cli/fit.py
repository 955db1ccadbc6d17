"""``accord fit``, ``predict``, ``describe`` and ``validate``: one model from many clients' tables."""

from pathlib import Path
from typing import Annotated, Any

import typer

from accord.algorithms import parse_method
from accord.cli.app import app
from accord.cli.shared import check_places, keep_programs, write_file
from accord.engines.job import check_whole

Data = Annotated[
    str,
    typer.Argument(
        help="A .csv, .parquet or LIBSVM file, a folder with one table per client, or the name of a "
        "data set (accord datasets)."
    ),
]
Client = Annotated[str | None, typer.Option(help="The column that names the client of a row.")]
ClientFile = Annotated[
    Path | None, typer.Option(help="LIBSVM: a file with the client of each row, one a line.")
]
Target = Annotated[str | None, typer.Option(help="The column to explain.")]
Kind = Annotated[
    str | None,
    typer.Option(help="linear, logistic, softmax, poisson or huber; default: from the target."),
]
Features = Annotated[
    str | None, typer.Option(help="The columns that explain it, with commas between; default: all.")
]
Exclude = Annotated[str | None, typer.Option(help="Columns to leave out, with commas between.")]
Categorical = Annotated[
    str | None, typer.Option(help="Columns of codes to take as categories, with commas between.")
]
Missing = Annotated[str, typer.Option(help="Missing values: error, mean, drop or indicator.")]
L1 = Annotated[float, typer.Option(help="The weight of l1 ||w||_1.")]
L2 = Annotated[float, typer.Option(help="The weight of (l2/2) ||w||^2.")]
Intercept = Annotated[bool, typer.Option(help="Fit an intercept, free of penalties.")]
Standardise = Annotated[
    bool, typer.Option(help="Bring columns to mean 0 and deviation 1; penalties act on these.")
]
Threshold = Annotated[float, typer.Option(help="Huber: residuals beyond it count linearly.")]
Method = Annotated[
    str | None, typer.Option(help="The method, as PDMM or AGPDMM:local_steps=5; default: chosen.")
]
Tolerance = Annotated[
    float, typer.Option(help="How far the standardised coefficients may be from the pooled fit.")
]
Rounds = Annotated[int, typer.Option(help="The most rounds.")]


@app.command(
    "fit",
    epilog="Examples: accord fit patients.csv --client hospital --target outcome"
    "\n\naccord fit patients.csv --client hospital --target outcome --missing mean --l1 0.01"
    "\n\naccord fit sites/ --target outcome --method PDMM",
)
def fit_command(
    data: Data,
    client: Client = None,
    target: Target = None,
    model: Kind = None,
    features: Features = None,
    exclude: Exclude = None,
    categorical: Categorical = None,
    missing: Missing = "error",
    l1: L1 = 0.0,
    l2: L2 = 0.0,
    intercept: Intercept = True,
    standardise: Standardise = True,
    threshold: Threshold = 1.0,
    method: Method = None,
    tolerance: Tolerance = 1e-8,
    rounds: Rounds = 100_000,
    client_file: ClientFile = None,
    local: Annotated[bool, typer.Option(help="Fit every client's rows alone, too.")] = True,
    output: Annotated[
        Path, typer.Option(help="The folder of model.json, fit.json and report.html.")
    ] = Path("fit"),
    pictures: Annotated[
        bool, typer.Option(help="Write the report's pictures as PNG, too.")
    ] = False,
) -> None:
    """Fit one model to the rows of all clients, equal to the pooled fit, with a certificate."""
    from accord.analysis.fit import fit

    _check_folder(output, ("model.json", "fit.json", "report.html"))
    check_whole("rounds", rounds, 1, 31)
    keep_programs()
    with _Progress() as progress:
        found = fit(
            **_table(data, client, target, features), client_file=client_file, model=model,
            exclude=_listed(exclude) or (),
            categorical=_listed(categorical) or (), missing=missing, l1=l1, l2=l2,
            intercept=intercept, standardise=standardise, threshold=threshold,
            algorithm=parse_method(method) if method else None, tolerance=tolerance, max_rounds=rounds,
            compare_local=local, progress=progress,
        )  # fmt: skip
    title = f"{Path(data).name}: {found.model.schema.explained[0].name}"
    written: dict[str, Any] = dict(found.save(output, title))
    if pictures:
        written["pictures"] = ", ".join(map(str, found.pictures(output)))
    found.print()
    for name, path in written.items():
        typer.echo(f"{name:<8} {path}")


@app.command(
    epilog="Example: accord predict fit/model.json new_patients.csv --output predicted.csv"
)
def predict(
    model: Annotated[
        Path, typer.Argument(help="A model.json that accord fit wrote, or its folder.")
    ],
    data: Annotated[
        Path, typer.Argument(help="A .csv or .parquet table with the model's columns.")
    ],
    output: Annotated[
        Path | None, typer.Option(help="A .csv or .parquet file; default: the terminal, as CSV.")
    ] = None,
    unknown: Annotated[
        str, typer.Option(help="A category that no client had: error, or baseline.")
    ] = "error",
) -> None:
    """Predict with a model file: one line for each row of the table, in its order."""
    from accord.analysis.model import Model

    if output is not None and output.suffix.lower() not in (".csv", ".parquet"):
        raise ValueError(f"output: got {str(output)!r}; accepted are .csv and .parquet files")
    check_places(output)
    told = Model.load(model).predict(data, unknown)
    if output is None:
        typer.echo(told.write_csv(), nl=False)
        return
    if output.suffix.lower() == ".csv":
        write_file(output, told.write_csv())
        return
    import io

    buffer = io.BytesIO()
    told.write_parquet(buffer)
    write_file(output, buffer.getvalue())


@app.command(epilog="Example: accord describe patients.csv --client hospital --target outcome")
def describe(
    data: Data,
    client: Client = None,
    target: Target = None,
    model: Kind = None,
    features: Features = None,
    exclude: Exclude = None,
    categorical: Categorical = None,
    missing: Missing = "mean",
    l1: L1 = 0.0,
    l2: L2 = 0.0,
    client_file: ClientFile = None,
) -> None:
    """Describe the clients: sizes, means, what is missing; with a target how much they differ."""
    from accord.analysis.describe import describe as described

    keep_programs()
    described(
        **_table(data, client, target, features), client_file=client_file, model=model,
        exclude=_listed(exclude) or (),
        categorical=_listed(categorical) or (), missing=missing, l1=l1, l2=l2,
    ).print()  # fmt: skip


@app.command(epilog="Example: accord validate patients.csv --client hospital --target outcome")
def validate(
    data: Data,
    client: Client = None,
    target: Target = None,
    model: Kind = None,
    features: Features = None,
    exclude: Exclude = None,
    categorical: Categorical = None,
    missing: Missing = "error",
    l1: L1 = 0.0,
    l2: L2 = 0.0,
    intercept: Intercept = True,
    standardise: Standardise = True,
    threshold: Threshold = 1.0,
    method: Method = None,
    tolerance: Tolerance = 1e-8,
    rounds: Rounds = 100_000,
    client_file: ClientFile = None,
    csv: Annotated[Path | None, typer.Option(help="Write the table here too.")] = None,
) -> None:
    """Leave one client out: fit the others, for each client in turn, and measure on its rows."""
    from accord.analysis.validate import leave_one_out

    check_places(csv)
    check_whole("rounds", rounds, 1, 31)
    keep_programs()
    with _Progress() as progress:
        found = leave_one_out(
            **_table(data, client, target, features), client_file=client_file, model=model,
            exclude=_listed(exclude) or (),
            categorical=_listed(categorical) or (), missing=missing, l1=l1, l2=l2,
            intercept=intercept, standardise=standardise, threshold=threshold,
            algorithm=parse_method(method) if method else None, tolerance=tolerance, max_rounds=rounds,
            progress=progress.say,
        )  # fmt: skip
    if csv is not None:
        write_file(csv, found.dataframe().write_csv())
    found.print()


def _table(data: str, client, target, features) -> dict[str, Any]:
    """The table and its columns: of a data set by name, those of its card that were not given."""
    from accord.data import CARDS, fetching

    columns = _listed(features)
    if Path(data).exists() or data not in CARDS:
        return {"source": Path(data), "client": client, "target": target, "features": columns}
    card = CARDS[data]
    return {
        "source": fetching.path(data),
        "client": client or card.client,
        "target": target or card.target,
        "features": columns or list(card.features),
    }


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",")]


def _check_folder(output: Path, names) -> None:
    """Raises where files of these names cannot be written to the folder, which need not exist yet."""
    if output.exists() and not output.is_dir():
        raise ValueError(f"output: {output} is a file; give the path of a folder")
    check_places(*(output / name for name in names))


class _Progress:
    """One line on stderr that tells what is being done, gone when it is over."""

    def __init__(self):
        from rich.console import Console

        self._console = Console(stderr=True)
        self._status: Any = self._console.status("reading")

    def __enter__(self):
        self._status.start()
        return self

    def __call__(self, row: dict) -> None:
        self.say(f"round {row['round']:.0f}, gradient norm {row['gradient_norm']:.1e}")

    def say(self, text: str) -> None:
        from rich.markup import escape

        self._status.update(escape(text))

    def __exit__(self, *error):
        self._status.stop()
