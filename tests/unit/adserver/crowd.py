"""Uploads that come at once, in an order that the test knows, while the first of them is being stored."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from maskedlark.adserver.report_store import Arrival, Outcome, Reports
from maskedlark.adserver.uploads import GroupCommit

Heard = list[Outcome] | Exception


class Held(Reports):
    """The real table, whose first transaction waits until it is let go."""

    def __init__(self, reports: Reports) -> None:
        self.__dict__.update(reports.__dict__)
        self.begun, self.free = threading.Event(), threading.Event()
        self.groups: list[int] = []
        """How many reports each transaction was given."""

    def store(self, batch: Sequence[Arrival]) -> list[Outcome]:
        self.groups.append(len(batch))
        self.begun.set()
        self.free.wait()
        return super().store(batch)


def at_once(commits: GroupCommit, held: Held, batches: Sequence[Sequence[Arrival]]) -> list[Heard]:
    """What each upload hears: the first is stored alone, and the others wait behind it, in this order."""

    def upload(batch: Sequence[Arrival]) -> Heard:
        try:
            return commits.store(batch)
        except Exception as error:  # noqa: BLE001 - the test says which it must be
            return error

    with ThreadPoolExecutor(len(batches)) as threads:
        heard = [threads.submit(upload, batches[0])]
        held.begun.wait()
        for place, batch in enumerate(batches[1:]):
            heard.append(threads.submit(upload, batch))
            while len(commits._waiting) <= place:
                time.sleep(0.0005)
        held.free.set()
        return [each.result() for each in heard]
