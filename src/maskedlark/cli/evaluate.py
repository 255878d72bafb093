"""`maskedlark evaluate`: how good a trained model is, on labels that nobody holds."""

import json
from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

from maskedlark.cli.plainly import plainly
from maskedlark.cli.saying import Json
from maskedlark.cli.train import Run, making
from maskedlark.training import recipe as recipes
from maskedlark.training.client import Client
from maskedlark.training.metrics import Measure

EXAMPLE = "Example: maskedlark evaluate run.toml --part held_out --epsilon 0.5"
_MEASURES = ("auc", "log_loss", "accuracy", "squared_error", "bias")
app = typer.Typer(add_completion=False)


@app.command("evaluate", epilog=EXAMPLE)
@plainly
def evaluate(
    run: Run,
    part: Annotated[
        Literal["all", "held_out", "training"], typer.Option(help="Which of the records count.")
    ] = "all",
    epsilon: Annotated[float | None, typer.Option(min=0, help="The most that it may cost.")] = None,
    noise: Annotated[float | None, typer.Option(min=0, help="Or how much noise; else the least.")] = None,
    buckets: Annotated[int, typer.Option(min=2, help="Of predicted scores.")] = 20,
    as_json: Json = False,
) -> None:
    """Ask the helpers how good a trained model is: AUC, log-loss, accuracy, with error bars."""
    recipe = recipes.read(run)
    with Client.from_config(recipe.adserver) as client:
        document, _ = client.sealed_to_train(recipe.datasets)
        predictor = making().trained(recipe, document)
        options: dict[str, Any] = {"datasets": recipe.datasets, "part": part, "buckets": buckets}
        if part != "all":
            options["held_out"] = recipe.held_out
        found = client.evaluate(predictor, epsilon=epsilon, noise=noise, **options)
    balance = found.answered.balance
    if as_json:
        said = {"labels": [_measures(each) for each in found.labels], "balance": balance.model_dump()}
        typer.echo(json.dumps(said))
        return
    typer.echo(str(found))
    typer.echo(f"charged ε = {balance.charged_epsilon:.4g}, left {balance.left_epsilon:.4g}", err=True)


def _measures(label: Any) -> dict[str, Any]:  # noqa: ANN401 - any of the kinds of label
    found = {name: getattr(label, name, None) for name in _MEASURES}
    return {name: asdict(each) for name, each in found.items() if isinstance(each, Measure)}
