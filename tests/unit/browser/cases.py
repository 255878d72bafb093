"""Browsers in memory: documents and keys at hand, a clock that stands where it is put."""

from dataclasses import dataclass
from dataclasses import field as default
from pathlib import Path
from typing import Any

from maskedlark.browser import Browser, Kind, Outbox, Store
from maskedlark.clock import FixedClock
from maskedlark.core import field, sharing
from maskedlark.errors import NotDeclared
from maskedlark.parameters.document import Document
from maskedlark.parameters.policy import Policy
from maskedlark.parameters.settings import Budget
from maskedlark.randomness import FixedRandomness, Randomness, SystemRandomness
from maskedlark.wire import report
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.keys import KeyConfiguration, PublishedKey
from maskedlark.wire.report import Opener
from maskedlark.wire.signatures import VerifyingKey
from tests.unit.parameters.cases import HELPER_KEYS, make

START = 1_794_441_600
DAY = 86_400
OPENING = [OpeningKey(FixedRandomness(f"opening {i}".encode()).bytes(32)) for i in range(3)]
POLICY = Policy(
    trusted_helpers=tuple(key.verifying.public.hex() for key in HELPER_KEYS),
    max_budget=Budget(epsilon=10, delta=1e-5),
    max_coalition=Budget(epsilon=100, delta=1e-5),
    min_k=20,
)


@dataclass
class InMemory:
    """Verified documents and keys, without a service."""

    documents: list[Document] = default(default_factory=lambda: [make()])

    def latest(self, origin: str) -> Document:
        found = [document for document in self.documents if document.origin == origin]
        if not found:
            raise NotDeclared(f"no document of {origin}")
        return found[-1]

    def by_digest(self, digest: bytes) -> Document:
        [found] = [document for document in self.documents if document.digest == digest]
        return found

    def keys(self, helper: str, identity: VerifyingKey) -> KeyConfiguration:
        place = int(helper.removeprefix("helper-"))
        published = PublishedKey(OPENING[place].sealing, 0, 1 << 40)
        return KeyConfiguration(helper, identity, "https://helper", 0, (published,))


class Set:
    """A browser and all around it."""

    def __init__(self, path: Path | str = ":memory:", rng: Randomness | None = None, **changes: Any) -> None:
        self.path, self.clock, self.rng = path, FixedClock(START), rng or SystemRandomness()
        self.parameters = InMemory([make(**changes)])
        self.start()

    def start(self) -> None:
        self.store = Store(self.path)
        self.browser = Browser(self.store, self.parameters, POLICY, self.clock, self.rng)

    def restart(self) -> None:
        """As if the browser was closed, or killed, and opened again."""
        self.store.close()
        self.start()

    @property
    def document(self) -> Document:
        return self.parameters.latest("ads.example")

    def see(
        self, kind: Kind = Kind.CLICK, destination: str = "shop.example", place: int = 7, **more: Any
    ) -> None:
        features = more.pop("features", {"clicks": bytes([1, 2, 3, 4])})
        self.browser.register_source(
            "ads.example", kind, destination, {"campaign": "spring", "place": place}, features, **more
        )

    def convert(self, destination: str = "shop.example", **values: int) -> None:
        self.browser.register_trigger("ads.example", destination, values)

    def all_reports(self) -> list[bytes]:
        """Everything that is due once the last moment has come."""
        self.clock.seconds += 60 * DAY
        self.browser.report_due()
        return [data for _, data in Outbox(self.store, "ads.example").batch(10**6)]


def opened(data: bytes, document: Document, tag: str | None = None) -> list[Any]:
    """What each helper finds in a report."""
    made = report.decode(data)
    declared = document.measure if tag is None else document.declared_models[tag]
    size = document.payload_size(declared.purpose)
    return [
        Opener(f"helper-{i}", i, {key.key_id: key}, declared, size).open(made.part(i))
        for i, key in enumerate(OPENING[: len(document.helpers)])
    ]


def secrets(data, document, tag=None):
    """The open columns of a report, and the secret that all helpers' shares add up to."""
    views = opened(data, document, tag)
    public, first = views[0]
    declared = document.measure if tag is None else document.declared_models[tag]
    ids = sharing.byte_rows(public.id, 16)
    shares = [
        sharing.recover([payload.secret], ids, public.purpose, place, declared.secrets())
        for place, (_, payload) in enumerate(views)
    ]
    return first.columns, field.to_signed(sharing.combine(shares))[0].tolist()
