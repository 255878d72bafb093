"""Sessions and their steps: the way out for gradients, as `release` is for answers. Run by a helper.

A session is checked and charged whole when it is opened. A step then goes in this order: its body is checked;
the step is taken, durably, by that body; the batch is drawn; the share is computed; below k it is thrown away
and only noise is left; every helper adds all of the noise. The same body gets the same bytes, always.
"""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from maskedlark.core import batches, field
from maskedlark.core.batches import Rows
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Trained
from maskedlark.errors import FieldOverflow
from maskedlark.privacy import mechanisms, parts, randomised, sampling
from maskedlark.privacy.course import Course
from maskedlark.privacy.document import Document
from maskedlark.privacy.errors import (
    BadArguments,
    MixedDatasets,
    NoiseTooSmall,
    OtherPurpose,
    TooFewRecords,
    TooManyRecords,
    UnknownFunction,
)
from maskedlark.privacy.function import Column, Question, SteppedFunction, Steps
from maskedlark.privacy.mechanisms import Kind
from maskedlark.privacy.messages import SessionRequest, decode_session
from maskedlark.privacy.receipt import SignedReceipt
from maskedlark.privacy.release import Dataset, Seeds
from maskedlark.privacy.sessions import Opening, Sessions, engine
from maskedlark.wire.steps import Ranges

MOST_PREPARED = 64
"""Sessions whose networks and datasets are kept in memory."""
MOST_DRAWN = 1 << 34
"""Words that are drawn to count a session's Poisson batches: minutes of one helper's thread, not days."""
_SHARED = b"maskedlark v1 step randomness"


@dataclass(frozen=True, repr=False)
class Prepared:
    """A session that is open, with all that its steps need."""

    request: SessionRequest
    document: Document
    kind: Kind
    engine: str
    steps: Steps
    datasets: tuple[Dataset, ...]
    seeds: tuple[bytes, ...]
    firsts: tuple[int, ...]
    """The slot of the first step, in every dataset."""

    @property
    def sizes(self) -> list[int]:
        """Records of the model, by dataset."""
        return [dataset.size(self.request.tag) for dataset in self.datasets]

    def shared(self, step: int) -> bytes:
        """A secret of all helpers for one step: what a function makes random is the same at each."""
        slots = b"".join(
            seed + (first + step).to_bytes(8, "big")
            for seed, first in zip(self.seeds, self.firsts, strict=True)
        )
        return hashlib.sha256(_SHARED + slots).digest()

    def rows(self, step: int, chosen: Ranges) -> list[Rows]:
        """The batch of a step, by dataset."""
        found = [
            parts.batch(self.request.sampling, seed, self.request.tag, first, step, size)
            for seed, first, size in zip(self.seeds, self.firsts, self.sizes, strict=True)
        ]
        if self.request.sampling.kind != "chosen":
            return found
        ends = np.cumsum([0, *self.sizes])
        wanted = np.zeros(ends[-1], np.bool_)
        for start, stop in chosen:
            wanted[start:stop] = True
        return [rows[wanted[ends[place] + rows]] for place, rows in enumerate(found)]

    def take(self, dataset: Dataset, rows: Rows) -> Trained:
        """A dataset's part of a batch; labels that browsers randomised are unbiased."""
        found = parts.take(dataset.records(self.request.tag), rows)
        if self.request.noise is None:
            return randomised.unbiased(
                found, self.document.trained(self.request.tag), len(self.document.helpers)
            )
        return found


