"""`maskedlark audit`: attack what each party sees, and compare with what privacy allows."""

from importlib import import_module
from typing import Annotated, Any, Literal

import typer

from maskedlark.cli import interrupted
from maskedlark.cli.audits import finding
from maskedlark.cli.plainly import plainly
from maskedlark.cli.saying import Json
from maskedlark.errors import NotDeclared
from maskedlark.randomness import SystemRandomness

app = typer.Typer(
    name="audit",
    help="Attack what each party sees, and compare what was found with what privacy allows.",
    epilog="Example: maskedlark audit canaries\n\n"
    "Exits with 1 if more was found than is allowed, or so little that the attack is blind.",
    no_args_is_help=True,
)
Epsilon = Annotated[float, typer.Option(min=0.01, max=20, help="What is declared, and audited.")]
Canaries = Annotated[
    int,
    typer.Option(
        "--canaries", min=100, help="Records whose secret a coin chose. Too few are blind: the audit fails."
    ),
]


@app.command(epilog="Example: maskedlark audit masks --users 4000 --helpers 3")
@plainly
def masks(
    users: Annotated[int, typer.Option(min=400, help="Whose labels are attacked.")] = 1000,
    helpers: Annotated[int, typer.Option(min=2, max=8, help="How many share every secret.")] = 2,
    as_json: Json = False,
) -> None:
    """Do helpers, all but one together, read labels from their masks? Beside the paper's prototype."""
    found = _run(_audit("masks"), users, helpers)
    finding.show("masks", "advantage", found, as_json)


@app.command(epilog="Example: maskedlark audit canaries --canaries 20000 --releases 4 --kind gaussian")
@plainly
def canaries(
    count: Canaries = 8000,
    releases: Annotated[
        int, typer.Option(min=1, max=20, help="Each is one more trial of every canary.")
    ] = 10,
    # Laplace noise for more would be below the 0.1 that the audited document declares.
    epsilon: Annotated[
        float, typer.Option(min=0.01, max=10, help="Of one release: declared, audited.")
    ] = 1.0,
    kind: Annotated[Literal["laplace", "gaussian"], typer.Option(help="Of the noise.")] = "laplace",
    as_json: Json = False,
) -> None:
    """Do answers of real helpers keep to their ε? The ad server guesses canaries, also with a helper."""
    audit = _audit("canaries")
    if releases * epsilon > audit.MOST_EPSILON:
        raise typer.BadParameter(
            f"--releases times --epsilon is over {audit.MOST_EPSILON:g}, the most helpers take: lower either"
        )
    found = _run(audit, count, releases, epsilon, kind)
    finding.show("canaries", "ε", found, as_json)


@app.command(epilog="Example: maskedlark audit training --canaries 4000 --steps 16 --noise 1")
@plainly
def training(
    count: Canaries = 4000,
    rate: Annotated[float, typer.Option(min=0.01, max=1, help="Of the batches.")] = 0.25,
    steps: Annotated[int, typer.Option(min=1, max=500, help="Of the run.")] = 16,
    noise: Annotated[float, typer.Option(min=0.1, help="Of each helper, in units of the sensitivity.")] = 1.0,
    as_json: Json = False,
) -> None:
    """Does a training run at real helpers keep to both of its figures?

    The ad server guesses labels and who is in each batch, from the answers of each helper and their sum.
    """
    audited = _run(_audit("training"), count, rate, steps, noise)
    finding.show("training", "ε, or share of right guesses,", audited.findings, as_json, audited.figures)


@app.command(epilog="Example: maskedlark audit weights --records 2000 --targets 600 --epsilon 1")
@plainly
def weights(
    records: Annotated[int, typer.Option(min=100, help="Whose features the ad server knows.")] = 1000,
    targets: Annotated[int, typer.Option(min=50, max=2000, help="Whose labels it wants.")] = 300,
    epsilon: Epsilon = 1.0,
    steps: Annotated[int, typer.Option(min=1, max=100, help="Of one session.")] = 4,
    as_json: Json = False,
) -> None:
    """Do weights that fire on one record alone read its label? With noise, and without."""
    if targets > records:
        raise typer.BadParameter("there are more --targets than --records")
    found = _run(_audit("weights"), records, targets, epsilon, steps)
    finding.show("weights", "advantage", found, as_json)


def _audit(name: str) -> Any:  # noqa: ANN401 - a module
    """By name: some need torch or scikit-learn, which take seconds to load."""
    try:
        return import_module(f"maskedlark.cli.audits.{name}")
    except ModuleNotFoundError as error:
        raise NotDeclared(
            f"this audit needs {error.name}: install maskedlark with its extras `train` and `audit`"
        ) from None


def _run(audit: Any, *settings: object) -> Any:  # noqa: ANN401
    """What it found. The services that it starts end with it, however it ends."""
    with interrupted.in_order():
        return audit.run(*settings, SystemRandomness())
