"""Upkeep: at the start and every hour, reports that are past their time go. Run by the ad server.

Only reports go. What is known of datasets, what was asked, answers and receipts stay: no report is in them,
and they prove what was spent.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from maskedlark.adserver.retention import Retention
from maskedlark.clock import Clock
from maskedlark.errors import MaskedLarkError

EVERY_S = 3600.0
PAUSE_S = 0.02
"""Between two transactions: uploads that wait for the database go first."""
_LOG = logging.getLogger(__name__)


@contextmanager
def upkeep(retention: Retention, clock: Clock, every_s: float = EVERY_S) -> Iterator[None]:
    """While the block runs, old reports are deleted in a thread of its own. It ends with the block."""
    stop = threading.Event()
    thread = threading.Thread(target=_run, args=(retention, clock, every_s, stop), name="upkeep")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _run(retention: Retention, clock: Clock, every_s: float, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            gone = retention.forget(clock.now(), lambda: not stop.wait(PAUSE_S))
        except MaskedLarkError as error:
            _LOG.error("old reports were not deleted: %s", error)
        except Exception as error:  # noqa: BLE001 - the next hour must come, whatever it was
            _LOG.error("old reports could not be deleted: %s", type(error).__name__)
        else:
            if gone:
                _LOG.info("%d old reports were deleted", gone)
        stop.wait(every_s)