class StepDesk:
    """Where sessions are opened, and their steps answered."""

    def __init__(
        self,
        sessions: Sessions,
        functions: Mapping[str, SteppedFunction],
        seeds: Seeds,
        find: Callable[[str, bytes], Dataset],
    ) -> None:
        self._sessions, self._functions, self._seeds, self._find = sessions, functions, seeds, find
        self._lock = threading.Lock()
        self._prepared: dict[tuple[str, bytes], Prepared] = {}

    @property
    def names(self) -> frozenset[str]:
        """The functions that are known here."""
        return frozenset(self._functions)

    def open(self, origin: str, body: bytes, request: SessionRequest) -> SignedReceipt:
        """Charge a session whole. The same request gets the same receipt."""
        datasets = self._datasets(origin, request)
        document = datasets[0].document
        function = self._function(request.function)
        function.begin(document, request.tag, request.arguments)
        seeds = [self._seeds(origin, dataset.digest) for dataset in datasets]
        sizes = [dataset.size(request.tag) for dataset in datasets]
        opening = Opening(
            bytes.fromhex(request.id),
            hashlib.sha256(body).digest(),
            request.function,
            function.version,
            request.tag,
            tuple(dataset.digest for dataset in datasets),
            request.steps,
            request.sampling,
            self._course(request, document, datasets),
            body,
        )
        most = partial(_largest, request, seeds, sizes, steps=request.steps)
        return self._sessions.open(document, opening, most).receipt

    def answer(self, origin: str, session: bytes, step: int, body: bytes, chosen: Ranges = ()) -> FieldArray:
        """A helper's share of one step, with its noise."""
        prepared = self.prepare(origin, session)
        for dataset in prepared.datasets:
            self._find(origin, dataset.digest)  # It may have expired since the session was opened.
        _check_chosen(prepared, chosen)
        # Before the step is taken: what is wrong with a body must not use a step up.
        question = prepared.steps.at(body, prepared.shared(step))
        column = _only_column(question)
        _check_range(prepared, column)
        digest = body_digest(body, chosen)
        seed = self._sessions.take(origin, session, step, digest, prepared.engine)
        share = _share(prepared, question, prepared.rows(step, chosen))
        if prepared.request.noise is None:
            return share
        noise = mechanisms.draw(prepared.kind, prepared.request.noise, column.sensitivity, seed, share.size)
        return field.add(share, field.from_signed(noise))

    def close(self, origin: str, session: bytes) -> SignedReceipt:
        """Give back what was not used."""
        prepared = self.prepare(origin, session)
        most = partial(_largest, prepared.request, prepared.seeds, prepared.sizes, prepared.firsts)
        return self._sessions.close(prepared.document, session, most)

    def prepare(self, origin: str, session: bytes) -> Prepared:
        """All that the steps of a session need: made once, kept, and made again after a restart."""
        with self._lock:
            if (found := self._prepared.get((origin, session))) is not None:
                return found
        made = self._prepare(origin, session)
        with self._lock:
            if len(self._prepared) >= MOST_PREPARED:
                self._prepared.pop(next(iter(self._prepared)))
            return self._prepared.setdefault((origin, session), made)

    def _prepare(self, origin: str, session: bytes) -> Prepared:
        line = self._sessions.find(origin, session)
        request = decode_session(line.body)
        datasets = self._datasets(origin, request)
        document, function = datasets[0].document, self._function(request.function)
        kind = document.mechanisms[datasets[0].purpose.value].kind
        course = None if line.opened.course is None else line.opened.course.course()
        return Prepared(
            request,
            document,
            kind,
            engine(course, request.function, function.version),
            function.begin(document, request.tag, request.arguments),
            datasets,
            tuple(self._seeds(origin, dataset.digest) for dataset in datasets),
            line.opened.slots,
        )

    def _datasets(self, origin: str, request: SessionRequest) -> tuple[Dataset, ...]:
        found = tuple(self._find(origin, bytes.fromhex(digest)) for digest in request.datasets)
        if len({each.digest for each in found}) < len(found):
            raise MixedDatasets("a dataset is named twice: each counts once")
        if len({(each.document.digest, each.purpose) for each in found}) > 1:
            raise MixedDatasets("datasets of one session are of one purpose and document")
        if self._function(request.function).purpose is not found[0].purpose:
            raise OtherPurpose(f"{request.function} is not over reports to {found[0].purpose}")
        return found

    def _function(self, name: str) -> SteppedFunction:
        if name not in self._functions:
            known = ", ".join(sorted(self._functions)) or "none"
            raise UnknownFunction(f"no session of {name!r} is opened here; there are {known}")
        return self._functions[name]

    @staticmethod
    def _course(request: SessionRequest, document: Document, datasets: Sequence[Dataset]) -> Course | None:
        """What a session is charged as."""
        mechanism = document.mechanisms[Purpose.TRAIN.value]
        records = sum(dataset.size(request.tag) for dataset in datasets)
        _check_size(request, document, records)
        if request.noise is None:
            randomised.check(document, request.tag)
            return None
        if request.noise < mechanism.noise_floor:
            raise NoiseTooSmall(f"noise {request.noise:g} is below the declared {mechanism.noise_floor:g}")
        return sampling.course(
            request.sampling,
            mechanism.kind,
            request.noise,
            request.steps,
            request.delta,
            records=records,
            k=document.k,
        )


