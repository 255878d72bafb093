"""Deleting reports that are past their time, a few at a time, and none of a dataset that is still being sent.

First the floor is put where deleting will end, then what lies below it goes: a dataset that is selected from
then on begins at the floor or above, and those that were selected before are left alone.

Only reports go. What is known of datasets, what was asked, answers and receipts stay: no report is in them,
and they prove what was spent. Run by the ad server.
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
from maskedlark.storage.errors import refuse_leap

DAY_S = 86_400
AT_ONCE = 500
"""Reports in one transaction: an upload waits for no more than these."""
EVERY_S = 3600.0
PAUSE_S = 0.02
"""Between two transactions: uploads that wait for the database go first."""
_LOG = logging.getLogger(__name__)


class Retention:
    """Forgets old reports of an open database. Several processes may, on one database."""

    def __init__(self, database: Database, keep_s: int, most_leap_s: int) -> None:
        # Tables that measuring makes: whoever comes first does.
        report_store.make(database)
        dataset_store.make(database)
        self._database, self._keep_s, self._most_leap_s = database, keep_s, most_leap_s

    @contextmanager
    def running(self, clock: Clock, every_s: float = EVERY_S) -> Iterator[None]:
        """While the block runs, a thread of its own deletes old reports: at the start, then every hour."""
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(clock, every_s, stop), name="retention")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def forget(self, now: int, pause: Callable[[], bool] = lambda: True) -> int:
        """Delete what was received `keep_s` ago or earlier; returns how many that was.

        Between two transactions it asks `pause`, and stops when that says no.
        """
        before = now - self._keep_s
        kept = self._begin(now, before)
        gone = 0
        for span in self._spans(before, kept):
            while deleted := self._delete(span, before):
                gone += deleted
                if not pause():
                    return gone
        return gone

    def _run(self, clock: Clock, every_s: float, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                gone = self.forget(clock.now(), lambda: not stop.wait(PAUSE_S))
            except MaskedLarkError as error:
                _LOG.error("old reports were not deleted: %s", error)
            except Exception as error:  # noqa: BLE001 - the next hour must come, whatever it was
                _LOG.error("old reports could not be deleted: %s", type(error).__name__)
            else:
                if gone:
                    _LOG.info("%d old reports were deleted", gone)
            stop.wait(every_s)

    def _begin(self, now: int, before: int) -> Sequence[Selection]:
        """Put the floor there; returns what must stay nevertheless."""
        with self._database.write() as connection:
            self._database.alone(connection, "datasets")
            looked = dataset_store.floor(connection).looked or report_store.newest(connection)
            refuse_leap(looked, now, self._most_leap_s, "adserver.toml")
            dataset_store.put_floor(connection, before, max(now, looked))
            return dataset_store.unfinished(connection)

    def _spans(self, before: int, kept: Sequence[Selection]) -> Iterator[Selection]:
        """What may go: of every purpose and document the times below the floor, around what must stay."""
        with self._database.read() as connection:
            every = [*report_store.selections(connection)]
        for each in every:
            start = 0
            same = [stays for stays in kept if stays.kind == each.kind]
            for stays in sorted(same, key=lambda stays: stays.start):
                yield replace(each, start=start, end=min(stays.start, before))
                start = max(start, stays.end)
            yield replace(each, start=start, end=before)

    def _delete(self, span: Selection, before: int) -> int:
        """Some reports of a span. None once another process, by its own clock, has put the floor lower."""
        with self._database.write() as connection:
            self._database.alone(connection, "datasets")
            if dataset_store.floor(connection).moment < before:
                return 0
            return report_store.delete_some(connection, span, AT_ONCE)
