"""`maskedlark fit` and `predict`: a linear model from one release that a TOML describes; what it predicts."""

import bz2
import gzip
import lzma
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from typer import Argument, Option

from maskedlark.adserver.client import Client
from maskedlark.cli import budget
from maskedlark.cli.error_handling import command, import_extra
from maskedlark.cli.options import Json
from maskedlark.cli.output import print_result, refuse_over_budget, said_if_slow
from maskedlark.errors import BadArguments
from maskedlark.features import Encoder, csv_file
from maskedlark.features import table as tables
from maskedlark.features.column import Column
from maskedlark.features.table_file import read_table
from maskedlark.fitting import recipe as recipes
from maskedlark.training.errors import BadRun
from maskedlark.web import files

_CLASSES = {"logistic": "LogisticRegression", "linear": "LinearRegression", "poisson": "PoissonRegressor"}
KEPT = (
    "It was recalibrated since, and stays so; to have it as it was, delete the file and type the same again"
)
_WRITTEN: dict[str, Callable[[bytes], bytes]] = {
    **dict.fromkeys(("", ".csv", ".txt"), bytes),
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
"""How predictions are written, by the ending of the file's name."""
_SHOWN = 8
"""So many coefficients are printed; the file and `--json` have all."""
Run = Annotated[Path, Argument(help="A TOML: model, table and encoder of the features, datasets and cost.")]
app = typer.Typer()


@command(app, "fit run.toml --explain")
def fit(
    run: Run,
    explain: Annotated[
        bool,
        Option("--explain", "--plan", help="Say what it would cost and how good it would be; spend nothing."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Fit a linear model to labels that nobody holds, from one release: shows the cost, and saves it."""
    recipe = recipes.read(run)
    encoder, table = Encoder.load(recipe.encoder), read_table(recipe.table)
    with (
        said_if_slow("choosing a map without labels") as begin,
        Client.from_config(recipe.adserver) as client,
    ):
        estimator = getattr(import_fitting("estimators"), _CLASSES[recipe.model])
        model = estimator(client, encoder=encoder, **recipe.fitting)
        model.on_stage = begin
        if explain:
            plan = model.plan(table)
            print_result({"plan": plan.figures()}, as_json, str(plan))
            refuse_over_budget(plan.fits)
            return
        first = client.frozen_to_train(recipe.datasets)[0].helpers[0].name
        before = client.receipts(first)
        # Of rows and records that differ in number, and of no intervals: both are printed anyway.
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            model.fit(table)
        for each in warned:
            if issubclass(each.category, import_fitting("fit").ConvergenceWarning):
                typer.echo(str(each.message), err=True)
        kept = import_fitting("saving").is_recalibrated(recipe.out, model.model_)
        if not kept:
            model.save(recipe.out)
        remaining, figures = budget.left(client, model.answered_.document)
    paid = model.answered_.balance
    charged = not any(model.answered_.request in each.receipt for each in before)
    line = f"charged ε = {paid.charged_epsilon:.4g} against everybody"
    if not charged:
        paid_then = f"ε = {paid.charged_epsilon:.4g} against everybody"
        line = f"already fitted: nothing was charged (it was {paid_then} then)"
    fields = {
        "out": str(recipe.out),
        "recalibrated": kept,
        "charged": charged,
        "balance": paid.model_dump(),
        "left": figures,
        "noise": model.answered_.noise,
        "map": model.map_.kind,
        "clip": model.clip_,
        "rows": model.rows_,
        "records": model.records_,
        "real_records": model.real_records_,
        "coefficients": _coefficients(model.model_),
    }
    lines = [f"{recipe.out}: {line}", *([KEPT] if kept else []), remaining]
    lines += _lines(model, fields["coefficients"])
    print_result(fields, as_json, *lines)


def _coefficients(fitted: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - a FittedModel, of an extra
    """The intercept of every output, then all coefficients, the strongest first, with 95 % intervals."""
    values = np.concatenate([fitted.coefficients, fitted.intercept[:, None]], axis=1)
    named, limits = [*fitted.names, "intercept"], fitted.intervals().reshape(-1, 2)
    strengths = np.abs(values)
    strengths[:, -1] = np.inf
    rows = []
    for place in np.argsort(-strengths, axis=None, kind="stable").tolist():
        output, name = divmod(place, len(named))
        # JSON has no NaN: a model of very many coefficients has no intervals, nor one without a solution.
        low, high = (None if math.isnan(end) else end for end in limits[place].tolist())
        row = {"output": output, "name": named[name], "value": float(values[output, name])}
        rows.append(row | {"low": low, "high": high})
    return rows


def _lines(model: Any, coefficients: list[dict[str, Any]]) -> Iterator[str]:  # noqa: ANN401
    """For readers: the strongest coefficients, and how many rows are missing."""
    outputs, count = len(model.model_.intercept), model.model_.coefficients.size
    yield f"Strongest of {count} coefficients (columns go from 0 to 1), with 95 % intervals:"
    for row in coefficients[outputs:][:_SHOWN]:
        of = f"{row['name']}, class {row['output']}" if outputs > 1 else row["name"]
        limits = "no interval" if row["low"] is None else f"{row['low']:+.3f} … {row['high']:+.3f}"
        yield f"  {row['value']:+8.3f}  {limits}  {of}"
    yield model.mismatch_


@command(app, "predict model.json people.csv --out scores.csv")
def predict(
    model: Annotated[Path, Argument(help="Saved by `maskedlark fit`.")],
    table: Annotated[Path, Argument(help="CSV or Parquet with the columns that the model's encoder knows.")],
    out: Annotated[
        Path, Option(help="The CSV, or .csv.gz, to write: the same rows, with what is predicted.")
    ],
    as_json: Json = False,
) -> None:
    """What a fitted model predicts for each row of a table: probabilities or values. Asks nobody."""
    compress = _WRITTEN.get(out.suffix.lower())
    if compress is None:  # Before anything is computed.
        raise BadArguments(f"{out}: predictions are written as CSV; name it .csv, or .csv.gz to compress it")
    fitted, rows = stored_model(model), tables.by_name(read_table(table))
    predicted = fitted.family.mean(fitted.scores(rows))  # Of a label that is 0 or 1, the probability of 1.
    outputs = range(len(fitted.theta))
    names = ["predicted"] if len(outputs) == 1 else [f"class {place}" for place in outputs]
    named = dict(zip(names, predicted.T, strict=True))
    written = [Column.of(name, cells) for name, cells in {**rows, **named}.items()]
    files.write(out, compress(csv_file.to_csv(written).encode()))
    print_result(
        {"out": str(out), "rows": len(predicted)}, as_json, f"{out}: {len(predicted)} rows predicted"
    )


def stored_model(model: Path) -> Any:  # noqa: ANN401 - a FittedModel, of an extra
    """A model that was fitted."""
    if not model.exists():
        raise BadRun(f"{model} is not there yet: `maskedlark fit` makes it, where its TOML says (out)")
    return import_fitting("saving").load(model)


def import_fitting(name: str) -> Any:  # noqa: ANN401 - a module
    """A module of `maskedlark.fitting`, when it is needed."""
    return import_extra(f"maskedlark.fitting.{name}", "fitting", "extra `train`", BadRun)
