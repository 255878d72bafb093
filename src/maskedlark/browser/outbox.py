"""Reports that wait to be sent to one ad server: kept, byte for byte, until it has them for good."""

from collections.abc import Iterable, Sequence

from maskedlark.browser.store import Store


class Outbox:
    """One origin's part of a browser's store: what `upload.Uploader` sends from."""

    def __init__(self, store: Store, origin: str) -> None:
        self._store = store
        self._origin = origin

    def put(self, reports: Iterable[bytes]) -> None:
        """Reports that were made elsewhere, for a population that shares one store."""
        with self._store.transaction():
            for report in reports:
                self._store.run("INSERT INTO pending (origin, report) VALUES (?, ?)", self._origin, report)

    def batch(self, most: int) -> list[tuple[int, bytes]]:
        """Up to so many, in random order."""
        waiting = "SELECT number, report FROM pending WHERE origin = ? AND refused IS NULL"
        return [
            (key, report)
            for key, report in self._store.run(f"{waiting} ORDER BY random() LIMIT ?", self._origin, most)
        ]

    def acknowledge(self, keys: Sequence[int]) -> None:
        """The ad server has stored these for good."""
        with self._store.transaction():
            for key in keys:
                self._store.run("DELETE FROM pending WHERE number = ?", key)

    def refuse(self, key: int, reason: str) -> None:
        """The ad server will never take this one: it is kept aside, with the reason."""
        self._store.run("UPDATE pending SET refused = ? WHERE number = ?", reason, key)

    def refused(self) -> list[tuple[bytes, str]]:
        """What was kept aside, and why."""
        aside = "SELECT report, refused FROM pending WHERE origin = ? AND refused IS NOT NULL"
        return [(report, reason) for report, reason in self._store.run(aside, self._origin)]
