"""Sending a dataset to all helpers at once: several chunks in flight to each, read page by page, resumable.

Every answer is kept durably before the next chunk is taken. So after a crash only what is missing is sent: a
chunk that a helper has not received, or whose answer did not arrive here (the helper gives the same again).
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from maskedlark.adserver.dataset_store import Dataset, Datasets
from maskedlark.adserver.errors import HelpersDiffer
from maskedlark.adserver.remote_helper import RemoteHelper
from maskedlark.adserver.report_store import Mark, Reports, StoredReport
from maskedlark.errors import MaskedLarkError
from maskedlark.web.errors import DatasetRefused
from maskedlark.wire import datasets as wire
from maskedlark.wire import report, uploads
from maskedlark.wire.datasets import ChunkAnswer, State

IN_FLIGHT = 4
"""Chunks on their way to one helper at a time; they bound memory too."""
T = TypeVar("T")


class Progress(Protocol):
    """Told how far the sending to a helper is."""

    def __call__(self, helper: str, sent: int, reports: int) -> None:
        """So many of so many reports are there. Called by several threads, never by two at once."""


def silent(helper: str, sent: int, reports: int) -> None:
    """Nobody wants to know."""


@dataclass
class Sending:
    """One dataset on its way to all helpers."""

    datasets: Datasets
    reports: Reports
    dataset: Dataset
    helpers: Sequence[RemoteHelper]
    progress: Progress = silent
    _telling: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Send what is missing everywhere. An error leaves all that was sent where it is."""
        marks = self.datasets.marks(self.dataset.name)
        at_once([partial(self._send, helper, marks) for helper in self.helpers])

    def _send(self, helper: RemoteHelper, marks: Sequence[Mark]) -> None:
        """All that one helper lacks. Others go on, whatever becomes of this one."""
        missing = self._missing(helper, len(marks))
        sent = self.dataset.reports - sum(marks[number].size for number in missing)
        self._tell(helper, sent)
        queue = _Queue(missing, sent)
        at_once([partial(self._lane, helper, marks, queue)] * min(IN_FLIGHT, len(missing)))

    def _lane(self, helper: RemoteHelper, marks: Sequence[Mark], queue: "_Queue") -> None:
        """One chunk after another, until none is left."""
        while (number := queue.take()) is not None:
            try:
                self._chunk(helper, number, marks[number])
            except BaseException:
                queue.drop()  # What is on its way arrives; nothing more is begun.
                raise
            self._tell(helper, queue.done(marks[number].size))

    def _missing(self, helper: RemoteHelper, chunks: int) -> list[int]:
        """The chunks that the helper has not received, or whose answer is not kept here."""
        name, selection = self.dataset.name, self.dataset.selection
        state = helper.open(name, selection.parameters, selection.purpose, self.dataset.opening)
        _check_state(helper, self.dataset, state)
        kept = self.datasets.answered(name, helper.name)
        there = kept if state.state == "sealed" else kept & set(state.chunks)
        missing = [number for number in range(chunks) if number not in there]
        if missing and state.state == "sealed":
            raise HelpersDiffer(
                f"{helper.name} has sealed {name}, but its answers are not in this database: "
                "put the newest copy of the database back"
            )
        return missing

    def _chunk(self, helper: RemoteHelper, number: int, mark: Mark) -> None:
        name, page = self.dataset.name, chunk(self.reports, self.dataset, number, mark)
        parts = [report.decode(stored.data).part(helper.place) for stored in page]
        answer = helper.chunk(name, number, uploads.encode_batch(parts), self.dataset.opening)
        _check_answer(helper, answer, mark.size)
        self.datasets.keep(name, number, helper.name, answer)

    def _tell(self, helper: RemoteHelper, sent: int) -> None:
        with self._telling:
            self.progress(helper.name, sent, self.dataset.reports)


def chunk(reports: Reports, dataset: Dataset, number: int, mark: Mark) -> list[StoredReport]:
    """The reports of a chunk, as they were frozen."""
    found = reports.page(dataset.selection, mark, mark.size)
    if len(found) != mark.size:
        raise DatasetRefused(
            f"chunk {number} of {dataset.name} lost reports since it was frozen: nothing may be deleted from "
            f"a dataset. `datasets abort {dataset.name}`, and freeze again"
        )
    return found


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of calls that run at the same time. Waits for all, then raises what went wrong first."""
    if not calls:
        return []
    with ThreadPoolExecutor(len(calls)) as pool:
        running = [pool.submit(call) for call in calls]
    return [each.result() for each in running]


class _Queue:
    """The chunks that one helper still lacks, shared by its lanes, and how many reports are there."""

    def __init__(self, missing: Sequence[int], sent: int) -> None:
        self._waiting = deque(missing)
        self._sent = sent
        self._lock = threading.Lock()

    def take(self) -> int | None:
        """The next chunk; none if none is left."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def drop(self) -> None:
        """Begin no more."""
        with self._lock:
            self._waiting.clear()

    def done(self, size: int) -> int:
        """A chunk is there; returns how many reports are."""
        with self._lock:
            self._sent += size
            return self._sent


def _check_state(helper: RemoteHelper, dataset: Dataset, state: State) -> None:
    selection = dataset.selection
    same = (selection.parameters.hex(), selection.purpose.value, dataset.name, dataset.opening.hex())
    if (state.parameters, state.purpose, state.name, state.opening) != same:
        raise HelpersDiffer(f"{helper.name} has another dataset under the name {dataset.name}")
    if state.state == "expired":
        raise DatasetRefused(f"{dataset.name} has expired at {helper.name}: freeze newer reports")


def _check_answer(helper: RemoteHelper, answer: ChunkAnswer, parts: int) -> None:
    """A bitmap of the chunk's parts whose refusals add up."""
    try:
        accepted = int(wire.unpack(answer.accepted, answer.parts).sum())
    except MaskedLarkError as error:
        raise HelpersDiffer(f"{helper.name} answered a chunk with {error}") from None
    if answer.parts != parts or accepted + sum(answer.refused.values()) != parts:
        raise HelpersDiffer(f"{helper.name} answered for other than the {parts} parts of a chunk")
