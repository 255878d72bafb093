"""Helpers that answer steps in memory: a ledger, sessions and a pipeline each, over the same records."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskedlark.clock import FixedClock
from maskedlark.core import field, sharing
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Records, TrainingRecords
from maskedlark.dp import mechanisms
from maskedlark.dp.sampling import Sampling
from maskedlark.exact import gradient as exact
from maskedlark.exact.clip import Clip
from maskedlark.exact.forward import Seed
from maskedlark.exact.losses import BinaryCrossEntropy, Loss
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import Dropout, Relu
from maskedlark.exact.quantise import Quantised
from maskedlark.functions import model, weights
from maskedlark.functions.cells import Cells
from maskedlark.functions.function import AnyFunction, Partial, Query
from maskedlark.functions.gradient import Gradient
from maskedlark.parameters.document import Document
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.release.messages import SessionRequest
from maskedlark.release.release import Release
from maskedlark.release.session import body_digest
from maskedlark.wire.steps import Ranges
from maskedlark.workflow import Workflow
from tests.unit.ledger import ledgers
from tests.unit.parameters import cases

ORIGIN = "ads.example"
K, EXPIRES = 20, 1 << 40
HELPERS = [
    {"name": f"helper-{i}", "identity": x.verifying.public.hex()} for i, x in enumerate(cases.HELPER_KEYS)
]
ROOM = {
    "budget": {"epsilon": 100.0, "delta": 1e-3},
    "training": {
        "adserver": {"epsilon": 90.0, "delta": 1e-3},
        "coalition": {"epsilon": 1000.0, "delta": 1e-3},
    },
}
"""A budget that is no matter here."""


def document(helpers: int = 2, **changes: Any) -> Document:
    return cases.make(**{"k": K, "helpers": HELPERS[:helpers], **ROOM, **changes})


def network(features: int = 4, losses: Sequence[Loss] = (BinaryCrossEntropy(),), dropout: int = 0) -> Network:
    """Three hidden numbers; names as they come off the wire."""
    outputs = sum(loss.outputs for loss in losses)
    dropped = Dropout(dropout) if dropout else None
    layers = (
        Layer(Linear("w0", "b0", features, 3)),
        Layer(Linear("w1", "b1", 3, outputs), Relu(), dropped),
    )
    return Network(layers, tuple(losses))


def quantised(made: Network, seed: bytes = b"weights") -> Quantised:
    values = FixedRandomness(seed).below(101, made.size).astype(np.int16) - 50
    return Quantised(values, (6,) * len(made.parameters), (6,), 8)


def body(made: Network, seed: bytes = b"weights") -> bytes:
    return weights.encode(quantised(made, seed))


def truth(document: Document, tag: str, count: int, seed: bytes) -> TrainingRecords:
    """Records with their masks in the clear; one in ten is a fake."""
    rng, declared = FixedRandomness(seed + tag.encode()), document.declared_models[tag]
    features = sharing.random_rows(count, declared.features, rng)
    labels = [np.array(space.values)[rng.below(len(space), count)] for space in declared.labels]
    shown, secrets = declared.mask(labels, rng.below(10, count) > 0, rng)
    # As helpers keep them: one row where all show the same.
    candidates = tuple(each[:1] if (each == each[:1]).all() else each for each in shown)
    return TrainingRecords(sharing.random_rows(count, 16, rng), features, candidates, secrets)


class Rig:
    """All helpers of a document, in memory."""

    def __init__(
        self,
        folder: Path,
        document: Document,
        sizes: Sequence[int] = (60,),
        functions: dict[str, AnyFunction] | None = None,
    ) -> None:
        self.folder, self.document = folder, document
        self.functions = functions or {"gradient": Gradient(), "cells": Cells()}
        count = len(document.helpers)
        clock, rng = FixedClock(ledgers.NOW), SystemRandomness()
        self.way = Workflow(
            document, cases.HELPER_KEYS[:count], clock, rng, functions=self.functions, folder=folder
        )
        self.digests = [hashlib.sha256(b"dataset %d" % number).digest() for number in range(len(sizes))]
        self.seeds, self.truth, shares = self.way.seeds, [], FixedRandomness(b"shares")
        for digest, size in zip(self.digests, sizes, strict=True):
            columns = {tag: truth(document, tag, size, digest) for tag in document.declared_models}
            split = {tag: _split(each.shares, count, shares) for tag, each in columns.items()}
            held: list[Mapping[str | None, Records]] = [
                {tag: replace(each, shares=split[tag][place]) for tag, each in columns.items()}
                for place in range(count)
            ]
            seed = hashlib.sha256(b"seed" + digest).digest()
            self.way.hold(digest.hex(), Purpose.TRAIN, held, digest, seed)
            self.truth.append(columns)
        self.held = [[each.datasets[digest] for digest in self.digests] for each in self.way.helpers]
        self.expired = False
        self.ledgers = [(each.ledger, each.database, None) for each in self.way.helpers]
        self.sessions = [each.sessions for each in self.way.helpers]
        self.pipelines = [each.releases for each in self.way.helpers]

    @property
    def places(self) -> range:
        return range(len(self.document.helpers))

    @property
    def expired(self) -> bool:
        return self.held[0][0].expires == 0

    @expired.setter
    def expired(self, now: bool) -> None:
        for held in self.held:
            for each in held:
                each.expires = 0 if now else EXPIRES

    def start(self, place: int) -> Release:
        """A pipeline over what an earlier one left."""
        helper = self.way.helpers[place]
        helper.start(self.functions)
        return helper.releases

    def request(self, number: int = 1, made: Network | None = None, **changes: Any) -> SessionRequest:
        """A session over all datasets in Poisson batches."""
        given: dict[str, Any] = {
            "id": f"{number:032x}",
            "datasets": tuple(digest.hex() for digest in self.digests),
            "slots": (1000 * (number - 1),) * len(self.digests),
            "function": "gradient",
            "tag": "clicks",
            "arguments": model.describe(made or network()).model_dump(mode="json"),
            "noise": 4.0,
            "sampling": Sampling(kind="poisson", rate=0.6),
            "steps": 6,
            "delta": 1e-6,
        }
        return SessionRequest(**(given | changes))

    def open(self, request: SessionRequest) -> None:
        for pipeline in self.pipelines:
            pipeline.open_session(ORIGIN, request.encode(), request)

    def answers(
        self, request: SessionRequest, step: int, sent: bytes, chosen: Ranges = ()
    ) -> list[field.FieldArray]:
        return [
            pipeline.step(ORIGIN, bytes.fromhex(request.id), step, sent, chosen)
            for pipeline in self.pipelines
        ]

    def sum_without_noise(
        self, request: SessionRequest, step: int, sent: bytes, chosen: Ranges = ()
    ) -> field.FieldArray:
        """What all answers add up to, less the noise of every helper, drawn again from its seed."""
        total = sharing.combine(self.answers(request, step, sent, chosen))
        if request.noise is None:
            return total
        for place in self.places:
            drawn = self.noise(place, request, step, sent, chosen, total.size)
            total = field.subtract(total, field.from_signed(drawn))
        return total

    def noise(
        self, place: int, request: SessionRequest, step: int, sent: bytes, chosen: Ranges, count: int
    ) -> np.ndarray:
        session = bytes.fromhex(request.id)
        ready = self.pipelines[place].session(ORIGIN, session)
        digest = body_digest(sent, chosen)
        taken = self.sessions[place].claim_step(
            ORIGIN, session, step, digest, ready.engine, ready.scope.seeds
        )
        (column,) = ready.steps.at(sent, bytes(32)).columns
        assert request.noise is not None
        return mechanisms.draw(ready.scope.mechanism.kind, request.noise, column.sensitivity, taken, count)

    def used(self, request: SessionRequest) -> list[int]:
        return [each.find(ORIGIN, bytes.fromhex(request.id)).used for each in self.sessions]

    def close(self) -> None:
        self.way.close()


def _split(secrets: field.FieldArray, helpers: int, rng: FixedRandomness) -> list[field.FieldArray]:
    parts = [rng.below(field.P, secrets.size).reshape(secrets.shape) for _ in range(1, helpers)]
    first = secrets
    for part in parts:
        first = field.subtract(first, part)
    return [first, *parts]


def worked(monkeypatch: pytest.MonkeyPatch, question: type[Query]) -> list[int]:
    """How many records every computation of these questions is over, from now on."""
    found: list[int] = []
    over = question.over

    def counting(self: Query, records: Records, device: str = "cpu") -> Partial:
        found.append(len(records))
        return over(self, records, device)

    monkeypatch.setattr(question, "over", counting)
    return found


def clipped(
    made: Network,
    sent: Quantised,
    records: TrainingRecords,
    rows: Sequence[int],
    clip: Clip,
    seed: bytes | None = None,
) -> field.FieldArray:
    """The exact sum of the true labels' clipped gradients over these records, by the engine alone."""
    chosen = np.array(rows, np.intp)
    shown = [np.broadcast_to(each, (len(records), each.shape[1]))[chosen] for each in records.candidates]
    dropping = None if seed is None else Seed(seed, records.ids[chosen])
    batch = exact.Records(records.features[chosen], shown, records.shares[chosen], dropping)
    return exact.gradient(made, sent, batch, clip)
