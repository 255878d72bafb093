"""`maskedlark simulate`: the whole workflow on a table of one's own, with real services that stay up."""

import ctypes
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from typer import Argument, Option

from maskedlark.cli import signals
from maskedlark.cli.error_handling import command
from maskedlark.cli.options import HelperCount, Several, Text
from maskedlark.cli.output import print_result
from maskedlark.features.encoder import Encoder
from maskedlark.features.kind_text import FORMS, typed_kind
from maskedlark.features.kinds import Kind
from maskedlark.parameters.policy import against_coalition
from maskedlark.simulate import simulation
from maskedlark.simulate.drafts import RECIPE, TRAIN_RECIPE
from maskedlark.simulate.errors import BadSimulation
from maskedlark.simulate.simulation import Simulation
from maskedlark.web.errors import ServiceAway

_LOOK_S = 0.5
_M_ARENA_MAX = -8
"""An option of glibc's `mallopt`."""
app = typer.Typer()


@command(
    app,
    "simulate people.csv --folder play --key campaign --value bought=0..1 --value euros=0..200 "
    "--label bought --leave-out id",
)
def simulate(
    table: Annotated[
        Path,
        Argument(help="CSV, also compressed, or Parquet: a person a row, columns named in the first line."),
    ],
    folder: Annotated[Path, Option(help="Where everything is kept.")] = Path("play"),
    key: Annotated[Several, Option(help="A column to count by, which helpers read. Repeat for more.")] = None,
    value: Annotated[
        Several, Option(help="NAME=LOW..HIGH: a column to add up, bounds in public. Repeat.")
    ] = None,
    label: Annotated[Text, Option(help="The column to train on: 0 or 1, true or false.")] = None,
    features: Annotated[
        Several, Option(help="Columns a model gets, as in a,b,c; else all but secrets, dates and ids.")
    ] = None,
    leave_out: Annotated[Several, Option(help="Columns that are no features, as in a,b,c.")] = None,
    kind: Annotated[
        Several, Option(help=f"COLUMN=KIND: how a feature becomes bytes: {FORMS}. Repeat.")
    ] = None,
    encoder: Annotated[
        Path | None, Option(help="An encoder of your own, as JSON, in place of kinds.")
    ] = None,
    drop_unlabelled: Annotated[
        bool, Option("--drop-unlabelled", help="Leave out rows without a label, else refused.")
    ] = False,
    tag: Annotated[str, Option(help="The model's name in the document.")] = simulation.TAG,
    helpers: HelperCount = 2,
    k: Annotated[
        int | None, Option(min=1, help="The fewest records of a group; else 100, or a tenth of few.")
    ] = None,
    epsilon: Annotated[
        float, Option(min=0, help="What one person may cost, in all that is ever asked.")
    ] = simulation.EPSILON,
    delta: Annotated[
        float | None, Option(min=0, help="The δ of all that; half of it is for training. Else 2e-05 or less.")
    ] = None,
    fakes: Annotated[
        float, Option(min=0, max=1, help="How many people's browsers send a fake too.")
    ] = simulation.FAKE_RATE,
    psi: Annotated[
        float | None, Option(min=0, help="The bound on a gradient; else from the rows' length.")
    ] = None,
    centre: Annotated[
        bool,
        Option(
            "--centre", help="Draft a model that centres its rows: less noise beside them; far more to send."
        ),
    ] = False,
    processes: Annotated[int, Option(min=1, help="That make reports.")] = 2,
    as_json: Annotated[
        bool, Option("--json", help="For programs: one JSON object, once it is ready.")
    ] = False,
) -> None:
    """Try it on a table of your own: services start, each row's browser reports; then query, fit, train."""
    _one_arena()
    with (
        signals.as_interrupts(),
        simulation.start(
            table,
            folder,
            keys=_listed(key),
            values=dict(map(_bounds, value or [])),
            label=label,
            tag=tag,
            features=_listed(features) if features else None,
            leave_out=_listed(leave_out),
            kinds=dict(map(_kind, kind or [])),
            encoder=None if encoder is None else Encoder.load(encoder),
            drop_unlabelled=drop_unlabelled,
            helpers=helpers,
            k=k,
            epsilon=epsilon,
            delta=delta,
            fake_rate=fakes,
            psi=psi,
            centre=centre,
            processes=processes,
            say=lambda line: typer.echo(line, err=True),
        ) as started,
    ):
        print_result(_fields(started), as_json, *hints(started, folder))
        _wait(started)


