"""`maskedlark audit`: attack what each party sees, and compare with what privacy allows."""

from typing import Annotated, Any, Literal

import typer
from typer import Option

from maskedlark.cli import signals
from maskedlark.cli.audits.findings import show
from maskedlark.cli.error_handling import command, group, import_extra
from maskedlark.cli.options import Json
from maskedlark.errors import NotDeclared
from maskedlark.randomness import SystemRandomness

app = group(
    "audit",
    "canaries",
    "Exits with 1 if more was found than is allowed, or so little that the attack is blind.",
)
_CANARIES = "Records whose secret a coin chose. Too few are blind: the audit fails."
Canaries = Annotated[int, Option("--canaries", min=100, help=_CANARIES)]


@command(app, "masks --users 4000 --helpers 3")
def masks(
    users: Annotated[int, Option(min=400, help="Whose labels are attacked.")] = 1000,
    helpers: Annotated[int, Option(min=2, max=8, help="How many share every secret.")] = 2,
    as_json: Json = False,
) -> None:
    """Do helpers, all but one together, read labels from their masks? Beside the paper's prototype."""
    show("masks", "advantage", _run("mask_attacks", users, helpers), as_json)


@command(app, "canaries --canaries 20000 --releases 4 --kind gaussian")
def canaries(
    count: Canaries = 8000,
    releases: Annotated[int, Option(min=1, max=20, help="Each is one more trial of every canary.")] = 10,
    # A larger ε needs less Laplace noise than the 0.1 that the audited document declares.
    epsilon: Annotated[float, Option(min=0.01, max=10, help="Of one release: declared, audited.")] = 1.0,
    kind: Annotated[Literal["laplace", "gaussian"], Option(help="Of the noise.")] = "laplace",
    as_json: Json = False,
) -> None:
    """Do answers of real helpers keep to their ε? The ad server guesses canaries, also with a helper."""
    most = _audit("canaries").MAX_EPSILON
    if releases * epsilon > most:
        raise typer.BadParameter(
            f"--releases times --epsilon is over {most:g}, the most helpers take: lower either"
        )
    show("canaries", "ε", _run("canaries", count, releases, epsilon, kind), as_json)


@command(app, "training --canaries 4000 --steps 16 --noise 1")
def training(
    count: Canaries = 4000,
    rate: Annotated[float, Option(min=0.01, max=1, help="Of the batches.")] = 0.25,
    steps: Annotated[int, Option(min=1, max=500, help="Of the run.")] = 16,
    noise: Annotated[float, Option(min=0.1, help="Of each helper, in units of the sensitivity.")] = 1.0,
    as_json: Json = False,
) -> None:
    """Does a training run at real helpers keep to both of its figures?

    The ad server guesses labels and who is in each batch, from the answers of each helper and their sum.
    """
    findings, figures = _run("training", count, rate, steps, noise)
    show("training", "ε, or share of right guesses,", findings, as_json, **figures)


@command(app, "moments --canaries 4000 --labels 10 --kind laplace")
def moments(
    count: Canaries = 4000,
    labels: Annotated[int, Option(min=1, max=20, help="Of every canary: each is a trial.")] = 10,
    epsilon: Annotated[float, Option(min=0.01, max=5, help="Of one label: charged, audited.")] = 1.0,
    kind: Annotated[Literal["laplace", "gaussian"], Option(help="Of the noise.")] = "gaussian",
    as_json: Json = False,
) -> None:
    """Does one release of moments keep to its ε? The network is made so that each record is alone.

    The ad server guesses labels from the sums, from single helpers' answers, and with a helper.
    """
    figure = "ε, or share of right guesses,"
    show("moments", figure, _run("moments", count, labels, epsilon, kind), as_json)


@command(app, "weights --records 2000 --targets 600 --epsilon 1")
def weights(
    records: Annotated[int, Option(min=100, help="Whose features the ad server knows.")] = 1000,
    targets: Annotated[int, Option(min=50, max=2000, help="Whose labels it wants.")] = 300,
    epsilon: Annotated[float, Option(min=0.01, max=20, help="What is declared, and audited.")] = 1.0,
    steps: Annotated[int, Option(min=1, max=100, help="Of one session.")] = 4,
    as_json: Json = False,
) -> None:
    """Do weights that fire on one record alone read its label? With noise, and without."""
    if targets > records:
        raise typer.BadParameter("there are more --targets than --records")
    show("weights", "advantage", _run("weights", records, targets, epsilon, steps), as_json)


def _audit(name: str) -> Any:  # noqa: ANN401 - a module
    """Import an audit by name: some need torch or scikit-learn."""
    module = f"maskedlark.cli.audits.{name}"
    return import_extra(module, "this audit", "extras `train` and `audit`", NotDeclared)


def _run(name: str, *settings: object) -> Any:  # noqa: ANN401
    """Run an audit. The services that it starts always end with it."""
    audit = _audit(name)
    with signals.as_interrupts():
        return audit.run(*settings, SystemRandomness())
