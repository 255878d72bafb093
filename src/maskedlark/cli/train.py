"""`maskedlark train`: a training run from a TOML and a model file."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from maskedlark.cli import budget
from maskedlark.cli.error_handling import command, import_extra
from maskedlark.cli.fit import KEPT
from maskedlark.cli.options import Json
from maskedlark.cli.output import print_result, said_if_slow
from maskedlark.ledger.receipt import Balance
from maskedlark.ledger.wording import both
from maskedlark.training import recipe as recipes
from maskedlark.training.client import Client
from maskedlark.training.errors import BadRun

Run = Annotated[Path, Argument(help="A TOML: model, loss, datasets, steps, cost and optimizer.")]
app = typer.Typer()


@command(app, "train run.toml --plan")
def train(
    run: Run,
    plan: Annotated[
        bool,
        Option(
            "--plan", "--explain", help="Say what it would cost and how noisy it would be; spend nothing."
        ),
    ] = False,
    delta: Annotated[
        float | None, Option(min=0, help="Its part of the model's δ, instead of the recipe's.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a model on labels that nobody holds: shows the cost, trains, and saves it."""
    recipe = recipes.read(run)
    if delta is not None:
        recipe = recipe.model_copy(update={"delta": delta})
    with Client.from_config(recipe.adserver) as client:
        with said_if_slow("loading the model and the rows, planning"):
            training, steppers = _making().training(recipe, client)
            planned, before = str(training.plan()), training.was_charged
            trial = _making().tried(recipe, training)
        planned = "\n".join([planned, *trial.lines()])
        if before:
            planned += "\nThis run was begun before, and charged then: it carries on, and costs nothing more"
        if plan:
            remaining, figures = budget.left(client, training.sums.document)
            fields = {
                "plan": training.plan().figures(),
                "trial": trial.figures(),
                "was_charged": before,
                "left": figures,
            }
            print_result(fields, as_json, f"{planned}\nNow {remaining}. Nothing was spent")
            return
        typer.echo(planned, err=True)  # Before anything is charged.
        steps = 0
        try:
            with training:
                for step in training:
                    steppers[0].zero_grad()
                    step.backward()
                    for each in steppers:
                        each.step()
                    steps += 1
        except KeyboardInterrupt:
            if recipe.folder is not None and training.receipts:
                typer.echo(
                    "The run is charged already: the same command carries on, and costs nothing more",
                    err=True,
                )
            raise
        kept = _making().is_recalibrated(recipe, training.model)
        if not kept:
            training.save(recipe.out)
        document = training.sums.document
        remaining, figures = budget.left(client, document)
    balances: dict[str, Balance] = {name: each.balance for name, each in training.receipts.items()}
    charged = {name: each.model_dump() for name, each in balances.items()}
    line = f"{recipe.out}: {'' if steps else 'already '}trained {training.plan().steps} steps"
    if balances:
        epsilon = max(each.charged_epsilon for each in balances.values())
        paid = f"ε = {both(epsilon, training.plan().coalition_epsilon)}"
        line += f"; nothing was charged (it was {paid} then)" if before else f"; charged {paid}"
    line += f". {KEPT}" if kept else ""
    fields = {
        "plan": training.plan().figures(),
        "recalibrated": kept,
        "out": str(recipe.out),
        "charged": charged,
        "was_charged": before,
        "left": figures,
    }
    print_result(fields, as_json, line, remaining)


def _making() -> Any:  # noqa: ANN401 - a module
    return import_extra("maskedlark.training.from_recipe", "training", "extra `train`", BadRun)
