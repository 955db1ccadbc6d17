"""The application: how commands are found, and how bad input ends."""

import os
import sys
from typing import Annotated

import typer
from typer.core import TyperGroup

import accord

_TRACEBACK = "ACCORD_TRACEBACK"


class _Group(TyperGroup):
    """Commands whose bad input ends in one line and exit status 2.

    With ``ACCORD_TRACEBACK`` in the environment the traceback is shown instead.
    """

    def main(self, *args, standalone_mode=True, **options):
        try:
            code = super().main(*args, standalone_mode=False, **options)
        except typer.Abort:
            sys.exit(1)
        except Exception as error:
            told = getattr(error, "format_message", None)
            expected = told or isinstance(error, ValueError | TypeError | OSError)
            if _TRACEBACK in os.environ or not expected:
                raise
            line = " ".join(str(told() if told else error).split())
            typer.echo(f"accord: {line}", err=True)
            sys.exit(2)
        sys.exit(code if isinstance(code, int) else 0)


app = typer.Typer(cls=_Group, add_completion=False, pretty_exceptions_enable=False)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"accord {accord.__version__}")
        raise typer.Exit


@app.callback(
    invoke_without_command=True,
    epilog="Example: accord fit patients.csv --client hospital --target outcome",
)
def main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """One model from data that many holders keep, equal to the pooled fit; and the methods compared."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
