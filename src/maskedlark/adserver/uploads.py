"""Uploads: a batch comes in as bytes and goes out as one answer per report. Run by the ad server.

Waiting uploads are stored together: a commit of a hundred costs the disk about as much as one, and SQLite has
one at a time. So an upload that finds one under way waits, and the first to wake stores for all that wait.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from maskedlark.adserver.config import Limits
from maskedlark.adserver.errors import Conflict, UndeclaredReport, UploadRefused, WrongHour, WrongOrigin
from maskedlark.adserver.report_store import Arrival, Outcome, Reports
from maskedlark.clock import Clock, hour_of
from maskedlark.errors import DecodeError, MaskedLarkError
from maskedlark.parameters.document import Document
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web.errors import ServiceAway
from maskedlark.wire import report, uploads
from maskedlark.wire.report import ReportLayout
from maskedlark.wire.uploads import Answer, Verdict

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
    """The layouts that the documents of an origin declare. Threads may share it."""

    def __init__(self, origin: str, documents: Documents) -> None:
        self._origin, self._documents = origin, documents
        self._by_prefix: dict[bytes, ReportLayout] = {}
        self._lock, self._begun, self._ended, self._away = threading.Lock(), 0, 0, False

    @property
    def moment(self) -> int:
        """A moment, for `find`: documents that were asked for after it are new enough."""
        return self._begun

    def find(self, data: bytes, arrived: int) -> ReportLayout:
        """The layout of a report that arrived at this moment."""
        known = self._by_prefix.get(data[: report.prefix_size(data)])
        return self._declared(data, arrived) if known is None else known

    def _declared(self, data: bytes, arrived: int) -> ReportLayout:
        prefix, encoded = report.decode_prefix(data)
        if prefix.origin != self._origin:
            raise WrongOrigin("a report for another ad server")
        with self._lock:
            # Once for all uploads that wait here: strangers must not make us ask for every report of theirs.
            if self._ended <= arrived:
                self._ask()
            away = self._away
        if encoded not in self._by_prefix:
            if away:
                raise ServiceAway("the documents of this origin cannot be asked for now; try again")
            raise UndeclaredReport(f"a report to {prefix.purpose}, which no document of this digest declares")
        return self._by_prefix[encoded]

    def _ask(self) -> None:
        self._begun += 1
        try:
            for document in self._documents():
                layouts = [document.layout(purpose) for purpose in document.purposes()]
                self._by_prefix |= {layout.prefix: layout for layout in layouts}
            self._away = False
        except MaskedLarkError as error:
            # Whatever it is: what is wrong with the service's answer is no reason to refuse a report.
            _LOG.warning("the documents of this origin cannot be had: %s: %s", type(error).__name__, error)
            self._away = True
        self._ended = self._begun


class UploadHandler:
    """Checks form, origin and hour of every report, and stores those that pass."""

    def __init__(
        self, origin: str, reports: Reports, clock: Clock, documents: Documents, limits: Limits
    ) -> None:
        self._clock, self._limits = clock, limits
        self._layouts = ReportLayouts(origin, documents)
        self._commits = GroupCommit(reports, limits.reports, limits.body_bytes)

    def accept(self, body: bytes) -> list[Answer]:
        """Answers in the reports' order; what is stored is durable. A bad report does not affect others."""
        framed = uploads.decode_batch(body, self._limits.reports, self._limits.report_bytes)
        checked = list(self._check(framed))
        arrivals = [each for each in checked if isinstance(each, Arrival)]
        stored = iter(self._commits.store(arrivals) if arrivals else [])
        # Say "stored" only here, after the commit: the browser then deletes the report.
        return [each if isinstance(each, Answer) else _ANSWERS[next(stored)] for each in checked]

    def _check(self, framed: Sequence[bytes]) -> Iterator[Arrival | Answer]:
        """Every report as it is to be stored, or why it is not."""
        hour = hour_of(self._clock.now())
        first, last = hour - self._limits.hours_behind, hour + self._limits.hours_ahead
        arrived = self._layouts.moment
        for data in framed:
            try:
                layout = self._layouts.find(data, arrived)
                head = layout.head(data)
            except (DecodeError, UploadRefused) as error:
                yield _refusal(type(error))
                continue
            yield Arrival(layout, head, data) if first <= head.hour <= last else _refusal(WrongHour)


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
