"""Two helpers' datasets over fresh folders, and reports that were made for them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from maskedlark.clock import FixedClock
from maskedlark.compute.settings import ComputeSettings, open_engine
from maskedlark.core.purpose import Purpose
from maskedlark.helper.anchor import FileAnchor
from maskedlark.helper.check_keys import CheckKeys
from maskedlark.helper.dataset_context import DatasetContext
from maskedlark.helper.datasets import Datasets
from maskedlark.ledger.ledger import Ledger
from maskedlark.ledger.receipt import Certificate, SignedCertificate, certify
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.storage.engine import open_database
from maskedlark.web.errors import UnknownDataset
from maskedlark.wire import batch, columns, datasets
from maskedlark.wire.batch import Envelope
from maskedlark.wire.datasets import ChunkAnswer, FreezeRequest, Frozen, State, pack, unpack
from maskedlark.wire.hpke import OpeningKey, SealingKey
from maskedlark.wire.report import ReportLayout
from maskedlark.wire.signatures import SigningKey
from tests.unit.parameters.cases import HELPER_KEYS, make

HOUR = 480_000
NOW = HOUR * 3600 + 1800
ORIGIN, NAME = "ads.example", "march"
KEYS = [OpeningKey.generate(FixedRandomness(f"opening {i}".encode())) for i in range(2)]
DOCUMENT = make(k=1)
LIFETIME = DOCUMENT.report_lifetime_s


class Signer:
    """Receipts of one helper, signed with its identity itself."""

    def __init__(self, place: int) -> None:
        self.helper, self._key = f"helper-{place}", HELPER_KEYS[place]
        key = self._key.verifying.public.hex()
        made = Certificate(helper=self.helper, key=key, not_before=0, not_after=1 << 40)
        self._certificate = certify(made, self._key)
        self.check_secret = self._key.derive("check secret")

    def current(self, now: int) -> tuple[SigningKey, SignedCertificate]:
        return self._key, self._certificate


class Sent(Datasets):
    """Datasets whose sender keeps to the newest attempt of a name, and takes a new one for every other."""

    def open(self, document: Document, name: str, purpose: Purpose, attempt: bytes | None = None) -> State:
        return super().open(document, name, purpose, attempt or self._attempt(document.origin, name))

    def add(
        self, origin: str, name: str, number: int, body: bytes, attempt: bytes | None = None
    ) -> ChunkAnswer:
        return super().add(origin, name, number, body, attempt or self._attempt(origin, name))

    def freeze(self, origin: str, name: str, freezing: FreezeRequest, attempt: bytes | None = None) -> Frozen:
        return super().freeze(origin, name, freezing, attempt or self._attempt(origin, name))

    def abort(self, origin: str, name: str, attempt: bytes | None = None) -> None:
        super().abort(origin, name, attempt or self._attempt(origin, name))

    def _attempt(self, origin: str, name: str) -> bytes:
        try:
            return bytes.fromhex(self.state(origin, name).attempt)
        except UnknownDataset:
            return SystemRandomness().bytes(16)


class Helper(NamedTuple):
    datasets: Sent
    ledger: Ledger
    clock: FixedClock


@contextmanager
def helper(
    folder: Path, url: str, place: int = 0, now: int = NOW, workers: int = 1, shard_bytes: int = 64 << 20
) -> Iterator[Helper]:
    """A helper that starts, over what an earlier one left."""
    clock, database = FixedClock(now), open_database(url)
    ledger = Ledger(database, FileAnchor(folder / "anchor"), Signer(place), clock, SystemRandomness())
    ledger.check()
    keys = {KEYS[place].key_id: KEYS[place]}
    context = DatasetContext(folder / "columns", database, f"helper-{place}", clock)
    check_keys = CheckKeys(database, ledger, Signer(place), lambda: keys, _sealing, clock)
    engine = open_engine(ComputeSettings(workers=workers), "helper-0")
    made = Sent(context, ledger, lambda: keys, check_keys, engine, shard_bytes, SystemRandomness())
    try:
        yield Helper(made, ledger, clock)
    finally:
        engine.close()
        database.close()


def _sealing(document: Document) -> dict[str, SealingKey]:
    return {each.name: key.sealing for each, key in zip(document.helpers, KEYS, strict=True)}


class Reports(NamedTuple):
    """Reports, and what is true of them."""

    data: list[bytes]
    keys: tuple[list[Any], list[Any]]
    values: np.ndarray
    layout: ReportLayout

    def chunk(self, place: int, start: int = 0, end: int | None = None) -> bytes:
        return parts(self.data[start:end], place, self.layout)


def _envelope(document: Document, purpose: Purpose) -> Envelope:
    return Envelope(document.layout(purpose), tuple(key.sealing for key in KEYS))


def measured(count: int, hours: Sequence[int] | None = None, document: Document = DOCUMENT) -> Reports:
    rng = SystemRandomness()
    campaigns = [f"c{number}" for number in rng.below(3, count)]
    places = [int(number) for number in rng.below(4, count)]
    values = np.stack([rng.below(50_000, count), rng.below(2, count)])
    secrets = document.measure.lift([*values], np.ones(count, np.bool_))
    shown = columns.aggregate_columns(document.measure, [campaigns, places], count)
    envelope = _envelope(document, Purpose.AGGREGATE)
    data = batch.seal(envelope, 0, shown, secrets, hours or [HOUR] * count, rng)
    return Reports(data, (campaigns, places), values, envelope.layout)


def trained(
    tag: str, count: int, document: Document = DOCUMENT
) -> tuple[list[bytes], np.ndarray, np.ndarray]:
    """Reports of a model, their features, and their secret masks."""
    rng, model = SystemRandomness(), document.declared_models[tag]
    features = np.frombuffer(rng.bytes(count * model.features), np.uint8).reshape(count, -1)
    shown, secrets = model.mask([rng.below(2, count) for _ in model.labels], np.ones(count, np.bool_), rng)
    place = list(document.declared_models).index(tag)
    rows = columns.train_columns(place, model, features, shown)
    made = batch.seal(_envelope(document, Purpose.TRAIN), place, rows, secrets, [HOUR] * count, rng)
    return made, features, secrets


def parts(data: Sequence[bytes], place: int, layout: ReportLayout) -> bytes:
    """The body of a chunk of these reports."""
    return datasets.encode_chunk(layout.parts(data, place))


def agreed(*helpers: Datasets, chunks: int, name: str = NAME) -> FreezeRequest:
    """What the ad server freezes with: what all helpers accepted."""
    bitmaps = []
    for number in range(chunks):
        answers = [each.chunk(ORIGIN, name, number) for each in helpers]
        kept = np.logical_and.reduce([unpack(each.accepted, each.parts) for each in answers])
        bitmaps.append(pack(kept))
    return FreezeRequest(accepted=tuple(bitmaps))
