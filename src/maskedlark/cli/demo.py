"""`maskedlark demo`: real services, a small population, a private report and model, what each party sees."""

import tempfile
import time
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from typer import Option

import maskedlark
from maskedlark.cli import page as pages
from maskedlark.cli import signals
from maskedlark.cli.demo_steps import measuring, party_views, reporting
from maskedlark.cli.demo_steps import people as simulated
from maskedlark.cli.demo_steps.people import People
from maskedlark.cli.demo_steps.results import DemoResults, Model
from maskedlark.cli.error_handling import command
from maskedlark.cli.options import HelperCount
from maskedlark.cli.output import Screen, print_result
from maskedlark.features import Encoder
from maskedlark.randomness import Randomness, SystemRandomness
from maskedlark.simulate.cluster import local_cluster
from maskedlark.training.client import Client

app = typer.Typer()


@command(app, "demo --users 5000 --helpers 3")
def demo(
    users: Annotated[int, Option(min=1500, max=100_000, help="How many people see an ad.")] = 3000,
    helpers: HelperCount = 2,
    page: Annotated[
        Path, Option(dir_okay=False, help="Where to write the page with the plots; replaced if there.")
    ] = Path("maskedlark-demo.html"),
    as_json: Annotated[
        bool, Option("--json", help="For programs: one JSON object; all else to standard error.")
    ] = False,
) -> None:
    """Follow a small population's reports through running services: measure, fit, train, attack."""
    check_writable(page)
    console = Screen(highlight=False, stderr=as_json)
    with signals.as_interrupts():
        results = run(console, users, helpers, SystemRandomness())
    pages.write(page, results)
    console.print(f"The page with the plots: [bold]{link(page)}[/]. Open it in a browser.\n", soft_wrap=True)
    print_result({**asdict(results), "page": str(page)}, as_json)


def check_writable(page: Path) -> None:
    """Refuse an unwritable page before anything is started."""
    if not page.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {page.parent} to write the page in: make it first")
    try:
        # Tried, because permissions do not show a read-only mount.
        with page.open("ab") if page.exists() else tempfile.TemporaryFile(dir=page.absolute().parent):
            pass
    except OSError as error:
        raise typer.BadParameter(
            f"{page} cannot be written ({error.strerror}): choose another with --page"
        ) from None


def link(page: Path) -> str:
    """A link to the page for rich, escaped because its name may look like markup."""
    return f"[link={page.absolute().as_uri()}]{escape(str(page))}[/link]"


def run(console: Screen, users: int, helpers: int, rng: Randomness) -> DemoResults:
    """Run all steps. What they start is always stopped."""
    start, crowd = time.perf_counter(), simulated.people(users)
    encoder = simulated.encoder(crowd)
    console.print()
    console.say(f"""[bold]{users} people saw an ad, {crowd.bought.sum()} bought.[/] Their browsers know;
        nobody else will see what one of them did.""")
    with (
        tempfile.TemporaryDirectory() as folder,
        local_cluster(Path(folder), reporting.settings(encoder), rng, helpers) as cluster,
        cluster.client() as client,
    ):
        sent = reporting.run(console, cluster, client, crowd, encoder)
        report = measuring.run(console, client, crowd)
        model = train(console, client, crowd, encoder, rng)
        receipts = measuring.receipts(console, cluster, client)
        measured = party_views.opened(cluster, cluster.document.measure)
        trained = party_views.opened(cluster, cluster.document.declared_models[reporting.MODEL])
    return DemoResults(
        version=maskedlark.__version__,
        users=users,
        bought=int(crowd.bought.sum()),
        helpers=helpers,
        origin=cluster.origin,
        fake_rate=cluster.document.fake_rate,
        sent=sent,
        report=report,
        model=model,
        receipts=receipts,
        party_views=party_views.run(console, measured, trained, crowd, encoder),
        attacks=party_views.attack(console, trained),
        seconds=time.perf_counter() - start,
    )


def train(console: Screen, client: Client, crowd: People, encoder: Encoder, rng: Randomness) -> Model | None:
    """The step that needs torch: skipped with a message if that is not installed."""
    if find_spec("torch") is None:
        console.say("No model is trained: `pip install maskedlark\\[train]` brings what that needs.")
        return None
    # Here: torch takes seconds to load, and the help does not need it.
    from maskedlark.cli.demo_steps import training  # noqa: PLC0415

    return training.run(console, client, crowd, encoder, rng)
