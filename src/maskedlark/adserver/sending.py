"""Sends a dataset to all helpers at once, several chunks in flight to each. Run on the ad server's machine.

Every answer is stored durably before the next chunk is sent. So after a crash only what is missing is sent: a
chunk that a helper has not received, or whose answer did not arrive here (the helper gives the same again).

Where reports are checked, the first helper's check key is relayed before chunks, and every helper's check
message is stored with its answer (`checking.py` relays those).
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from rich import progress as rich
from rich.console import Console
from rich.markup import escape

from maskedlark.adserver.dataset_store import Dataset, Datasets
from maskedlark.adserver.errors import HelpersDiffer
from maskedlark.adserver.remote_helper import RemoteHelper, at_once, few_at_once
from maskedlark.adserver.report_store import ChunkStart, Reports
from maskedlark.core.sharing import ByteRows
from maskedlark.errors import MaskedLarkError
from maskedlark.parameters.document import Document
from maskedlark.release import check_messages
from maskedlark.web.errors import DatasetRefused
from maskedlark.wire import datasets as wire
from maskedlark.wire.datasets import ChunkAnswer, State
from maskedlark.wire.decrypt import ids_of

IN_FLIGHT = 4
"""Chunks on their way to one helper at a time; this also bounds memory: twice as many are kept for others."""

Progress = Callable[[str, int, int], object]
"""Called with helper or stage, what is done, and all of it: by several threads, never by two at once."""


@contextmanager
def bars(watched: bool, transient: bool = False) -> Iterator[Progress]:
    """A progress bar per helper on standard error, if someone is watching; not part of the output."""
    bar = rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeElapsedColumn(), rich.TimeRemainingColumn()
    tasks: dict[str, rich.TaskID] = {}
    console = Console(stderr=True)
    with rich.Progress(
        "{task.description}", *bar, console=console, transient=transient, disable=not watched
    ) as shown:

        def progress(helper: str, sent: int, reports: int) -> None:
            if helper not in tasks:
                tasks[helper] = shown.add_task(escape(helper), total=reports)
            shown.update(tasks[helper], completed=sent)

        yield progress


@dataclass
class Sending:
    """One dataset on its way to all helpers."""

    datasets: Datasets
    reports: Reports
    dataset: Dataset
    document: Document
    helpers: Sequence[RemoteHelper]
    progress: Progress | None = None
    _sent: Counter[str] = field(default_factory=Counter)
    """Reports sent so far, by helper."""
    _telling: threading.Lock = field(default_factory=threading.Lock)
    _read: dict[int, Future[list[bytes]]] = field(default_factory=dict, repr=False)
    """The chunks that were read last, by number, while they are sent."""
    _reading: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Send what any helper lacks. After an error, what was sent stays."""
        chunks = self.datasets.chunks(self.dataset.name)
        if self.document.checked:
            self._relay_check_key()
        at_once([partial(self._send, helper, chunks) for helper in self.helpers])
        self._read.clear()

    def _relay_check_key(self) -> None:
        """Hand the first helper's check key to all others: whoever has it pinned changes nothing."""
        (first, *others), parameters = self.helpers, self.document.digest.hex()
        message = first.make_check_key(parameters)
        at_once([partial(helper.relay_check_key, parameters, message) for helper in others])

    def _send(self, helper: RemoteHelper, chunks: Sequence[ChunkStart]) -> None:
        """Send what one helper lacks. The others continue, whatever becomes of this one."""
        missing = self._missing(helper, len(chunks))
        self._tell(helper, self.dataset.reports - sum(chunks[number].size for number in missing))
        few_at_once([partial(self._chunk, helper, number, chunks[number]) for number in missing], IN_FLIGHT)

    def _missing(self, helper: RemoteHelper, chunks: int) -> list[int]:
        """The chunks that the helper has not received, or whose answer is not stored here."""
        name, selection = self.dataset.name, self.dataset.selection
        before = self.datasets.answered(name, helper.name)
        state = helper.open(name, selection.parameters, selection.purpose, self.dataset.attempt)
        check_state(helper, self.dataset, state)
        if state.state == "open":
            # A helper that was restored lacks its verdicts on these too. Read before it was asked, so that
            # what another client has just sent is not among them.
            self.datasets.forget(name, helper.name, before - set(state.chunks))
        kept = self.datasets.answered(name, helper.name)
        there = kept if state.state == "frozen" else kept & set(state.chunks)
        missing = [number for number in range(chunks) if number not in there]
        if missing and state.state == "frozen":
            raise HelpersDiffer(
                f"{helper.name} has frozen {name}, but its answers are not in this database: "
                "put the newest copy of the database back"
            )
        return missing

    def _chunk(self, helper: RemoteHelper, number: int, start: ChunkStart) -> None:
        name = self.dataset.name
        layout = self.document.layout(self.dataset.selection.purpose)
        parts = layout.parts(self._read_once(number, start), helper.place)
        answer = helper.chunk(name, number, wire.encode_chunk(parts), self.dataset.attempt)
        _check_answer(helper, answer, start.size)
        checks = None
        if self.document.checked:
            checks = helper.checks(name, number, self.dataset.attempt)
            accepted = wire.unpack(answer.accepted, answer.parts)
            _check_checks(helper, self.document, checks, ids_of(parts[accepted]))
        self.datasets.keep(name, number, helper.name, answer, checks)
        self._tell(helper, start.size)

    def _read_once(self, number: int, start: ChunkStart) -> list[bytes]:
        """The reports of a chunk, read once for helpers that are equally far."""
        with self._reading:
            reads = number not in self._read
            if reads and len(self._read) >= 2 * IN_FLIGHT:
                del self._read[next(iter(self._read))]
            read = self._read.setdefault(number, Future())
        if not reads:
            with suppress(CancelledError):
                return read.result()
            return self.stored(number, start)  # Whoever read it failed, for itself alone.
        try:
            read.set_result(self.stored(number, start))
        finally:
            if read.cancel():  # Only if there is no result.
                with self._reading:
                    self._read.pop(number, None)
        return read.result()

    def stored(self, number: int, start: ChunkStart) -> list[bytes]:
        """The reports of a chunk, as they were selected."""
        reports, name = self.reports.chunk(self.dataset.selection, start), self.dataset.name
        if len(reports) != start.size:
            raise DatasetRefused(
                f"chunk {number} of {name} lost reports since it was selected: nothing may be deleted from "
                f"a dataset. `datasets abort {name}`, and select again"
            )
        return reports

    def stage(self, what: str, done: int, of: int) -> None:
        """Report how far something other than sending is."""
        with self._telling:
            if self.progress is not None:
                self.progress(what, done, of)

    def _tell(self, helper: RemoteHelper, more: int) -> None:
        """Report progress: `more` reports have arrived."""
        with self._telling:
            self._sent[helper.name] += more
            if self.progress is not None:
                self.progress(helper.name, self._sent[helper.name], self.dataset.reports)


