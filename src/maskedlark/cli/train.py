"""`maskedlark train`: a whole training run from a TOML and a model file."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from maskedlark.adserver.client import Client
from maskedlark.cli.plainly import plainly
from maskedlark.cli.saying import Json, say
from maskedlark.ledger.receipt import OpenedReceipt
from maskedlark.training import recipe as recipes
from maskedlark.training.errors import BadRun

EXAMPLE = "Example: maskedlark train run.toml --plan"
Run = Annotated[Path, typer.Argument(help="A TOML: model, loss, datasets, steps, cost and optimizer.")]
app = typer.Typer(add_completion=False)


@app.command("train", epilog=EXAMPLE)
@plainly
def train(
    run: Run,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what it would cost and how noisy it would be; spend nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a model on labels that nobody holds: shows the cost, trains, and saves it."""
    recipe = recipes.read(run)
    with Client.from_config(recipe.adserver) as client:
        training, steppers = making().training(recipe, client)
        if plan:
            say({"plan": training.plan().figures()}, as_json, str(training.plan()))
            return
        typer.echo(str(training.plan()), err=True)  # Before anything is charged.
        with training:
            for step in training:
                steppers[0].zero_grad()
                step.backward()
                for each in steppers:
                    each.step()
        training.save(recipe.out)
    receipts: dict[str, OpenedReceipt] = dict(training.receipts)
    said = {
        "plan": training.plan().figures(),
        "out": str(recipe.out),
        "charged": {name: each.balance.model_dump() for name, each in receipts.items()},
    }
    say(said, as_json, f"{recipe.out}: trained {training.plan().steps} steps{_left(receipts)}")


def making() -> Any:  # noqa: ANN401 - a module
    """What needs torch: loaded when it is needed."""
    try:
        return import_module("maskedlark.training.from_recipe")
    except ModuleNotFoundError as error:
        raise BadRun(f"training needs {error.name}: install maskedlark with its extra `train`") from None


def _left(receipts: dict[str, OpenedReceipt]) -> str:
    """What it cost, where most was charged, and what is left, where least is."""
    balances = [each.balance for each in receipts.values()]
    if not balances:
        return ""
    charged, left = (
        max(each.charged_epsilon for each in balances),
        min(each.left_epsilon for each in balances),
    )
    return f"; charged ε = {charged:.4g}, left {left:.4g}"
