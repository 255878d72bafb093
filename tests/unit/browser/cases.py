"""Browsers in memory: documents and keys at hand, a clock that stands where it is put."""

from dataclasses import dataclass
from dataclasses import field as default
from pathlib import Path
from typing import Any

from maskedlark.browser import Browser, Kind, Outbox, Store
from maskedlark.clock import FixedClock
from maskedlark.core import field, sharing, validity
from maskedlark.core.purpose import Purpose
from maskedlark.errors import NotDeclared
from maskedlark.parameters.document import Document
from maskedlark.parameters.policy import Policy
from maskedlark.parameters.settings import Budget
from maskedlark.randomness import FixedRandomness, Randomness, SystemRandomness
from maskedlark.wire import report
from maskedlark.wire.acceptance import Terms
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.keys import KeyConfiguration, PublishedKey
from maskedlark.wire.payload import Payload
from maskedlark.wire.report import Opener
from maskedlark.wire.signatures import VerifyingKey
from tests.unit.parameters.cases import HELPER_KEYS, make

START = 1_794_441_600
DAY = 86_400
CHECK_KEY = bytes(range(validity.KEY_BYTES))
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


class BrowserSetup:
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

    def convert(self, destination: str = "shop.example", **values: Any) -> None:
        self.browser.register_trigger("ads.example", destination, values)

    def all_reports(self) -> list[bytes]:
        """Everything that is due once the last moment has come."""
        self.clock.seconds += 60 * DAY
        self.browser.report_due()
        return [data for _, data in Outbox(self.store, "ads.example").batch(10**6)]


def openers(document: Document, purpose: Purpose) -> list[Opener]:
    """How every helper opens its parts of reports, of any hour."""
    layout, terms = document.layout(purpose), Terms(1 << 40, 1 << 40)
    keys = OPENING[: len(document.helpers)]
    return [Opener(layout, place, {key.key_id: key}, terms, CHECK_KEY) for place, key in enumerate(keys)]


def secrets(data: bytes, document: Document) -> tuple[Payload, list[int]]:
    """What helper 0 finds in a report, and what all helpers' shares add up to; it has to be valid."""
    prefix = report.decode_prefix(data)
    purpose, layout = prefix.purpose, document.layout(prefix.purpose)
    found = [
        opener.open(layout.parts([data], opener.place).tobytes()) for opener in openers(document, purpose)
    ]
    head, first = found[0]
    declared = document.measure if first.model is None else document.declared_models[first.model]
    ids, shares, numbers = sharing.byte_rows(head.id, 16), [], []
    t = validity.challenges(CHECK_KEY, ids, declared.points())
    for place, (_, payload) in enumerate(found):
        carried = sharing.byte_rows(payload.secret, len(payload.secret))
        share = sharing.recover(carried, ids, purpose, place, declared.carried())
        shares.append(declared.hold(share, place))
        if document.checked:
            numbers.append(validity.evaluate(share, t, declared))
    assert not numbers or validity.valid(numbers).all()
    return first, field.to_signed(sharing.combine(shares))[0].tolist()
