"""Sessions and their steps: the way out for gradients, as `release` is for answers. Run by a helper.

A session is checked and charged whole when it is opened. A step then goes in this order: its body is checked;
the step is taken, durably, by that body; the batch is drawn; the share is computed, over as many records as
everybody may know; below k nobody in the batch counts, and only noise is left; every helper adds all of the
noise, and its mask. The answer is kept, and given again for the same body until the next step.
"""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from maskedlark.core import batches, field
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.dp import mechanisms, sampling
from maskedlark.dp.mechanisms import Kind
from maskedlark.dp.session_charge import Course
from maskedlark.errors import BadArguments, FieldOverflow, NoiseTooSmall
from maskedlark.functions.function import Column, Question, SteppedFunction, Steps
from maskedlark.ledger.receipt import SignedReceipt
from maskedlark.ledger.sessions import Opening, Sessions, engine
from maskedlark.parameters import randomised
from maskedlark.parameters.document import Document
from maskedlark.release import zero_sum
from maskedlark.release.errors import (
    MixedDatasets,
    OtherPurpose,
    TooFewRecords,
    TooManyRecords,
    UnknownFunction,
)
from maskedlark.release.kept_answers import KeptAnswers
from maskedlark.release.messages import SessionRequest, decode_session
from maskedlark.release.parts import Batches
from maskedlark.release.release import Dataset, Seeds, place_of
from maskedlark.wire.steps import Ranges

MOST_PREPARED = 64
"""Sessions whose networks and datasets are kept in memory."""
_SHARED = b"maskedlark v2 step randomness"


@dataclass(frozen=True, repr=False)
class Prepared:
    """A session that is open, with all that its steps need."""

    request: SessionRequest
    question: bytes
    """The digest of the request's bytes."""
    document: Document
    kind: Kind
    computed: str
    """What the same share is computed with: the function's engine, and how batches are drawn."""
    course: Course | None
    steps: Steps
    datasets: tuple[Dataset, ...]
    seeds: tuple[bytes, ...]
    batches: Batches

    @property
    def engine(self) -> str:
        """What the same answers are made with."""
        return engine(self.course, self.computed)

    @property
    def expires(self) -> int:
        """When the first of its datasets is gone."""
        return min(dataset.expires for dataset in self.datasets)

    @property
    def records(self) -> int:
        """Of the model, in all datasets."""
        return sum(dataset.size(self.request.tag) for dataset in self.datasets)

    def slots(self, step: int) -> bytes:
        """The step's slot in every dataset."""
        return b"".join((first + step).to_bytes(8, "big") for first in self.request.slots)

    def shared(self, step: int) -> bytes:
        """A secret of all helpers for one step: what a function makes random is the same at each."""
        return hashlib.sha256(_SHARED + b"".join(self.seeds) + self.slots(step)).digest()

    def mask_key(self, step: int, body: bytes, size: int) -> bytes:
        """Of the masks on a step's answer. `body`: its digest, and that of the records it names."""
        return zero_sum.key(
            self.seeds,
            self.document.digest,
            [dataset.digest for dataset in self.datasets],
            self.question,
            bytes.fromhex(self.request.id),
            self.slots(step),
            body,
            self.computed.encode(),
            self.batches.most(step).to_bytes(8, "big"),
            size.to_bytes(8, "big"),
        )

    def share(self, question: Question, step: int, chosen: Ranges) -> FieldArray:
        """The batch's sum; below k nothing, after the same work: time must not tell what the answer hides."""
        work = self.batches.work(step, chosen).at_least(self.document.k)
        gathered = work.gather([dataset.records(self.request.tag) for dataset in self.datasets])
        if self.request.noise is None:
            declared = self.document.trained(self.request.tag)
            gathered = randomised.unbiased(gathered, declared, len(self.document.helpers))
        (table,) = question.share([work.only_counted(gathered)], self.document.k)
        return np.ascontiguousarray(table.shares[0][0])


