"""A helper that was backed up, went on, and lost its disk but for the anchor."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maskedlark.clock import FixedClock
from maskedlark.core.sharing import ByteRows
from maskedlark.helper import backup
from maskedlark.helper.recovery import Recovered, RecoveryOptions, recover
from maskedlark.ledger.receipt import SignedReceipt
from maskedlark.parameters.document import Document
from maskedlark.randomness import SystemRandomness
from maskedlark.web.request_signature import NO_BODY_TYPE
from maskedlark.wire import datasets
from maskedlark.wire.datasets import CHUNK_TYPE, FREEZE_TYPE, JSON_TYPE, ChunkAnswer, FreezeRequest, Frozen
from tests.unit.helper.world import NOW, ORIGIN, World, begin, opened, question, settings, world

LITTLE_NOISE: dict[str, Any] = {
    "mechanisms": {
        "sums": {"kind": "laplace", "noise_floor": 0.125},
        "gradient": {"kind": "gaussian", "noise_floor": 0.5},
        "cells": {"kind": "gaussian", "noise_floor": 0.5},
    }
}
"""A question may take all of a budget at once."""


def send(at: World, document: Document, name: str, parts: ByteRows) -> ChunkAnswer:
    remote = at.remote()
    begin(remote, document, name)
    body = datasets.encode_chunk(parts)
    return ChunkAnswer.decode(remote.post(f"/v2/datasets/{name}/chunks/0", body, CHUNK_TYPE, opened(name)))


def freeze(at: World, name: str, answer: ChunkAnswer) -> str:
    freezing = FreezeRequest(accepted=(answer.accepted,)).encode()
    answered = at.remote().post(f"/v2/datasets/{name}/freeze", freezing, FREEZE_TYPE, opened(name))
    digest = Frozen.decode(answered).digest
    at.remote().post(f"/v2/seeds/{digest}", b"", NO_BODY_TYPE)
    return digest


def ask(at: World, *digests: str, number: int, noise: float = 1.0) -> bytes:
    """One column: ε = 1 / noise of 8."""
    body = question(*digests, number=number, noise=noise, values=["visit"])
    return at.remote().post("/v2/releases", body, JSON_TYPE)


class Lost:
    """Monday was frozen and asked before the backup; asked again, and Tuesday frozen and asked, after it."""

    def __init__(self, folder: Path, **changes: str) -> None:
        self.folder = folder
        self.changes = {"anchor": str(folder / "anchor"), **changes}
        self.config = settings(folder, **self.changes)
        self.clock = FixedClock(NOW)
        with world(folder, **self.changes) as at:
            self.document = at.publish(**LITTLE_NOISE)
            self.monday = freeze(at, "monday", send(at, self.document, "monday", at.reports(self.document)))
            self.first = ask(at, self.monday, number=1)
            send(at, self.document, "open", at.reports(self.document))
            self.back_up()
            self.parts = at.reports(self.document)
            self.tuesday = freeze(at, "tuesday", send(at, self.document, "tuesday", self.parts))
            ask(at, self.monday, number=2)
            ask(at, self.tuesday, number=3, noise=1 / 8)
            self.receipts = at.service.ledger.receipts(ORIGIN)

    def back_up(self) -> None:
        backup.back_up(self.config, self.folder / "backup", self.clock)

    def put_back(self) -> None:
        for name in ("database", "columns", "parameters"):
            shutil.rmtree(self.config.folder / name)
        backup.put_back(self.config, self.folder / "backup")

    def recover(self, receipts: Sequence[SignedReceipt] | None = None, **asked: object) -> Recovered:
        given = self.receipts if receipts is None else receipts
        published = {ORIGIN: [self.document]}
        return recover(
            self.config,
            given,
            RecoveryOptions(**asked),  # type: ignore[arg-type]
            lambda origin: published.get(origin, []),
            self.clock,
            SystemRandomness(),
        )
