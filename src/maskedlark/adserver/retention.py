"""Deletes old reports, a few at a time, but none of a dataset that is still being sent. Run by the ad server.

First the floor is set to where deleting will end, then what lies below it is deleted: a dataset selected from
then on begins at the floor or above, and those selected before are left alone.

Only reports go. Datasets' metadata, requests, answers and receipts stay: they hold no report, and they prove
what was spent.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from maskedlark.adserver import dataset_store, report_store
from maskedlark.adserver.report_store import Selection
from maskedlark.clock import Clock
from maskedlark.errors import MaskedLarkError
from maskedlark.storage.engine import Database
from maskedlark.web import clock_check
from maskedlark.web.clock_check import ClockCheck

DAY_S = 86_400
AT_ONCE = 500
"""Reports deleted per transaction: an upload waits for at most this many."""
EVERY_S = 3600.0
PAUSE_S = 0.02
"""Between two transactions, so that waiting uploads go first."""
_LOG = logging.getLogger(__name__)


class Retention:
    """Deletes old reports of an open database. Several processes may do so on one database."""

    def __init__(self, database: Database, keep_s: int) -> None:
        # Whoever comes first, this or measuring, creates the tables.
        report_store.make(database)
        dataset_store.make(database)
        self._database, self._keep_s = database, keep_s

    @contextmanager
    def running(self, clock: Clock, check: ClockCheck, every_s: float = EVERY_S) -> Iterator[None]:
        """While the block runs, a thread compares clocks and deletes old reports, first at the start."""
        check.compare()  # Before anything is taken by it.
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(clock, check, every_s, stop), name="retention")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def forget(self, now: int, pause: Callable[[], bool] = lambda: True) -> int:
        """Delete what was received `keep_s` ago or earlier, until `pause` returns False; returns how many."""
        before = now - self._keep_s
        kept = self._begin(before)
        gone = 0
        for span in self._spans(before, kept):
            while deleted := self._delete(span, before):
                gone += deleted
                if not pause():
                    return gone
        return gone

    def _run(self, clock: Clock, check: ClockCheck, every_s: float, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                is_due = check.is_due(every_s)
                gone = self.forget(clock.now(), lambda: not stop.wait(PAUSE_S)) if is_due else 0
            except MaskedLarkError as error:
                _LOG.error("old reports were not deleted: %s", error)
            except Exception as error:  # noqa: BLE001 - the next hour must come, whatever it was
                _LOG.error("old reports could not be deleted: %s", type(error).__name__)
            else:
                if gone:
                    _LOG.info("%d old reports were deleted", gone)
            stop.wait(min(every_s, clock_check.EVERY_S))

    def _begin(self, before: int) -> Sequence[Selection]:
        """Set the floor; returns what must stay nevertheless."""
        with self._database.write() as connection:
            self._database.alone(connection, "datasets")
            dataset_store.put_floor(connection, before)
            return dataset_store.unfinished(connection)

    def _spans(self, before: int, kept: Sequence[Selection]) -> Iterator[Selection]:
        """What may be deleted: for each purpose and document, times below the floor, less what must stay."""
        with self._database.read() as connection:
            every = [*report_store.selections(connection)]
        for each in every:
            yield from report_store.gaps(replace(each, end=before), kept)

    def _delete(self, span: Selection, before: int) -> int:
        """Delete some reports of a span; none if another process, by its own clock, has lowered the floor."""
        with self._database.write() as connection:
            self._database.alone(connection, "datasets")
            if dataset_store.floor(connection) < before:
                return 0
            return report_store.delete_some(connection, span, AT_ONCE)
