"""The `maskedlark` command."""

from typing import Annotated

import typer

import maskedlark
from maskedlark.cli import datasets, helper, parameters, receipts
from maskedlark.cli.demo import demo
from maskedlark.cli.query import EXAMPLE, query

app = typer.Typer(
    name="maskedlark",
    help="Measure and train on what users did without anyone seeing what one user did.",
    epilog="Example: maskedlark demo",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals hold shares and labels
)
app.add_typer(parameters.app)
app.add_typer(helper.app)
app.add_typer(datasets.app)
app.add_typer(receipts.app)
app.command(epilog=EXAMPLE)(query)
app.command(epilog="Example: maskedlark demo --users 5000 --helpers 3")(demo)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"maskedlark {maskedlark.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Measure and train on what users did without anyone seeing what one user did."""
