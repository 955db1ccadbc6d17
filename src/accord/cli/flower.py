"""``accord flower``: apps and keys for fits whose rows stay at the sites."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from accord.cli.app import app

flower = typer.Typer(
    no_args_is_help=True, help="Fits over Flower, where rows stay at the sites (extra: flower)."
)
app.add_typer(flower, name="flower")


def _check_extra() -> None:
    """Refuses in one line where the extra is not installed."""
    try:
        import accord.flower  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "flwr":
            raise
        raise OSError(str(error)) from None


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
    _check_extra()
    from accord.flower.project import write_app

    written = write_app(
        folder, target=target, model=model, features=features, exclude=exclude,
        categorical=categorical, missing=missing, l1=l1, l2=l2, method=method, min_clients=clients,
        output=None if output is None else str(output.absolute()),
        data=None if data is None else str(data.absolute()), client=client,
    )  # fmt: skip
    for path in written:
        typer.echo(f"wrote {path}")
    place = shlex.quote(str(folder))
    typer.echo(f"next: read {place}/README.md, then flwr run {place} NAME --stream")


@flower.command(epilog="Example: accord flower certificates keys --nodes north,south,east")
def certificates(
    folder: Annotated[Path, typer.Argument(help="The folder for the keys.")],
    nodes: Annotated[
        str, typer.Option(help="The SuperNodes, with commas between; each gets a pair of keys.")
    ] = "site-1,site-2,site-3",
    hosts: Annotated[
        str, typer.Option(help="The server's addresses and names, with commas between.")
    ] = "127.0.0.1,localhost",
    days: Annotated[int, typer.Option(help="The days from now on for which it holds.")] = 365,
) -> None:
    """Make a test set of keys for TLS and SuperNode authentication, without internet."""
    _check_extra()
    from accord.flower.certificates import write_certificates

    names, places = ([part.strip() for part in text.split(",")] for text in (nodes, hosts))
    made = write_certificates(folder, names, places, days)
    for path in made[:4]:
        typer.echo(f"wrote {path}")
    for private in made.nodes.values():
        typer.echo(f"wrote {private}")
        typer.echo(f"wrote {private}.pub")
