"""`maskedlark train`: a training run from a TOML and a model file."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from maskedlark.cli.error_handling import command, import_extra
from maskedlark.cli.options import Json
from maskedlark.cli.output import print_result
from maskedlark.ledger.receipt import Balance
from maskedlark.training import recipe as recipes
from maskedlark.training.client import Client
from maskedlark.training.errors import BadRun

Run = Annotated[Path, Argument(help="A TOML: model, loss, datasets, steps, cost and optimizer.")]
app = typer.Typer()


@command(app, "train run.toml --plan")
def train(
    run: Run,
    plan: Annotated[
        bool, Option("--plan", help="Say what it would cost and how noisy it would be; spend nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a model on labels that nobody holds: shows the cost, trains, and saves it."""
    recipe = recipes.read(run)
    with Client.from_config(recipe.adserver) as client:
        training, steppers = _making().training(recipe, client)
        if plan:
            print_result({"plan": training.plan().figures()}, as_json, str(training.plan()))
            return
        typer.echo(str(training.plan()), err=True)  # Before anything is charged.
        with training:
            for step in training:
                steppers[0].zero_grad()
                step.backward()
                for each in steppers:
                    each.step()
        training.save(recipe.out)
    balances: dict[str, Balance] = {name: each.balance for name, each in training.receipts.items()}
    charged = {name: each.model_dump() for name, each in balances.items()}
    line = f"{recipe.out}: trained {training.plan().steps} steps"
    if balances:
        # The largest charge and the smallest remainder of all helpers.
        line += f"; charged ε = {max(each.charged_epsilon for each in balances.values()):.4g}"
        line += f", left {min(each.left_epsilon for each in balances.values()):.4g}"
    fields = {"plan": training.plan().figures(), "out": str(recipe.out), "charged": charged}
    print_result(fields, as_json, line)


def _making() -> Any:  # noqa: ANN401 - a module
    return import_extra("maskedlark.training.from_recipe", "training", "extra `train`", BadRun)
