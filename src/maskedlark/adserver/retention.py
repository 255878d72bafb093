"""Deleting reports that are past their time, a few at a time, and none of a dataset that is still being sent.

First the floor is put where deleting will end, then what lies below it goes: a dataset that is frozen from
then on begins at the floor or above, and those that were frozen before are left alone.
"""

from collections.abc import Callable, Iterator, Sequence

from maskedlark.adserver import dataset_store as datasets
from maskedlark.adserver import floor
from maskedlark.adserver import report_store as reports
from maskedlark.adserver.floor import Floor
from maskedlark.adserver.report_store import Selection
from maskedlark.storage.engine import Database
from maskedlark.storage.errors import ClockLeapt

DAY_S = 86_400
AT_ONCE = 500
"""Reports in one transaction: an upload waits for no more than these."""


class Retention:
    """Forgets old reports of an open database. Several processes may, on one database."""

    def __init__(self, database: Database, keep_s: int, most_leap_s: int) -> None:
        # Tables that measuring makes: whoever comes first does.
        reports.make(database)
        datasets.make(database)
        self._database, self._keep_s, self._most_leap_s = database, keep_s, most_leap_s

    def forget(self, now: int, pause: Callable[[], bool] = lambda: True) -> int:
        """Delete what was received `keep_s` ago or earlier; returns how many that was. Run every hour.

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

    def _begin(self, now: int, before: int) -> Sequence[Selection]:
        """Put the floor there; returns what must stay nevertheless."""
        with self._database.write() as connection:
            self._database.alone(connection, "datasets")
            looked = floor.read(connection).looked or reports.newest(connection)
            self._refuse_leap(looked, now)
            floor.put(connection, Floor(before, max(now, looked)))
            return datasets.frozen(connection)

    def _refuse_leap(self, looked: int, now: int) -> None:
        """What is deleted by a clock that is wrong does not come back."""
        if looked and now - looked > self._most_leap_s:
            days = (now - looked) // DAY_S
            raise ClockLeapt(
                f"the clock is {days} days ahead of when it was last looked at, so no report is deleted: set "
                f"the clock; if it is right, start once with most_leap_days = {days + 1} in adserver.toml"
            )

    def _spans(self, before: int, kept: Sequence[Selection]) -> Iterator[Selection]:
        """What may go: of every purpose and document the times below the floor, around what must stay."""
        for purpose, parameters in self._kinds():
            start = 0
            same = [each for each in kept if (each.purpose, each.parameters) == (purpose, parameters)]
            for each in sorted(same, key=lambda each: each.start):
                yield Selection(purpose, parameters, start, min(each.start, before))
                start = max(start, each.end)
            yield Selection(purpose, parameters, start, before)

    def _kinds(self) -> list[reports.Kind]:
        with self._database.read() as connection:
            return [*reports.kinds(connection)]

    def _delete(self, span: Selection, before: int) -> int:
        """Some reports of a span. None once another process, by its own clock, has put the floor lower."""
        with self._database.write() as connection:
            self._database.alone(connection, "datasets")
            if floor.read(connection).moment < before:
                return 0
            return reports.delete_some(connection, span, AT_ONCE)