def check_state(helper: RemoteHelper, dataset: Dataset, state: State) -> None:
    """The state of this dataset, which has not expired."""
    selection = dataset.selection
    same = (selection.parameters.hex(), selection.purpose.value, dataset.name, dataset.attempt.hex())
    if (state.parameters, state.purpose, state.name, state.attempt) != same:
        raise HelpersDiffer(f"{helper.name} has another dataset under the name {dataset.name}")
    if state.state == "expired":
        raise DatasetRefused(f"{dataset.name} has expired at {helper.name}: select newer reports")


def _check_checks(helper: RemoteHelper, document: Document, message: bytes, ids: ByteRows) -> None:
    """The helper's own message, of the parts that it accepted, in their order."""
    checks = check_messages.verify(message, document, helper.place)
    if not np.array_equal(checks.ids, ids):
        raise HelpersDiffer(f"{helper.name} gave a check message of other reports than it accepted")


def _check_answer(helper: RemoteHelper, answer: ChunkAnswer, parts: int) -> None:
    """A bitmap of the chunk's parts whose refusals add up."""
    try:
        accepted = int(wire.unpack(answer.accepted, answer.parts).sum())
    except MaskedLarkError as error:
        raise HelpersDiffer(f"{helper.name} answered a chunk with {error}") from None
    if answer.parts != parts or accepted + sum(answer.refused.values()) != parts:
        raise HelpersDiffer(f"{helper.name} answered for other than the {parts} parts of a chunk")