def _one_arena() -> None:
    """Have all threads allocate from one arena: glibc keeps what each of them freed, a third of all here."""
    with suppress(AttributeError):  # Of systems without glibc.
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def _wait(started: Simulation) -> None:
    """Wait until it is stopped, or a service ends by itself."""
    try:
        while not (ended := started.cluster.ended()):
            time.sleep(_LOOK_S)
    except KeyboardInterrupt as error:
        typer.echo("stopped; the same command carries on from here", err=True)
        raise typer.Exit(signals.exit_code(error)) from None
    raise ServiceAway(f"{ended[0]} has ended: what it said is above; run the same command again")


def _listed(texts: Several) -> list[str]:
    """Names, comma-separated or repeated."""
    return [name for text in texts or [] for name in text.split(",") if name]


def _bounds(text: str) -> tuple[str, tuple[int, int]]:
    name, _, bounds = text.partition("=")
    low, _, high = bounds.partition("..")
    try:
        return name, (int(low), int(high))
    except ValueError:
        raise BadSimulation(
            f"--value {text}: say its bounds, whole numbers that all may know: --value {name}=0..100"
        ) from None


def _kind(text: str) -> tuple[str, Kind]:
    name, equals, kind = text.partition("=")
    if not equals:
        raise BadSimulation(f"--kind {text}: say which column and how, as in --kind {name}=hashed:64")
    return name, typed_kind(kind)


def _fields(started: Simulation) -> dict[str, Any]:
    """For programs."""
    document, training = started.document, started.document.training
    return {
        "folder": str(started.folder),
        "config": str(started.config),
        "recipe": str(started.folder / RECIPE) if started.encoder else None,
        "train_recipe": str(started.folder / TRAIN_RECIPE) if started.encoder else None,
        "datasets": {purpose.value: each.name for purpose, each in started.frozen.items()},
        "records": {purpose.value: each.records for purpose, each in started.frozen.items()},
        "adserver": started.cluster.adserver.address,
        "parameter_service": started.cluster.service.address,
        "helpers": {each.name: each.process.address for each in started.cluster.helpers},
        "k": document.k,
        "budget_epsilon": document.budget.epsilon,
        "budget_coalition_epsilon": against_coalition(document).epsilon,
        "training_epsilon": training.adserver.epsilon if training else None,
        "training_coalition_epsilon": training.coalition.epsilon if training else None,
    }


def hints(started: Simulation, folder: Path) -> Iterator[str]:
    """What is running, and what to type in another terminal."""
    frozen = ", ".join(f"{each.records} records in {each.name!r}" for each in started.frozen.values())
    yield f"Ready: a parameter service, an ad server and {len(started.cluster.helpers)} helpers are running."
    yield f"Frozen at every helper: {frozen}, fakes among them. Next, in another terminal:\n"
    document = started.document
    recipe, steps = (quote(str(folder / name)) for name in (RECIPE, TRAIN_RECIPE))
    if document.values:
        by = f" --group-by {quote(document.keys[0])}" if document.keys else ""
        named = " ".join(f"--value {quote(each.name)}" for each in document.values)
        query = f"  maskedlark query --config {quote(str(folder / started.config.name))}{by} {named}"
        yield from (f"{query} --explain", query)
    if started.encoder:
        yield from (f"  maskedlark fit {recipe} --explain", f"  maskedlark fit {recipe}")
        yield from (f"  maskedlark evaluate {recipe} --plan", f"  maskedlark evaluate {recipe}")
        yield "\nOr any PyTorch model, by private gradients:\n"
        yield from (f"  maskedlark train {steps} --plan", f"  maskedlark train {steps}")
        yield f"  maskedlark evaluate {steps} --recalibrate"
    yield "\nCtrl-C stops all of it; the same command carries on, and nobody reports twice."