class StepDesk:
    """Where sessions are opened, and their steps answered."""

    def __init__(
        self,
        helper: str,
        sessions: Sessions,
        functions: Mapping[str, SteppedFunction],
        seeds: Seeds,
        find: Callable[[str, bytes], Dataset],
        kept: KeptAnswers,
    ) -> None:
        self._helper, self._kept = helper, kept
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
        # Before it is charged: without their seeds no step is answered.
        for dataset in datasets:
            self._seeds(dataset.document, dataset.digest)
        opening = Opening(
            bytes.fromhex(request.id),
            hashlib.sha256(body).digest(),
            request.function,
            _computed(function),
            request.tag,
            tuple(dataset.digest for dataset in datasets),
            request.slots,
            request.steps,
            request.sampling,
            self._course(request, document, datasets),
            body,
            min(dataset.expires for dataset in datasets),
        )
        return self._sessions.open(document, opening).receipt

    def answer(self, origin: str, session: bytes, step: int, body: bytes, chosen: Ranges = ()) -> FieldArray:
        """A helper's share of one step, with its noise and mask."""
        prepared = self.prepare(origin, session)
        for dataset in prepared.datasets:
            self._find(origin, dataset.digest)  # It may have expired since the session was opened.
        _check_chosen(prepared, chosen)
        # Before the step is taken: what is wrong with a body must not use a step up.
        question = prepared.steps.at(body, prepared.shared(step))
        _check_range(prepared, _only_column(question))
        asked = hashlib.sha256(step.to_bytes(8, "big") + (digest := body_digest(body, chosen))).digest()
        with self._kept.room(origin, session, field.BYTES * _only_column(question).width) as room:
            seed = self._sessions.take(origin, session, step, digest, prepared.engine, prepared.seeds)
            if (before := self._kept.read(origin, session, asked)) is not None:
                return field.from_bytes(before)
            answer = self._answer(prepared, question, step, digest, chosen, seed)
            self._kept.write(room, origin, session, asked, field.to_bytes(answer), prepared.expires)
        return answer

    def _answer(
        self, prepared: Prepared, question: Question, step: int, digest: bytes, chosen: Ranges, seed: bytes
    ) -> FieldArray:
        share, noise = prepared.share(question, step, chosen), prepared.request.noise
        if noise is not None:
            sensitivity = _only_column(question).sensitivity
            drawn = mechanisms.draw(prepared.kind, noise, sensitivity, seed, share.size)
            share = field.add(share, field.from_signed(drawn))
        key, helpers = prepared.mask_key(step, digest, share.size), len(prepared.document.helpers)
        return zero_sum.masked(share, key, place_of(prepared.document, self._helper), helpers)

    def close(self, origin: str, session: bytes) -> SignedReceipt:
        """Give back what was not used."""
        prepared = self.prepare(origin, session)
        signed = self._sessions.close(prepared.document, session)
        self._kept.remove(origin, session)
        self._drop(lambda name, _: name == (origin, session))
        return signed

    def forget(self, now: int) -> None:
        """Let go of what expired: seeds and columns of it must not stay in memory. Run every hour."""
        self._drop(lambda _, prepared: prepared.expires <= now)

    def _drop(self, is_over: Callable[[tuple[str, bytes], Prepared], bool]) -> None:
        with self._lock:
            self._prepared = {n: each for n, each in self._prepared.items() if not is_over(n, each)}

    def prepare(self, origin: str, session: bytes) -> Prepared:
        """All that the steps of a session need: made once, kept, and made again after a restart."""
        with self._lock:
            if (found := self._prepared.pop((origin, session), None)) is not None:
                self._prepared[origin, session] = found  # The last one to go.
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
        seeds = tuple(self._seeds(dataset.document, dataset.digest) for dataset in datasets)
        course = None if line.opened.course is None else line.opened.course.course()
        return Prepared(
            request,
            hashlib.sha256(line.body).digest(),
            document,
            document.mechanisms[datasets[0].purpose.value].kind,
            _computed(function),
            course,
            function.begin(document, request.tag, request.arguments),
            datasets,
            seeds,
            batches_of(request, course, seeds, [dataset.size(request.tag) for dataset in datasets]),
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
        _check_size(document, records)
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


def batches_of(
    request: SessionRequest, course: Course | None, seeds: Sequence[bytes], sizes: Sequence[int]
) -> Batches:
    """The batches of a session. `sizes`: records of the model, by dataset. Run by helpers."""

    def most(step: int) -> int:
        assert course is not None
        allowed = sampling.most_batches(request.sampling, course, request.sampling.uses(step + 1))
        return min(course.batches, allowed)

    limit = None if course is None else most
    return Batches(request.sampling, request.tag, seeds, request.slots, sizes, limit)


def _computed(function: SteppedFunction) -> str:
    return f"{function.engine}, batches {batches.VERSION}"


def _only_column(question: Question) -> Column:
    (column,) = question.columns
    return column


def _check_size(document: Document, records: int) -> None:
    if records < document.k:
        raise TooFewRecords(f"fewer than k = {document.k} records: nothing is released over so few")
    if records > document.most_records:
        raise TooManyRecords(f"a step is over at most {document.most_records} records: ask over fewer")


def _check_range(prepared: Prepared, column: Column) -> None:
    """Before a step is taken: no sum over all records, with the noise of all helpers, may leave the field."""
    noise, largest, tail = prepared.request.noise, column.largest, 0
    if noise is None:
        largest *= randomised.growth(prepared.document.trained(prepared.request.tag))
    else:
        tail = mechanisms.tail(prepared.kind, noise, column.sensitivity, len(prepared.document.helpers))
    if prepared.records * largest + tail > field.HALF:
        raise FieldOverflow(
            "so many records, with this noise, could leave the field: send coarser weights, lower the "
            "fraction, or ask over fewer records"
        )


def _check_chosen(prepared: Prepared, chosen: Ranges) -> None:
    if bool(chosen) != (prepared.request.sampling.kind == "chosen"):
        raise BadArguments("records are named by steps of sessions that choose them, and by no others")
    if any(not 0 <= start < stop <= prepared.records for start, stop in chosen):
        raise BadArguments(f"records are numbered from 0 to {prepared.records}")


def body_digest(body: bytes, chosen: Ranges) -> bytes:
    """Of all that a step brings. Run by helpers, and by who audits them with a helper's folder."""
    named = b"".join(start.to_bytes(8, "big") + stop.to_bytes(8, "big") for start, stop in chosen)
    return hashlib.sha256(len(named).to_bytes(8, "big") + named + body).digest()
