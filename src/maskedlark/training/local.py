"""The same run without HTTP: all helpers in this process, with seeds that are given.

Run by tests, experiments and benches, which hold what in life no one party holds. It goes its own short way,
past sessions, ledger and services, and comes to the same bits: that is what it is for.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maskedlark.core import field, sharing
from maskedlark.core.batches import SEED_BYTES
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Trained
from maskedlark.dp import mechanisms, sampling
from maskedlark.functions.function import Column, Question, Steps
from maskedlark.functions.gradient import Gradient
from maskedlark.ledger.receipt import ClosedReceipt, OpenedReceipt
from maskedlark.parameters import randomised
from maskedlark.parameters.document import Document
from maskedlark.randomness import Randomness
from maskedlark.release import parts
from maskedlark.release.messages import SessionRequest, decode_session
from maskedlark.release.parts import Batches, Work
from maskedlark.release.session import batches_of
from maskedlark.wire.steps import Ranges


@dataclass(frozen=True, repr=False)
class LocalDataset:
    """A dataset as all of its helpers hold it: the records of one model, and the seed of its batches."""

    digest: bytes
    helpers: Sequence[Trained]
    """One a helper, in the document's order."""
    seed: bytes
    first: int = 0
    """The slot of the session's first step."""

    def __len__(self) -> int:
        return len(self.helpers[0])


def shared_out(
    document: Document,
    tag: str,
    features: NDArray[np.uint8],
    labels: Sequence[ArrayLike],
    rng: Randomness,
    digest: bytes = bytes(32),
) -> LocalDataset:
    """A dataset of these records, all real: masked and shared as browsers do it, and nothing sealed."""
    declared, records = document.declared_models[tag], len(features)
    shown, secrets = declared.mask(labels, np.ones(records, np.bool_), rng)
    candidates = tuple(np.asarray(each, np.int64) for each in shown)
    ids = sharing.random_rows(records, sharing.ID_BYTES, rng)
    shares = sharing.split(secrets, ids, Purpose.TRAIN, len(document.helpers), rng)
    others = [
        sharing.expand(seeds, ids, Purpose.TRAIN, place, secrets.shape[1])
        for place, seeds in enumerate(shares.seeds, 1)
    ]
    held = [Trained(ids, features, candidates, own) for own in (shares.explicit, *others)]
    return LocalDataset(digest, held, rng.bytes(SEED_BYTES))


@dataclass(frozen=True, repr=False)
class LocalSession:
    """A session in memory: what `adserver.session.Session` is over HTTP."""

    document: Document
    request: SessionRequest
    datasets: Sequence[LocalDataset]
    noise_seeds: Sequence[bytes]
    """One a helper: what its noise follows from."""

    @cached_property
    def batches(self) -> Batches:
        """Who is in each step's batch."""
        course = None
        if self.request.noise is not None:
            course = sampling.course(
                self.request.sampling,
                self.document.mechanisms[Purpose.TRAIN.value].kind,
                self.request.noise,
                self.request.steps,
                self.request.delta,
                records=sum(map(len, self.datasets)),
                k=self.document.k,
            )
        return batches_of(
            self.request, course, [each.seed for each in self.datasets], [*map(len, self.datasets)]
        )

    @cached_property
    def steps(self) -> Steps:
        """The network, waiting for weights."""
        return Gradient().begin(self.document, self.request.tag, self.request.arguments)

    def open(self) -> Mapping[str, OpenedReceipt]:
        """Nothing is charged here."""
        return {}

    def step(self, number: int, body: bytes, size: int, chosen: Ranges = ()) -> FieldArray:
        """The sum of one step, with the noise of every helper."""
        question = self.steps.at(body, self._shared(number))
        work = self.batches.work(number, chosen)
        digest = _digest(body, chosen)
        shares = [
            self._noisy(self._share(question, work, place), question.columns[0], seed, number, digest)
            for place, seed in enumerate(self.noise_seeds)
        ]
        assert all(len(share) == size for share in shares), "a gradient has a number for every parameter"
        return sharing.combine(shares)

    def close(self) -> Mapping[str, ClosedReceipt]:
        """Nothing was charged here."""
        return {}

    def stop(self) -> None:
        """Nothing is held."""

    def _shared(self, number: int) -> bytes:
        slots = b"".join((first + number).to_bytes(8, "big") for first in self.request.slots)
        seeds = b"".join(each.seed for each in self.datasets)
        return hashlib.sha256(b"maskedlark v2 step randomness" + seeds + slots).digest()

    def _share(self, question: Question, work: Work, place: int) -> FieldArray:
        """Over the batch alone: what fills up a helper's work adds nothing."""
        counted = np.split(work.counted, np.cumsum([len(rows) for rows in work.rows])[:-1])
        batch = [
            parts.take(each.helpers[place], rows[own])
            for each, rows, own in zip(self.datasets, work.rows, counted, strict=True)
        ]
        if self.request.noise is None:
            declared, helpers = self.document.trained(self.request.tag), len(self.document.helpers)
            batch = [randomised.unbiased(each, declared, helpers) for each in batch]
        (table,) = question.share(batch, self.document.k)
        enough = sum(map(len, batch)) >= self.document.k
        return table.shares[0][0] if enough else np.zeros_like(table.shares[0][0])

    def _noisy(
        self, share: FieldArray, column: Column, seed: bytes, number: int, digest: bytes
    ) -> FieldArray:
        if self.request.noise is None:
            return share
        kind = self.document.mechanisms[Purpose.TRAIN.value].kind
        own = hashlib.sha256(b"maskedlark v1 step noise" + seed + number.to_bytes(8, "big") + digest).digest()
        noise = mechanisms.draw(kind, self.request.noise, column.sensitivity, own, len(share))
        return field.add(share, field.from_signed(noise))


@dataclass(frozen=True, repr=False)
class Local:
    """Datasets and helpers in memory: what `begin` needs of an ad server's client."""

    document: Document
    datasets: Sequence[LocalDataset]
    noise_seeds: Sequence[bytes]
    id: str = "00" * 16

    def sealed_to_train(self, names: Sequence[str] | None) -> tuple[Document, tuple[bytes, ...]]:  # noqa: ARG002
        """All of them, whatever they are called."""
        return self.document, tuple(each.digest for each in self.datasets)

    def records(self, document: Document, digests: Sequence[bytes], tag: str) -> int:  # noqa: ARG002
        """How many records there are."""
        return sum(map(len, self.datasets))

    def free_slots(self, document: Document, digests: Sequence[bytes]) -> tuple[int, ...]:  # noqa: ARG002
        """Those of the session that is run."""
        return tuple(each.first for each in self.datasets)

    def session(self, document: Document, body: bytes) -> LocalSession:
        """The session of this request."""
        return LocalSession(document, decode_session(body), self.datasets, self.noise_seeds)

    def new_id(self) -> str:
        """Always the same: nobody else asks here."""
        return self.id


def _digest(body: bytes, chosen: Ranges) -> bytes:
    named = b"".join(start.to_bytes(8, "big") + stop.to_bytes(8, "big") for start, stop in chosen)
    return hashlib.sha256(len(named).to_bytes(8, "big") + named + body).digest()
