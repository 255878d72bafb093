"""Uploads: a batch comes in as bytes and goes out as one answer per report. Run by the ad server.

Waiting uploads are stored together: a commit of a hundred costs the disk about as much as one, and SQLite has
one at a time. So an upload that finds one under way waits, and the first to wake stores for all that wait.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from maskedlark.adserver.config import Limits
from maskedlark.adserver.errors import Conflict, UndeclaredReport, UploadRefused, WrongHour, WrongOrigin
from maskedlark.adserver.report_store import Arrival, Outcome, Reports
from maskedlark.clock import Clock, hour_of
from maskedlark.core.purpose import Purpose
from maskedlark.errors import DecodeError, WrongLength
from maskedlark.parameters.document import Document
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web.clock_check import ClockCheck
from maskedlark.wire import report, uploads
from maskedlark.wire.report import Prefix, ReportLayout
from maskedlark.wire.uploads import Answer, Verdict

EVERY_S = 1.0
"""Between two requests for documents, whoever wants them."""
SETTLE_S = 5.0
_LOG = logging.getLogger(__name__)


def _refusal(error: type[DecodeError | UploadRefused]) -> Answer:
    return Answer(outcome=Verdict.REFUSED, error=error.__name__)


_ANSWERS = {
    Outcome.STORED: Answer(outcome=Verdict.STORED),
    Outcome.DUPLICATE: Answer(outcome=Verdict.DUPLICATE),
    Outcome.CONFLICT: _refusal(Conflict),
}

Documents = Callable[[], Iterable[Document]]
"""Asks for all documents of the origin, now: raises if they cannot be had, after those seen before."""


class ReportLayouts:
    """The layouts that the documents of an origin declare. Threads may share it.

    None of them waits: one thread asks for all that is unknown, at most once in `EVERY_S`. Strangers may send
    any number of random digests, so neither work nor memory may depend on how many there are.
    """

    def __init__(self, origin: str, documents: Documents, max_bytes: int = report.MAX_BYTES) -> None:
        self._origin, self._documents, self._max_bytes = origin, documents, max_bytes
        self._by_prefix: dict[bytes, ReportLayout | None] = {}
        """None where a document does not declare the purpose."""
        self._lock, self._wanted, self._begun = threading.Lock(), False, -math.inf
        self._asker: threading.Thread | None = None
        self._closed = threading.Event()
        self._want()
        self.settle()

    def find(self, data: bytes) -> ReportLayout | None:
        """The layout of a report. None, and it is asked for, while no document of its digest is known."""
        key = data[: report.prefix_size(data)]
        if key not in self._by_prefix:
            if report.decode_prefix(data).origin != self._origin:
                raise WrongOrigin("a report for another ad server")
            self._want()
            return None
        if (known := self._by_prefix[key]) is None:
            raise UndeclaredReport("a report for a purpose that its document does not declare")
        return known

    def settle(self) -> None:
        """Wait until all that is unknown was asked for, at most `SETTLE_S`. Run when nobody is served."""
        if asker := self._asker:
            asker.join(SETTLE_S)

    def close(self) -> None:
        """Ask no more. Run when the ad server stops."""
        self._closed.set()
        self.settle()

    def _want(self) -> None:
        with self._lock:
            self._wanted = True
            if self._asker is None:
                asker = threading.Thread(target=self._run, name="documents", daemon=True)
                asker.start()
                self._asker = asker

    def _run(self) -> None:
        while not self._closed.wait(max(0.0, self._begun + EVERY_S - time.monotonic())):
            # Before asking: what is wanted from now on may be newer than the answer.
            self._wanted, self._begun = False, time.monotonic()
            self._ask()
            with self._lock:
                if not self._wanted:
                    self._asker = None
                    return

    def _ask(self) -> None:
        try:
            for document in self._documents():
                for purpose in Purpose:
                    self._learn(document, purpose)
        except Exception as error:  # noqa: BLE001 - whatever it is, no report is refused for it
            _LOG.warning("the documents of this origin cannot be had: %s: %s", type(error).__name__, error)

    def _learn(self, document: Document, purpose: Purpose) -> None:
        layout = document.layout(purpose) if purpose in document.purposes() else None
        key = Prefix(purpose, document.digest, document.origin).encode()
        if layout and layout.size > self._max_bytes and key not in self._by_prefix:
            _LOG.error("reports of %d bytes are refused: report_bytes is too small", layout.size)
        self._by_prefix[key] = layout


class UploadHandler:
    """Checks form, origin and hour of every report, and stores those that pass."""

    def __init__(
        self,
        origin: str,
        reports: Reports,
        clock: Clock,
        documents: Documents,
        limits: Limits,
        clock_check: ClockCheck | None = None,
    ) -> None:
        self._clock, self.limits, self._clock_check = clock, limits, clock_check
        self.layouts = ReportLayouts(origin, documents, limits.report_bytes)
        self._commits = GroupCommit(reports, limits.reports, limits.body_bytes)

    def accept(self, body: bytes) -> list[Answer]:
        """Answers in the reports' order; what is stored is durable. A bad report does not affect others."""
        framed = uploads.decode_batch(body, self.limits.reports, report.MAX_BYTES)
        checked = list(self._check(framed))
        arrivals = [each for each in checked if isinstance(each, Arrival)]
        stored = iter(self._commits.store(arrivals) if arrivals else [])
        # Say "stored" only here, after the commit: the browser then deletes the report.
        return [each if isinstance(each, Answer) else _ANSWERS[next(stored)] for each in checked]

    def _check(self, framed: Sequence[bytes]) -> Iterator[Arrival | Answer]:
        """Every report as it is to be stored, or why it is not."""
        hour = hour_of(self._clock.now())
        hours = range(hour - self.limits.hours_behind, hour + self.limits.hours_ahead + 1)
        for data in framed:
            try:
                yield self._judge(data, hours)
            except (DecodeError, UploadRefused) as error:
                yield _refusal(type(error))

    def _judge(self, data: bytes, hours: range) -> Arrival | Answer:
        if len(data) > self.limits.report_bytes:
            raise WrongLength(f"a report of more than {self.limits.report_bytes} bytes")
        layout = self.layouts.find(data)
        head = layout.head(data) if layout else report.decode_head(data)
        is_timely = head.hour in hours
        if not is_timely and (self._clock_check is None or self._clock_check.is_confirmed):
            raise WrongHour("a report of an hour too far from now")
        # Never refused for want of a document, which the browser may know before us, or by a wrong clock; nor
        # stored by one: it would be received at a time that is not over for long.
        is_wrong = self._clock_check is not None and self._clock_check.is_contradicted
        if layout is None or is_wrong or not is_timely:
            return Answer(outcome=Verdict.LATER)
        return Arrival(layout, head, data)


