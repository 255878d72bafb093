"""The `maskedlark` command, run by all parties. Each subcommand is imported only when it is run."""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

import maskedlark

_LIST = """\
demo: Follow a small population's reports through running services: measure, fit, train, attack.
parameters: Privacy settings that anyone can verify: make keys, draft, sign, publish, show, verify; serve.
helper: A helper opens reports, enforces privacy, answers with shares: set it up, rotate keys, run it.
adserver: An ad server takes reports that it cannot read: set it up, run it. To measure: datasets, query.
simulate: Try it on a table of your own: services start, each row's browser reports; then query, fit, train.
datasets: Reports that never change: select them, send them to all helpers, list, abort.
query: Ask the helpers for sums by group. Shows errors, intervals, the cost, and what is left.
fit: Fit a linear model to labels that nobody holds, from one release: shows the cost, and saves it.
predict: What a fitted model predicts for each row of a table: probabilities or values. Asks nobody.
train: Train a model on labels that nobody holds: shows the cost, trains, and saves it.
evaluate: Ask the helpers how good a model is: AUC, log-loss, accuracy, with error bars.
budget: What a source has cost, what spent it, and what is left of what. Asks for receipts, spends nothing.
audit: Attack what each party sees, and compare what was found with what privacy allows.
receipts: What helpers have answered, signed by them: anyone can fetch it and add up what it cost.
experiment: Repeat an experiment of the paper, or one of ours. Needs a clone of the repository.
bench: Measure how fast one part is. Needs a clone of the repository.
"""
_COMMANDS = dict(line.split(": ", 1) for line in _LIST.splitlines())
"""The short help of each command, in the order of use."""
_MODULES = {"predict": "fit", "experiment": "bench"}
"""Modules of commands that have another name."""
EXIT_CODES = (
    "Exit codes: 0 done; 1 refused: the line says what to do; 2 the command line is wrong; 3 the budget does "
    "not allow it; 4 a service is away or busy: try again later; 130 interrupted."
)


class _Commands(TyperGroup):
    """Commands, loaded by the names of their modules."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002
        """In the order of use."""
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002
        """A command with its short help only."""
        return TyperCommand(cmd_name, help=_COMMANDS[cmd_name]) if cmd_name in _COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """The command that is run, and the rest of its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else load(name), rest


def load(name: str) -> Any:  # noqa: ANN401
    """The full command: its module's group, or one of its commands."""
    group = get_group(import_module(f"{__name__}.{_MODULES.get(name, name)}").app)
    if group.name != name:
        return group.commands[name]
    group.help = _COMMANDS[name]
    return group


app = typer.Typer(
    name="maskedlark",
    cls=_Commands,
    help="Measure and train on what users did without anyone seeing what one user did.",
    epilog=f"Example: maskedlark demo\n\n{EXIT_CODES}",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals hold shares and labels
)


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
