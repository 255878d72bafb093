"""The demo's stage: a parameter service and an ad server as real processes, keys, a published document."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from maskedlark.browser import Browser, Kind, Outbox, Store
from maskedlark.browser.upload import Uploader
from maskedlark.clock import Clock, FixedClock, SystemClock
from maskedlark.core.purpose import Purpose
from maskedlark.parameter_service.draft import draft
from maskedlark.privacy import chain
from maskedlark.privacy.document import Document
from maskedlark.privacy.policy import Policy
from maskedlark.privacy.settings import Budget
from maskedlark.randomness import Randomness
from maskedlark.storage.engine import open_database
from maskedlark.storage.reports import Reports, Selection
from maskedlark.web import key_file
from maskedlark.web.parameters import ParameterClient
from maskedlark.web.remote import Remote
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.keys import KeyConfiguration, PublishedKey
from maskedlark.wire.report import Recipient
from maskedlark.wire.signatures import SigningKey

ORIGIN = "ads.example"
SHOP = "shop.example"
STARTS_WITHIN_S = 60
DAY_S = 86_400
SETTINGS = """
origin = "ads.example"
keys = ["campaign"]
fake_rate = 0.2
decoys = [
    {{keys = {{campaign = "autumn"}}}},
    {{keys = {{campaign = "spring"}}}},
    {{keys = {{campaign = "winter"}}}},
    {{tag = "ConversionModel11005", features = "20406080"}},
    {{tag = "ConversionModel11005", features = "c0a08060"}},
]
[helpers]
{helpers}
[values]
bought = [0, 1]
euros = [0, 200]
[models.ConversionModel11005]
features = 4
"""


@dataclass(frozen=True)
class Stage:
    """Two running services, and what the other parties hold."""

    folder: Path
    document: Document
    parameters: ParameterClient
    adserver: str
    opening: dict[str, OpeningKey]
    """The helpers' secret keys. In the demo all are here; in life each is on a machine of its own."""
    rng: Randomness

    def recipients(self) -> tuple[Recipient, ...]:
        """The helpers, as browsers see them."""
        return tuple(Recipient(name, key.sealing) for name, key in self.opening.items())

    def one_browser(self, campaign: str, features: bytes, euros: int) -> int:
        """A real browser: sees an ad, buys, is closed and opened again, waits, and reports over HTTP."""
        clock = FixedClock(SystemClock().now() - 9 * DAY_S)
        policy = Policy(
            trusted_helpers=tuple(helper.identity for helper in self.document.helpers),
            most=Budget(epsilon=10, delta=1e-5),
            most_coalition=Budget(epsilon=100, delta=1e-5),
        )
        path = self.folder / "browser.sqlite"
        store = Store(path)
        browser = Browser(store, self.parameters, policy, clock, self.rng)
        browser.register_source(
            ORIGIN, Kind.CLICK, SHOP, {"campaign": campaign}, {self.document.models[0].tag: features}
        )
        clock.seconds += 3600
        browser.register_trigger(ORIGIN, SHOP, {"bought": 1, "euros": euros})
        store.close()
        clock.seconds = SystemClock().now()
        store = Store(path)
        Browser(store, self.parameters, policy, clock, self.rng).report_due()
        sent = self.upload(store)
        store.close()
        return sent

    def upload(self, store: Store) -> int:
        """Send what waits in a browser's store to the ad server. Returns how many it took."""
        with httpx.Client() as client:
            uploader = Uploader(self.adserver, client, SystemClock(), self.rng, Outbox(store, ORIGIN))
            return uploader.send_due().acknowledged

    def stored(self, purpose: Purpose, clock: Clock) -> list[bytes]:
        """What the ad server has in its database by now."""
        database = open_database(f"sqlite:///{self.folder / 'reports.sqlite'}")
        try:
            found = Reports(database, clock).read(
                Selection(purpose, self.document.digest, 0, clock.now() + 1)
            )
            return [report.data for report in found]
        finally:
            database.close()


@contextmanager
def stage(folder: Path, helpers: int, rng: Randomness) -> Iterator[Stage]:
    """Make keys, start both services, publish; stop what was started in the end."""
    clock = SystemClock()
    origin, service = (key_file.create(folder / f"{name}.key", rng) for name in ("origin", "service"))
    identities = {f"helper-{i}": SigningKey.generate(rng) for i in range(helpers)}
    opening = {name: OpeningKey.generate(rng) for name in identities}
    publics = "\n".join(f'{name} = "{key.verifying.public.hex()}"' for name, key in identities.items())
    (folder / "pinned.toml").write_text(
        f'[origins]\n"{ORIGIN}" = "{origin.verifying.public.hex()}"\n[helpers]\n{publics}\n'
    )
    settings = SETTINGS.format(helpers=publics)
    serve: list[object] = ["-m", "maskedlark", "parameters", "serve", "--key", folder / "service.key"]
    serve += ["--pinned", folder / "pinned.toml", "--database", folder / "parameters.sqlite"]
    store: list[object] = [
        "-m",
        "maskedlark.adserver",
        "--origin",
        ORIGIN,
        "--database",
        f"sqlite:///{folder / 'reports.sqlite'}",
    ]
    with ExitStack() as stack:
        addresses = [stack.enter_context(_process(arguments)) for arguments in (serve, store)]
        document = draft(settings, origin.verifying, None, clock.now())
        with Remote(addresses[0]) as remote:
            remote.post("/v1/documents", chain.sign(document, origin).encode(), "application/json")
            for name, identity in identities.items():
                message = _configuration(name, identity, opening[name], clock.now()).sign(identity)
                remote.post("/v1/keys", message, "application/cbor", {"helper": name})
        pinned = {ORIGIN: origin.verifying}
        parameters = ParameterClient(addresses[0], service.verifying, folder / "cache", clock, pinned)
        stack.callback(parameters.close)
        yield Stage(folder, parameters.latest(ORIGIN), parameters, addresses[1], opening, rng)


def _configuration(name: str, identity: SigningKey, key: OpeningKey, now: int) -> KeyConfiguration:
    published = PublishedKey(key.sealing, now - 30 * DAY_S, now + 30 * DAY_S)
    return KeyConfiguration(name, identity.verifying, f"https://{name}.example", 1, (published,))


@contextmanager
def _process(arguments: list[object]) -> Iterator[str]:
    """A service as a process of its own; yields the address that it says it listens on."""
    command = [sys.executable, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:  # noqa: S603
        try:
            assert running.stdout is not None
            said = running.stdout.readline()
            if not said.startswith("listening on "):
                raise RuntimeError(f"{' '.join(command[1:4])} did not start; its messages are above")
            yield said.removeprefix("listening on ").strip()
        finally:
            running.terminate()
            running.wait(STARTS_WITHIN_S)
