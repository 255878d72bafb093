"""Real helpers, an ad server's requests to them, and reports that are forged or not."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from maskedlark.clock import hour_of
from maskedlark.core import field, sharing, validity
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.core.sharing import ByteRows
from maskedlark.parameters.document import Document
from maskedlark.randomness import SystemRandomness
from maskedlark.web.remote import Remote, SignedRemote, UrlQuery
from maskedlark.web.request_signature import NO_BODY_TYPE
from maskedlark.wire import batch, columns, datasets, uploads
from maskedlark.wire.batch import Envelope
from maskedlark.wire.checks import CHECKS_TYPE, Checks, SignedChecks, encode_relay
from maskedlark.wire.datasets import (
    CHUNK_TYPE,
    FREEZE_TYPE,
    JSON_TYPE,
    CheckAnswer,
    ChunkAnswer,
    FreezeRequest,
    Frozen,
    NewDataset,
)
from tests.simulation.life import Life
from tests.simulation.parties import AdServer, Helper
from tests.simulation.world import World, world

BILLION = 10**9
MODEL = {
    "tag": "clicks",
    "columns": [{"kind": "bytes", "count": 2}],
    "labels": [
        {"kind": "binary"},
        {"kind": "reals", "value": "purchase", "low": 0, "high": 100, "buckets": 4},
    ],
    "gradient_bound": 1.0,
}
CHANGES: dict[str, Any] = {
    "checks": "bits",
    "max_records": 1 << 20,
    "values": [{"name": "purchase", "low": 0, "high": 100}, {"name": "refund", "low": -20, "high": 5}],
    "models": [MODEL],
    "decoys": [],
    "budget": {"epsilon": 8.0, "delta": 1e-6},
    "training": {
        "adserver": {"epsilon": 4.0, "delta": 1e-6},
        "coalition": {"epsilon": 32.0, "delta": 1e-6},
    },
    "mechanisms": {
        "sums": {"kind": "laplace", "noise_floor": 1.0},
        "gradient": {"kind": "gaussian", "noise_floor": 0.5},
    },
}


@dataclass
class Reports:
    """Reports, and the secrets that are true of those that are valid."""

    data: list[bytes]
    secrets: FieldArray
    """As `measure` and `mask` of the declaration give them, before bits."""
    purpose: Purpose

    def ids(self, document: Document) -> list[bytes]:
        layout = document.layout(self.purpose)
        return [layout.head(each).id for each in self.data]


class Rig:
    """A world without faults, whose one ad server has published a document with checks."""

    def __init__(self, made: World) -> None:
        self.world, self.life = made, Life(made)
        self.adserver: AdServer = made.adservers[0]
        self.adserver.publish(**CHANGES)
        self.document = self.adserver.documents[-1]
        self._named = 0

    @property
    def helpers(self) -> list[Helper]:
        return self.world.helpers

    def remote(self, helper: Helper) -> SignedRemote:
        return self.life.remote(self.adserver, helper)

    def envelope(self, purpose: Purpose) -> Envelope:
        now = self.world.clock.now()
        keys = [each.published.current(now) for each in self.helpers if each.published]
        return Envelope(self.document.layout(purpose), tuple(keys))

    def measured(self, count: int, forged: Sequence[int] = (), number: int = BILLION) -> Reports:
        """To aggregate; a forged one says that it counts a billion times."""
        rng, measure = SystemRandomness(), self.document.measure
        values = [rng.below(101, count), rng.below(26, count) - 20]
        secrets = measure.lift(values, np.ones(count, np.bool_))
        shown = columns.aggregate_columns(measure, [["spring"] * count], count)
        truth = np.stack([np.ones(count, np.int64), *values], axis=1)
        return Reports(
            self._sealed(Purpose.AGGREGATE, shown, secrets, forged, number), truth, Purpose.AGGREGATE
        )

    def trained(self, count: int, forged: Sequence[int] = (), number: int = 1) -> Reports:
        """To train; a forged one has a label that is hot everywhere."""
        rng, model = SystemRandomness(), self.document.declared_models["clicks"]
        rows = np.frombuffer(rng.bytes(2 * count), np.uint8).reshape(count, 2)
        labels = [rng.below(2, count), rng.below(101, count)]
        candidates, secrets = model.mask(labels, np.ones(count, np.bool_), rng)
        shown = columns.train_columns(0, model, rows, candidates)
        return Reports(self._sealed(Purpose.TRAIN, shown, secrets, forged, number), secrets, Purpose.TRAIN)

    def _sealed(
        self, purpose: Purpose, shown: ByteRows, secrets: FieldArray, forged: Sequence[int], number: int
    ) -> list[bytes]:
        rng, envelope = SystemRandomness(), self.envelope(purpose)
        proof = validity.prove(secrets, envelope.layout.declared[0], rng)
        secrets = np.array(secrets)
        secrets[list(forged), :2] = number
        sent = np.concatenate([secrets, proof], axis=1)
        hours = [hour_of(self.world.clock.now())] * len(sent)
        return batch.seal_proved(envelope, 0, shown, sent, hours, rng)

    def upload(self, reports: Reports, at_once: int = 2000) -> None:
        """Browsers send them, and the ad server stores all."""
        with Remote(f"http://{self.adserver.host}", self.adserver.http()) as remote:
            batches = [reports.data[i : i + at_once] for i in range(0, len(reports.data), at_once)]
            stored = {uploads.Verdict.STORED, uploads.Verdict.DUPLICATE}
            # The first one twice: by then the ad server has asked for the document.
            for number, some in enumerate([batches[0], *batches]):
                data = remote.post("/v2/reports", uploads.encode_batch(some), uploads.CONTENT_TYPE)
                outcomes = {each.outcome for each in uploads.decode_answers(data, len(some))}
                assert not number or outcomes <= stored
        self.world.clock.seconds += 1

    def sending(self, reports: Reports, name: str = "") -> "Sending":
        self._named += 1
        return Sending(self, reports, name or f"dataset-{self._named}", f"{self._named:032x}")


@dataclass
class Sending:
    """A dataset of one chunk on its way, as an ad server that does what it likes sends it."""

    rig: Rig
    reports: Reports
    name: str
    attempt: str

    @property
    def path(self) -> str:
        return f"/v2/datasets/{self.name}"

    @property
    def query(self) -> UrlQuery:
        return {"attempt": self.attempt}

    def relay_key(self) -> None:
        first, *others = self.rig.helpers
        path = f"/v2/check-keys/{self.rig.document.digest.hex()}"
        message = self.rig.remote(first).post(path, b"", NO_BODY_TYPE)
        for helper in others:
            self.rig.remote(helper).post(f"{path}/message", message, JSON_TYPE)

    def open(self) -> None:
        new = NewDataset(
            attempt=self.attempt,
            parameters=self.rig.document.digest.hex(),
            purpose=self.reports.purpose.value,
        )
        for helper in self.rig.helpers:
            self.rig.remote(helper).post(self.path, new.encode(), JSON_TYPE)

    def chunk(self, helper: Helper, data: Sequence[bytes] | None = None) -> ChunkAnswer:
        layout = self.rig.document.layout(self.reports.purpose)
        body = datasets.encode_chunk(layout.parts(data or self.reports.data, helper.place))
        answer = self.rig.remote(helper).post(f"{self.path}/chunks/0", body, CHUNK_TYPE, self.query)
        return ChunkAnswer.decode(answer)

    def checks(self, helper: Helper) -> bytes:
        return self.rig.remote(helper).get(f"{self.path}/chunks/0/checks", self.query)

    def sent(self) -> list[bytes]:
        """Everything until all have published their numbers; returns the messages."""
        self.relay_key()
        self.open()
        for helper in self.rig.helpers:
            self.chunk(helper)
        return [self.checks(helper) for helper in self.rig.helpers]

    def relay(self, helper: Helper, messages: Sequence[bytes]) -> CheckAnswer:
        others = [each for place, each in enumerate(messages) if place != helper.place]
        return self.relay_these(helper, others)

    def relay_these(self, helper: Helper, others: Sequence[bytes]) -> CheckAnswer:
        path = f"{self.path}/chunks/0/checks"
        answer = self.rig.remote(helper).post(path, encode_relay(others), CHECKS_TYPE, self.query)
        return CheckAnswer.decode(answer)

    def freeze(self, helper: Helper, bitmap: str) -> Frozen:
        body = FreezeRequest(accepted=(bitmap,)).encode()
        return Frozen.decode(
            self.rig.remote(helper).post(f"{self.path}/freeze", body, FREEZE_TYPE, self.query)
        )

    def abort(self) -> None:
        for helper in self.rig.helpers:
            self.rig.remote(helper).delete(self.path, self.query)

    def shares(self, digest: str, tag: str | None = None) -> dict[bytes, list[int]]:
        """What all helpers' shares of a frozen dataset add up to, by report."""
        origin = self.rig.adserver.origin
        held = [
            helper.service.datasets.find(origin, bytes.fromhex(digest)).records(tag)
            for helper in self.rig.helpers
        ]
        total = field.to_signed(sharing.combine([np.array(each.shares) for each in held]))
        return dict(zip([each.tobytes() for each in held[0].ids], total.tolist(), strict=True))


def numbers(message: bytes) -> dict[bytes, bytes]:
    """What a message publishes, by report."""
    checks = Checks.decode(SignedChecks.decode(message).body)
    return {name.tobytes(): own.tobytes() for name, own in zip(checks.ids, checks.numbers, strict=True)}


@contextmanager
def rig(folder: Path, helpers: int) -> Iterator[Rig]:
    with world(folder, seed=0, helpers=helpers, origins=1, servers={}) as made:
        yield Rig(made)
