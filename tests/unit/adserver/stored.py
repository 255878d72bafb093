"""Reports of the right form for the ad server's store: it cannot tell sealed bytes from random ones."""

from maskedlark.adserver.report_store import Arrival, Reports
from maskedlark.clock import SECONDS_AN_HOUR, FixedClock
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import FixedRandomness
from maskedlark.storage.engine import Database, open_database
from maskedlark.wire import report
from maskedlark.wire.hpke import KEY_ID_BYTES, OVERHEAD
from maskedlark.wire.payload import SIZE_STEP
from maskedlark.wire.report import PublicPart, Report

ORIGIN = "ads.example"
HOUR = 480_000
NOW = HOUR * SECONDS_AN_HOUR
DIGEST = bytes(range(32))


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
) -> list[Arrival]:
    """As many reports, the same for the same seed."""
    rng = FixedRandomness(seed)
    made = []
    for _ in range(count):
        public = PublicPart(rng.bytes(16), hour, origin, purpose, parameters, rng.bytes(32))
        made.append(Arrival(public, sealed(public, rng)))
    return made


def sealed(public: PublicPart, rng: FixedRandomness, helpers: int = 2) -> bytes:
    """All bytes of a report with this public part."""
    payloads = [(rng.bytes(KEY_ID_BYTES), rng.bytes(SIZE_STEP + OVERHEAD)) for _ in range(helpers)]
    return Report(public.encode(), tuple(payloads)).encode()


def data(count: int, seed: bytes = b"seed") -> list[bytes]:
    """The bytes of as many reports."""
    return [each.data for each in arrivals(count, seed)]


def ids(reports: list[bytes]) -> list[bytes]:
    return [report.decode_public(report.decode(each).public).id for each in reports]
