"""`maskedlark train` and `evaluate`: a training run from a TOML and a model file; how good the model is."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from maskedlark.cli import budget
from maskedlark.cli.error_handling import command, import_extra
from maskedlark.cli.fit import import_fitting
from maskedlark.cli.options import Json, MostEpsilon, Noise
from maskedlark.cli.output import print_result, said_if_slow
from maskedlark.errors import BadArguments
from maskedlark.fitting import recipe as fits
from maskedlark.ledger.receipt import Balance
from maskedlark.ledger.wording import both
from maskedlark.training import recipe as recipes
from maskedlark.training.client import Client
from maskedlark.training.errors import BadRun
from maskedlark.training.metrics import Measure

_MEASURES = ("auc", "log_loss", "accuracy", "squared_error", "bias")
Run = Annotated[Path, Argument(help="A TOML: model, loss, datasets, steps, cost and optimizer.")]
Either = Annotated[Path, Argument(help="The TOML that the model was fitted or trained with.")]
Part = Annotated[Literal["all", "held_out", "training"], Option(help="Which of the records count.")]
app = typer.Typer()


@command(app, "train run.toml --plan")
def train(
    run: Run,
    plan: Annotated[
        bool, Option("--plan", help="Say what it would cost and how noisy it would be; spend nothing.")
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
        document = training.sums.document
        remaining, figures = budget.left(client, document)
    balances: dict[str, Balance] = {name: each.balance for name, each in training.receipts.items()}
    charged = {name: each.model_dump() for name, each in balances.items()}
    line = f"{recipe.out}: trained {training.plan().steps} steps"
    if balances:
        charged_epsilon = max(each.charged_epsilon for each in balances.values())
        line += f"; charged ε = {both(charged_epsilon, training.plan().coalition_epsilon)}"
    fields = {"plan": training.plan().figures(), "out": str(recipe.out), "charged": charged, "left": figures}
    print_result(fields, as_json, line, remaining)


@command(app, "evaluate run.toml --epsilon 0.5")
def evaluate(
    run: Either,
    part: Part = "all",
    epsilon: MostEpsilon = None,
    noise: Noise = None,
    buckets: Annotated[int, Option(min=2, help="Of predicted scores.")] = 20,
    as_json: Json = False,
) -> None:
    """Ask the helpers how good a model is: AUC, log-loss, accuracy, with error bars."""
    recipe = fits.read(run) if fits.is_fit(run) else recipes.read(run)
    options: dict[str, Any] = {"datasets": recipe.datasets, "buckets": buckets}
    options |= {"epsilon": epsilon, "noise": noise}
    with said_if_slow("loading the model, asking the helpers"), Client.from_config(recipe.adserver) as client:
        if isinstance(recipe, fits.Recipe):
            if part != "all":
                raise BadArguments("a fit takes all records and holds none out: leave --part out")
            fitted = import_fitting("saving").load(recipe.out)
            evaluation = import_fitting("evaluating").evaluate(client, fitted, **options)
        else:
            predictor = _making().trained(recipe)
            held_out: dict[str, Any] = {"held_out": recipe.held_out} if part != "all" else {}
            evaluation = client.evaluate(predictor, part=part, **held_out, **options)
        remaining, figures = budget.left(client, evaluation.answered.document)
    balance = evaluation.answered.balance
    labels = [_measures(label) for label in evaluation.labels]
    fields = {"labels": labels, "balance": balance.model_dump(), "left": figures}
    print_result(fields, as_json, str(evaluation))
    if not as_json:
        typer.echo(f"charged ε = {balance.charged_epsilon:.4g} against everybody; {remaining}", err=True)


def _measures(label: object) -> dict[str, Any]:
    """The measures of such a label, for programs."""
    measures = {name: getattr(label, name, None) for name in _MEASURES}
    return {name: asdict(each) for name, each in measures.items() if isinstance(each, Measure)}


def _making() -> Any:  # noqa: ANN401 - a module
    return import_extra("maskedlark.training.from_recipe", "training", "extra `train`", BadRun)
