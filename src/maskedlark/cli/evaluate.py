"""`maskedlark evaluate`: how good a model is, what that costs, and probabilities set right."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from maskedlark.cli import budget
from maskedlark.cli.error_handling import command, import_extra
from maskedlark.cli.fit import import_fitting, stored_model
from maskedlark.cli.options import Json, Noise
from maskedlark.cli.output import print_result, refuse_over_budget, said_if_slow
from maskedlark.errors import BadArguments
from maskedlark.features.table_file import read_table
from maskedlark.fitting import recipe as fits
from maskedlark.training import recipe as recipes
from maskedlark.training.client import Client
from maskedlark.training.errors import BadRun

Either = Annotated[Path, Argument(help="The TOML that the model was fitted or trained with.")]
Part = Annotated[
    Literal["all", "held_out", "training"],
    Option(help="Which of the records count; held_out: those that a run kept out of its batches."),
]
app = typer.Typer()


@command(app, "evaluate run.toml --plan")
def evaluate(
    run: Either,
    plan: Annotated[
        bool, Option("--plan", "--explain", help="Say what it would cost, and its error bars; spend nothing.")
    ] = False,
    part: Part = "all",
    epsilon: Annotated[
        float | None, Option(min=0, help="The most that it may cost; 0.5 unless said.", show_default="0.5")
    ] = None,
    noise: Noise = None,
    buckets: Annotated[
        int | None, Option(min=2, help="Of predicted scores; chosen without labels unless said.")
    ] = None,
    recalibrate: Annotated[
        bool, Option("--recalibrate", help="Set probabilities right by what was found, at no further cost.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Ask the helpers how good a model is: AUC, log-loss, accuracy, with error bars."""
    recipe = fits.read(run) if fits.is_fit(run) else recipes.read(run)
    options = {"datasets": recipe.datasets, "buckets": buckets, "epsilon": epsilon, "noise": noise}
    with said_if_slow("loading the model, asking the helpers"), Client.from_config(recipe.adserver) as client:
        model, asked = _evaluation(client, recipe, part, recalibrate, options)
        if recalibrate:
            _training("recalibrating").check(asked.network, asked.label)
        planned = asked.plan()
        if model.before is not None and not planned.is_answered:
            now = f"{recipe.out} was recalibrated: this asks about it as it is now"
            typer.echo(f"{now}; --recalibrate asks about it as it was, as before", err=True)
        if plan:
            print_result({"plan": planned.figures()}, as_json, f"{planned}. Nothing was spent")
            refuse_over_budget(planned.fits)
            return
        before = asked.is_answered()
        if not before:
            typer.echo(str(planned), err=True)  # Before anything is charged.
        evaluation = asked.ask()
        remaining, figures = budget.left(client, evaluation.answered.document)
    balance = evaluation.answered.balance
    fields: dict[str, Any] = {
        "labels": [_training("evaluation_plan").measures(label) for label in evaluation.labels],
        "balance": balance.model_dump(),
        "left": figures,
        "charged": not before,
    }
    lines = [str(evaluation)]
    if recalibrate:
        by = _recalibrated(recipe, model, evaluation)
        fields["recalibrated"] = [{"slope": each.slope, "intercept": each.intercept} for each in by]
        lines += [f"{recipe.out}: recalibrated, {each}; nothing more was charged" for each in by]
    print_result(fields, as_json, *lines)
    if not as_json:
        paid = f"ε = {balance.charged_epsilon:.4g} against everybody"
        paid = f"already evaluated: nothing was charged (it was {paid} then)" if before else f"charged {paid}"
        typer.echo(f"{paid}; {remaining}", err=True)


def _evaluation(
    client: Client,
    recipe: fits.Recipe | recipes.Recipe,
    part: Literal["all", "held_out", "training"],
    recalibrate: bool,
    options: dict[str, Any],
) -> tuple[Any, Any]:
    """The model, and what is asked about it. To recalibrate, it is asked about as fitted: the same again."""
    table = None if recipe.table is None else read_table(recipe.table)
    if isinstance(recipe, fits.Recipe):
        if part != "all":
            raise BadArguments("a fit takes all records and holds none out: leave --part out")
        model = stored_model(recipe.out)
        model = (recalibrate and model.before) or model
        return model, import_fitting("evaluating").evaluation(client, model, table, **options)
    model = _training("from_recipe").trained(recipe)
    model = (recalibrate and model.before) or model
    held_out = None if part == "all" else recipe.held_out
    return model, client.evaluation(model, table, part=part, held_out=held_out, **options)


def _recalibrated(recipe: fits.Recipe | recipes.Recipe, model: Any, evaluation: Any) -> list[Any]:  # noqa: ANN401
    """Save the model with intercept and slope set right; what was changed, label by label."""
    if isinstance(recipe, fits.Recipe):
        import_fitting("saving").save(
            import_fitting("evaluating").recalibrated(model, evaluation), recipe.out
        )
    else:
        evaluation.recalibrated(model).save(recipe.out)
    changed: list[Any] = _training("recalibrating").of_labels(evaluation.labels)
    return changed


def _training(name: str) -> Any:  # noqa: ANN401 - a module
    return import_extra(f"maskedlark.training.{name}", "training", "extra `train`", BadRun)
