"""`maskedlark demo`: real services, a small population, a private report and model, what each party sees."""

import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from maskedlark.adserver.client import Client
from maskedlark.cli.acts import attacking, declaring, measuring, reporting, sights
from maskedlark.cli.acts import people as simulated
from maskedlark.cli.acts.people import People
from maskedlark.cli.plainly import plainly
from maskedlark.features import Encoder
from maskedlark.randomness import Randomness, SystemRandomness
from maskedlark.simulate.stage import stage


@plainly
def demo(
    users: Annotated[int, typer.Option(min=1500, max=100_000, help="How many people see an ad.")] = 3000,
    helpers: Annotated[int, typer.Option(min=2, max=8, help="How many helpers share every secret.")] = 2,
) -> None:
    """Follow a small population's reports through running services: measure, train, attack."""
    console, rng = Console(highlight=False), SystemRandomness()
    crowd = simulated.people(users)
    encoder = simulated.encoder(crowd)
    console.print(
        f"\n[bold]{users} people saw an ad, {crowd.bought.sum()} bought.[/] "
        "Their browsers know; nobody else will see what one of them did.\n"
    )
    settings = declaring.settings(encoder)
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder), settings, rng, helpers) as scene:
        declaring.act(console, scene)
        with scene.client() as client:
            reporting.act(console, scene, client, crowd, encoder)
            measuring.act(console, client, crowd)
            train(console, client, crowd, encoder, rng)
            measuring.receipts(console, scene, client)
        measured = sights.opened(scene, scene.document.measure)
        trained = sights.opened(scene, scene.document.declared_models[declaring.MODEL])
    sights.act(console, measured, trained, crowd, encoder)
    attacking.act(console, trained)


def train(console: Console, client: Client, crowd: People, encoder: Encoder, rng: Randomness) -> None:
    """The act that needs torch: left out, and said so, where that is not installed."""
    if find_spec("torch") is None:
        console.print("No model is trained: `pip install maskedlark\\[train]` brings what that needs.\n")
        return
    # By name: torch takes seconds to load, and nobody waits for it to read the help.
    import_module("maskedlark.cli.acts.training").act(console, client, crowd, encoder, rng)
