"""Upkeep of datasets: what is past its time, aborted, or named by no row, goes. Run by a helper."""

import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import delete, func, select, update

from maskedlark.helper import rows
from maskedlark.helper.ids import Ids
from maskedlark.helper.rows import ABORTED, EXPIRED, OPEN, SEALED
from maskedlark.helper.tables import ABORTED_OPENINGS, CHUNKS, DATASETS
from maskedlark.storage.engine import Database


class Upkeep:
    """The folder of datasets, one for each by its number. Threads may share it."""

    def __init__(self, folder: Path, database: Database, ids: Ids) -> None:
        self._folder, self._database, self._ids = folder, database, ids
        self._lock = threading.Lock()
        self._busy: Counter[int] = Counter()

    def folder(self, number: int) -> Path:
        """Where the files of a dataset are."""
        return self._folder / str(number)

    @contextmanager
    def working(self, number: int) -> Iterator[None]:
        """Somebody may write files of the dataset that no row names yet."""
        with self._lock:
            self._busy[number] += 1
        try:
            yield
        finally:
            with self._lock:
                self._busy[number] -= 1

    def expire(self, now: int) -> None:
        """A sealed dataset goes when its first report is past its lifetime, an open one when a chunk is."""
        # Not when all are: whoever sends a chunk more now and then would keep the first one for ever.
        first = select(func.min(CHUNKS.c.expires)).where(CHUNKS.c.dataset == DATASETS.c.number)
        end = func.coalesce(first.scalar_subquery(), DATASETS.c.expires)
        with self._database.write() as connection:
            sealed = update(DATASETS).where(DATASETS.c.state == SEALED, DATASETS.c.expires <= now)
            connection.execute(sealed.values(state=EXPIRED, folder=None, contents=None))
            unsealed = update(DATASETS).where(DATASETS.c.state == OPEN, end <= now)
            connection.execute(unsealed.values(state=ABORTED))
            connection.execute(delete(ABORTED_OPENINGS).where(ABORTED_OPENINGS.c.until <= now))

    def finish_aborts(self) -> None:
        """Free the ids of aborted datasets, some at a time, and remove them."""
        with self._database.read() as connection:
            numbers = connection.scalars(select(DATASETS.c.number).where(DATASETS.c.state == ABORTED)).all()
        for number in numbers:
            while self._take_away(number):
                pass
            with self._database.write() as connection:
                connection.execute(delete(DATASETS).where(DATASETS.c.number == number))
            shutil.rmtree(self.folder(number), ignore_errors=True)

    def sweep_all(self) -> None:
        """Remove all files that no row names."""
        for path in [*self._folder.iterdir()]:
            if path.is_dir() and path.name.isdigit():
                self.sweep(int(path.name))

    def sweep(self, number: int) -> None:
        """Remove the files of a dataset that no row names."""
        folder = self.folder(number)
        # In this order: what was there before, and is neither being written nor named, is nothing.
        present = [*folder.iterdir()] if folder.exists() else []
        with self._lock:
            if self._busy[number]:
                return
        with self._database.read() as connection:
            named = {*rows.files(connection, number)}
        for path in present:
            if path.name not in named:
                _remove(path)
        with suppress(OSError):
            folder.rmdir()  # If it is empty.

    def _take_away(self, number: int) -> int:
        with self._database.write() as connection:
            mark = self._ids.lock(connection)
            gone, chunks = rows.take_away(connection, number)
            freed = self._ids.free(connection, mark) if len(gone) else 0
        if len(gone):
            self._ids.freed(freed, gone)
        return chunks


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