def _share(prepared: Prepared, question: Question, rows: Sequence[Rows]) -> FieldArray:
    """The batch's sum; below k nothing, after the same work: time must not tell what the answer hides."""
    records = [prepared.take(dataset, each) for dataset, each in zip(prepared.datasets, rows, strict=True)]
    (table,) = question.share(records, prepared.document.k)
    (share,) = table.shares
    enough = sum(map(len, rows)) >= prepared.document.k
    return np.ascontiguousarray(share[0]) if enough else np.zeros(share.shape[1], np.int64)


def _only_column(question: Question) -> Column:
    (column,) = question.columns
    return column


def _check_size(request: SessionRequest, document: Document, records: int) -> None:
    if records < document.k:
        raise TooFewRecords(f"fewer than k = {document.k} records: nothing is released over so few")
    if records > document.most_records:
        raise TooManyRecords(f"a step is over at most {document.most_records} records: ask over fewer")
    if request.sampling.rate is not None and request.steps * records > MOST_DRAWN:
        raise BadArguments(
            f"{request.steps} steps over {records} records: steps times records are at most {MOST_DRAWN}"
        )


def _check_range(prepared: Prepared, column: Column) -> None:
    """Before a step is taken: no sum over all records, with the noise of all helpers, may leave the field."""
    noise, largest, tail = prepared.request.noise, column.largest, 0
    if noise is None:
        largest *= randomised.growth(prepared.document.trained(prepared.request.tag))
    else:
        tail = mechanisms.tail(prepared.kind, noise, column.sensitivity, len(prepared.document.helpers))
    if sum(prepared.sizes) * largest + tail > field.HALF:
        raise FieldOverflow(
            "so many records, with this noise, could leave the field: send coarser weights, lower the "
            "fraction, or ask over fewer records"
        )


def _check_chosen(prepared: Prepared, chosen: Ranges) -> None:
    if bool(chosen) != (prepared.request.sampling.kind == "chosen"):
        raise BadArguments("records are named by steps of sessions that choose them, and by no others")
    if any(not 0 <= start < stop <= sum(prepared.sizes) for start, stop in chosen):
        raise BadArguments(f"records are numbered from 0 to {sum(prepared.sizes)}")


def body_digest(body: bytes, chosen: Ranges) -> bytes:
    """Of all that a step brings. Run by helpers, and by who audits them with a helper's folder."""
    named = b"".join(start.to_bytes(8, "big") + stop.to_bytes(8, "big") for start, stop in chosen)
    return hashlib.sha256(len(named).to_bytes(8, "big") + named + body).digest()


def _largest(
    request: SessionRequest, seeds: Sequence[bytes], sizes: Sequence[int], firsts: Sequence[int], steps: int
) -> int:
    """The most batches, of so many first steps, that one record is in."""
    rate, most = request.sampling.rate, 0
    if rate is None:
        return 0
    for seed, size, first in zip(seeds, sizes, firsts, strict=True):
        most = max(most, batches.most_batches(seed, request.tag, range(first, first + steps), rate, size))
    return most
