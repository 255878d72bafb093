"""Sending a dataset to all helpers at once: several chunks in flight to each, read page by page, resumable.

Every answer is kept durably before the next chunk is sent. So after a crash only what is missing is sent: a
chunk that a helper has not received, or whose answer did not arrive here (the helper gives the same again).
Run on the ad server's machine.
"""

import threading
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from maskedlark.adserver.dataset_store import Dataset, Datasets
from maskedlark.adserver.errors import HelpersDiffer
from maskedlark.adserver.remote_helper import RemoteHelper, at_once
from maskedlark.adserver.report_store import ChunkStart, Reports, StoredReport
from maskedlark.errors import MaskedLarkError
from maskedlark.web.errors import DatasetRefused
from maskedlark.wire import datasets as wire
from maskedlark.wire import report, uploads
from maskedlark.wire.datasets import ChunkAnswer, State

IN_FLIGHT = 4
"""Chunks on their way to one helper at a time; they bound memory too."""


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
    _sent: Counter[str] = field(default_factory=Counter)
    """Reports that are there, by helper."""
    _telling: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Send what is missing everywhere. An error leaves all that was sent where it is."""
        chunks = self.datasets.chunks(self.dataset.name)
        at_once([partial(self._send, helper, chunks) for helper in self.helpers])

    def _send(self, helper: RemoteHelper, chunks: Sequence[ChunkStart]) -> None:
        """All that one helper lacks. Others go on, whatever becomes of this one."""
        missing = self._missing(helper, len(chunks))
        self._tell(helper, self.dataset.reports - sum(chunks[number].size for number in missing))
        lane = partial(self._lane, helper, chunks, deque(missing))
        at_once([lane] * min(IN_FLIGHT, len(missing)))

    def _lane(self, helper: RemoteHelper, chunks: Sequence[ChunkStart], waiting: deque[int]) -> None:
        """One chunk after another, until none is left: the lanes of a helper share what waits."""
        while True:
            try:
                number = waiting.popleft()
            except IndexError:
                return
            try:
                self._chunk(helper, number, chunks[number])
            except BaseException:
                waiting.clear()  # What is on its way arrives; nothing more is begun.
                raise
            self._tell(helper, chunks[number].size)

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

    def _chunk(self, helper: RemoteHelper, number: int, start: ChunkStart) -> None:
        name, page = self.dataset.name, chunk(self.reports, self.dataset, number, start)
        parts = [report.decode(stored.data).part(helper.place) for stored in page]
        answer = helper.chunk(name, number, uploads.encode_batch(parts), self.dataset.opening)
        _check_answer(helper, answer, start.size)
        self.datasets.keep(name, number, helper.name, answer)

    def _tell(self, helper: RemoteHelper, more: int) -> None:
        """So many more reports are there."""
        with self._telling:
            self._sent[helper.name] += more
            self.progress(helper.name, self._sent[helper.name], self.dataset.reports)


def chunk(reports: Reports, dataset: Dataset, number: int, start: ChunkStart) -> list[StoredReport]:
    """The reports of a chunk, as they were selected."""
    page = reports.page(dataset.selection, start, start.size)
    if len(page) != start.size:
        raise DatasetRefused(
            f"chunk {number} of {dataset.name} lost reports since it was frozen: nothing may be deleted from "
            f"a dataset. `datasets abort {dataset.name}`, and freeze again"
        )
    return page


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
