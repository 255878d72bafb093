"""Reports of the right form for the ad server's store: it cannot tell sealed bytes from random ones."""

from dataclasses import replace

from maskedlark.adserver.report_store import Arrival, Reports
from maskedlark.clock import SECONDS_AN_HOUR, FixedClock
from maskedlark.core.purpose import Purpose
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness
from maskedlark.storage.engine import Database, open_database
from maskedlark.wire.report import HEAD_BYTES, Head, ReportLayout
from tests.unit.parameters.cases import make

ORIGIN = "ads.example"
DOCUMENT = make()
HOUR = 480_000
NOW = HOUR * SECONDS_AN_HOUR
DIGEST = DOCUMENT.digest


def documents() -> list[Document]:
    """What an ad server of these reports is told when it asks."""
    return [DOCUMENT]


def clock() -> FixedClock:
    return FixedClock(NOW)


def opened(url: str, at: FixedClock | None = None) -> tuple[Database, Reports]:
    database = open_database(url)
    return database, Reports(database, at or clock())


def arrivals(
    count: int,
    seed: bytes = b"seed",
    purpose: Purpose = Purpose.TRAIN,
    parameters: bytes = DIGEST,
    hour: int = HOUR,
    origin: str = ORIGIN,
    document: Document = DOCUMENT,
) -> list[Arrival]:
    """As many reports, the same for the same seed, laid out as the document says."""
    rng = FixedRandomness(seed)
    layout = replace(document.layout(purpose), origin=origin, parameters=parameters)
    made = []
    for _ in range(count):
        head = Head(rng.bytes(16), hour, rng.bytes(32))
        made.append(Arrival(layout, head, sealed(layout, head, rng)))
    return made


def sealed(layout: ReportLayout, head: Head, rng: FixedRandomness) -> bytes:
    """All bytes of a report with this public part."""
    return layout.prefix + head.encode() + rng.bytes(layout.size - len(layout.prefix) - HEAD_BYTES)


def data(count: int, seed: bytes = b"seed") -> list[bytes]:
    """The bytes of as many reports."""
    return [each.data for each in arrivals(count, seed)]


def ids(reports: list[bytes]) -> list[bytes]:
    layout = DOCUMENT.layout(Purpose.TRAIN)
    return [layout.head(each).id for each in reports]
