"""Uploads: a batch comes in as bytes and goes out as one answer per report. Run by the ad server.

Uploads that wait for the disk are stored together: a commit costs the disk about as much for a hundred
uploads as for one, and SQLite has one at a time. So an upload that finds one under way waits, and the first
to wake stores for all who wait.
"""

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from maskedlark.adserver.config import Limits
from maskedlark.adserver.errors import Conflict, UploadRefused, WrongHour, WrongOrigin
from maskedlark.adserver.report_store import Arrival, Outcome, Reports
from maskedlark.clock import Clock, hour_of
from maskedlark.errors import DecodeError
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.wire import forms, uploads
from maskedlark.wire.uploads import Answer, Verdict

_LOG = logging.getLogger(__name__)


def _refusal(error: type[DecodeError | UploadRefused]) -> Answer:
    return Answer(outcome=Verdict.REFUSED, error=error.__name__)


_ANSWERS = {
    Outcome.STORED: Answer(outcome=Verdict.STORED),
    Outcome.DUPLICATE: Answer(outcome=Verdict.DUPLICATE),
    Outcome.CONFLICT: _refusal(Conflict),
}


class UploadHandler:
    """Checks form, origin and hour of every report, and stores those that pass."""

    def __init__(self, origin: str, reports: Reports, clock: Clock, limits: Limits) -> None:
        self._origin, self._clock, self._limits = origin, clock, limits
        self._commits = GroupCommit(reports, limits.reports, limits.body_bytes)

    def accept(self, body: bytes) -> list[Answer]:
        """Answers in the order of the reports; what is stored is durable. A bad one spoils no other."""
        framed = uploads.decode_batch(body, self._limits.reports, self._limits.report_bytes)
        checked = list(self._check(framed))
        arrivals = [each for each in checked if isinstance(each, Arrival)]
        stored = iter(self._commits.store(arrivals) if arrivals else [])
        # Only here, after the commit, does anything say "stored": who hears it forgets the report.
        return [each if isinstance(each, Answer) else _ANSWERS[next(stored)] for each in checked]

    def _check(self, framed: Sequence[bytes]) -> Iterator[Arrival | Answer]:
        """Every report as it is to be stored, or why it is not."""
        hour = hour_of(self._clock.now())
        first, last = hour - self._limits.hours_behind, hour + self._limits.hours_ahead
        for data, public in zip(framed, forms.public_parts(framed), strict=True):
            if isinstance(public, DecodeError):
                yield _refusal(type(public))
            elif public.origin != self._origin:
                yield _refusal(WrongOrigin)
            elif not first <= public.hour <= last:
                yield _refusal(WrongHour)
            else:
                yield Arrival(public, data)


class _Upload:
    """What one caller wants stored, and what became of it."""

    def __init__(self, batch: Sequence[Arrival]) -> None:
        self.batch = batch
        self.bytes = sum(len(each.data) for each in batch)
        self.over = False
        """Nobody else stores it any more. If nothing was heard, its caller does, alone."""
        self.heard: list[Outcome] | StorageUnavailable | None = None


class GroupCommit:
    """Stores batches for many threads. Each hears what it would hear if they came one after the other.

    There is no thread of its own: who waits for longest is stored by whoever wakes first.
    """

    def __init__(self, reports: Reports, most_reports: int, most_bytes: int) -> None:
        self._reports = reports
        self._most_reports, self._most_bytes = most_reports, most_bytes
        self._waiting: deque[_Upload] = deque()
        self._storing = False
        self._changed = threading.Condition()

    def store(self, batch: Sequence[Arrival]) -> list[Outcome]:
        """Store a batch, durable when this returns: as `Reports.store`, and raises what that would."""
        mine = _Upload(batch)
        with self._changed:
            self._waiting.append(mine)
        while group := self._turn(mine):
            self._store(group)
        if isinstance(mine.heard, StorageUnavailable):
            # An error of its own: threads that raise the same one would write into each other's traceback.
            raise StorageUnavailable(str(mine.heard)) from mine.heard
        # One of the group may have been the reason why nothing was stored: it must spoil no other.
        return self._reports.store(batch) if mine.heard is None else mine.heard

    def _turn(self, mine: _Upload) -> list[_Upload]:
        """Wait until somebody has stored ours, or nobody stores: then we do, the first in the row first."""
        with self._changed:
            self._changed.wait_for(lambda: mine.over or not self._storing)
            if mine.over:
                return []
            self._storing = True
            return self._next()

    def _next(self) -> list[_Upload]:
        """The first upload, and those after it that fit: no more than one upload alone may be."""
        group = [self._waiting.popleft()]
        reports, size = len(group[0].batch), group[0].bytes
        while self._waiting:
            reports, size = reports + len(self._waiting[0].batch), size + self._waiting[0].bytes
            if reports > self._most_reports or size > self._most_bytes:
                break
            group.append(self._waiting.popleft())
        return group

    def _store(self, group: Sequence[_Upload]) -> None:
        try:
            # In the order in which they came: of reports with the same id the first is the stored one.
            outcomes = iter(self._reports.store([each for upload in group for each in upload.batch]))
            for upload in group:
                upload.heard = list(islice(outcomes, len(upload.batch)))
        except StorageUnavailable as failure:
            # Not again one by one: each would wait as long for a database that is away.
            for upload in group:
                upload.heard = failure
        except Exception as error:  # noqa: BLE001 - whose it is, each finds out alone
            _LOG.warning("%d uploads cannot be stored together: %s", len(group), type(error).__name__)
        finally:
            with self._changed:
                for upload in group:
                    upload.over = True
                self._storing = False
                self._changed.notify_all()
