"""`maskedlark demo`: real services, a small population, a private report and model, what each party sees."""

import json
import tempfile
import time
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

import maskedlark
from maskedlark.cli import interrupted
from maskedlark.cli.acts import attacking, declaring, measuring, reporting, sights
from maskedlark.cli.acts import people as simulated
from maskedlark.cli.acts.found import Found, Model
from maskedlark.cli.acts.people import People
from maskedlark.cli.page import whole
from maskedlark.cli.plainly import plainly
from maskedlark.features import Encoder
from maskedlark.randomness import Randomness, SystemRandomness
from maskedlark.simulate.stage import stage
from maskedlark.training.client import Client


@plainly
def demo(
    users: Annotated[int, typer.Option(min=1500, max=100_000, help="How many people see an ad.")] = 3000,
    helpers: Annotated[int, typer.Option(min=2, max=8, help="How many helpers share every secret.")] = 2,
    page: Annotated[
        Path, typer.Option(dir_okay=False, help="Where to write the page with the plots; replaced if there.")
    ] = Path("maskedlark-demo.html"),
    as_json: Annotated[
        bool, typer.Option("--json", help="For programs: one JSON object; all else to standard error.")
    ] = False,
) -> None:
    """Follow a small population's reports through running services: measure, train, attack."""
    check_writable(page)
    console = Console(highlight=False, stderr=as_json)
    with interrupted.in_order():
        found = play(console, users, helpers, SystemRandomness())
    whole.write(page, found)
    console.print(f"The page with the plots: [bold]{link(page)}[/]. Open it in a browser.\n", soft_wrap=True)
    if as_json:
        typer.echo(json.dumps({**asdict(found), "page": str(page)}, ensure_ascii=False))


def check_writable(page: Path) -> None:
    """Refuse, before anything is played, a page that could not be written in the end."""
    if not page.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {page.parent} to write the page in: make it first")
    try:
        # Tried, not asked: permissions do not say that a disk is mounted to be read only.
        with page.open("ab") if page.exists() else tempfile.TemporaryFile(dir=page.absolute().parent):
            pass
    except OSError as error:
        raise typer.BadParameter(
            f"{page} cannot be written ({error.strerror}): choose another with --page"
        ) from None


def link(page: Path) -> str:
    """The page as rich shows it: its name may look like markup, and is none."""
    return f"[link={page.absolute().as_uri()}]{escape(str(page))}[/link]"


def play(console: Console, users: int, helpers: int, rng: Randomness) -> Found:
    """All acts. What they start is stopped when this returns, however it does."""
    start, crowd = time.perf_counter(), simulated.people(users)
    encoder = simulated.encoder(crowd)
    console.print(
        f"\n[bold]{users} people saw an ad, {crowd.bought.sum()} bought.[/] "
        "Their browsers know; nobody else will see what one of them did.\n"
    )
    settings = declaring.settings(encoder)
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder), settings, rng, helpers) as scene:
        declaring.act(console, scene)
        with scene.client() as client:
            sent = reporting.act(console, scene, client, crowd, encoder)
            report = measuring.act(console, client, crowd)
            model = train(console, client, crowd, encoder, rng)
            receipts = measuring.receipts(console, scene, client)
        measured = sights.opened(scene, scene.document.measure)
        trained = sights.opened(scene, scene.document.declared_models[declaring.MODEL])
    return Found(
        version=maskedlark.__version__,
        users=users,
        bought=int(crowd.bought.sum()),
        helpers=helpers,
        origin=scene.origin,
        fake_rate=scene.document.fake_rate,
        sent=sent,
        report=report,
        model=model,
        receipts=receipts,
        sights=sights.act(console, measured, trained, crowd, encoder),
        attacks=attacking.act(console, trained),
        seconds=time.perf_counter() - start,
    )


def train(console: Console, client: Client, crowd: People, encoder: Encoder, rng: Randomness) -> Model | None:
    """The act that needs torch: left out, and said so, where that is not installed."""
    if find_spec("torch") is None:
        console.print("No model is trained: `pip install maskedlark\\[train]` brings what that needs.\n")
        return None
    # By name: torch takes seconds to load, and nobody waits for it to read the help.
    found: Model = import_module("maskedlark.cli.acts.training").act(console, client, crowd, encoder, rng)
    return found