class _Upload:
    """What one caller wants stored, and what became of it."""

    def __init__(self, batch: Sequence[Arrival]) -> None:
        self.batch = batch
        self.bytes = sum(len(each.data) for each in batch)
        self.over = False
        """No other thread will store it. If `heard` is still None, its caller stores it alone."""
        self.heard: list[Outcome] | StorageUnavailable | None = None


class GroupCommit:
    """Stores batches for many threads, with the outcomes that they would get one after the other.

    It has no thread of its own: the thread that wakes first stores for those that have waited longest.
    """

    def __init__(self, reports: Reports, max_reports: int, max_bytes: int) -> None:
        self._reports = reports
        self._max_reports, self._max_bytes = max_reports, max_bytes
        self._waiting: deque[_Upload] = deque()
        self._storing = False
        self._changed = threading.Condition()

    def store(self, batch: Sequence[Arrival]) -> list[Outcome]:
        """Store a batch, durable when this returns. Returns and raises as `Reports.store` does."""
        mine = _Upload(batch)
        with self._changed:
            self._waiting.append(mine)
        while group := self._turn(mine):
            self._store(group)
        if isinstance(mine.heard, StorageUnavailable):
            # A new error: threads raising the same one would write into each other's traceback.
            raise StorageUnavailable(str(mine.heard)) from mine.heard
        # One upload of the group may be why nothing was stored: it must not affect the others.
        return self._reports.store(batch) if mine.heard is None else mine.heard

    def _turn(self, mine: _Upload) -> list[_Upload]:
        """Wait until ours is stored or nobody is storing; returns the group that we must store, if any."""
        with self._changed:
            self._changed.wait_for(lambda: mine.over or not self._storing)
            if mine.over:
                return []
            self._storing = True
            return self._next()

    def _next(self) -> list[_Upload]:
        """The first upload, and those after it that fit into the limits of a single upload."""
        group = [self._waiting.popleft()]
        reports, size = len(group[0].batch), group[0].bytes
        while self._waiting:
            reports, size = reports + len(self._waiting[0].batch), size + self._waiting[0].bytes
            if reports > self._max_reports or size > self._max_bytes:
                break
            group.append(self._waiting.popleft())
        return group

    def _store(self, group: Sequence[_Upload]) -> None:
        try:
            # In order of arrival: of reports with the same id the first is stored.
            outcomes = iter(self._reports.store([each for upload in group for each in upload.batch]))
            for upload in group:
                upload.heard = list(islice(outcomes, len(upload.batch)))
        except StorageUnavailable as failure:
            # Do not retry one by one: each would wait as long for an unavailable database.
            for upload in group:
                upload.heard = failure
        except Exception as error:  # noqa: BLE001 - each upload finds out alone whose it is
            _LOG.warning("%d uploads cannot be stored together: %s", len(group), type(error).__name__)
        finally:
            with self._changed:
                for upload in group:
                    upload.over = True
                self._storing = False
                self._changed.notify_all()
