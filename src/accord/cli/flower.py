"""``accord flower``: apps and keys for fits whose rows stay at the sites."""

from pathlib import Path
from typing import Annotated

import typer

from accord.cli.app import app

flower = typer.Typer(
    no_args_is_help=True, help="Fits over Flower, where rows stay at the sites (extra: flower)."
)
app.add_typer(flower, name="flower")


@flower.command(epilog="Example: accord flower init study --target outcome --model logistic")
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder for the Flower app.")],
    target: Annotated[str, typer.Option(help="The column to explain.")],
    model: Annotated[
        str | None,
        typer.Option(help="linear, logistic, softmax, poisson or huber; default: from the target."),
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="Columns that explain it, comma-separated; default: all.")
    ] = None,
    exclude: Annotated[str | None, typer.Option(help="Columns to leave out.")] = None,
    categorical: Annotated[str | None, typer.Option(help="Columns of codes.")] = None,
    missing: Annotated[
        str | None, typer.Option(help="Missing values: error, mean, drop or indicator.")
    ] = None,
    l1: Annotated[float | None, typer.Option(help="The weight of l1 ||w||_1.")] = None,
    l2: Annotated[float | None, typer.Option(help="The weight of (l2/2) ||w||^2.")] = None,
    method: Annotated[
        str | None, typer.Option(help="As PDMM or GPDMM:local_steps=5; default: fewest rounds.")
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="The sites without which nothing begins.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="The server's folder of results; default: in FOLDER.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="For simulations: a table, or a folder of one per site.")
    ] = None,
    client: Annotated[
        str | None, typer.Option(help="For simulations: the table's client column.")
    ] = None,
) -> None:
    """Write a Flower app that makes a joint fit, for flwr run in simulation and deployment."""
    from accord.flower.project import write_app

    written = write_app(
        folder, target=target, model=model, features=features, exclude=exclude,
        categorical=categorical, missing=missing, l1=l1, l2=l2, method=method, min_clients=clients,
        output=None if output is None else str(output.absolute()),
        data=None if data is None else str(data.absolute()), client=client,
    )  # fmt: skip
    for path in written:
        typer.echo(f"wrote {path}")
    typer.echo(f"next: read {folder}/README.md, then flwr run {folder} NAME --stream")
