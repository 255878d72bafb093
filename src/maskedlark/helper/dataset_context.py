"""What all code for a helper's datasets shares: database, folders, ids, documents and the clock.

Run by a helper. The database is authoritative. A file is written before its row, so a file that no row names
is garbage and removed, and every row is true, however the helper ended. Several processes may share database
and folder: who writes files of a dataset holds a lock of it, and what is locked is not swept.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from sqlalchemy import delete, func, select, update

from maskedlark.clock import Clock
from maskedlark.compute.engine import Engine
from maskedlark.helper import tables
from maskedlark.helper.dataset_files import DatasetFiles, LocalFiles, remove_probes, try_storage, write_probe
from maskedlark.helper.errors import UnreadableStorage
from maskedlark.helper.ids import Ids
from maskedlark.helper.tables import (
    ABORTED,
    ABORTED_ATTEMPTS,
    CHUNKS,
    DATASETS,
    EXPIRED,
    FROZEN,
    OPEN,
    DatasetRow,
)
from maskedlark.parameters import document as documents
from maskedlark.parameters.document import Document
from maskedlark.storage import file_lock
from maskedlark.storage.engine import Database
from maskedlark.storage.errors import LockHeld, StorageUnavailable

LOCKS = 256
"""Lock files for all datasets: none is ever removed. Two that share one only wait for a later sweep."""
_decoded = lru_cache(documents.decode)


class DatasetContext:
    """The folder of datasets, one subfolder per number, and their rows. Threads may share it."""

    def __init__(
        self, folder: Path, database: Database, helper: str, clock: Clock, storage: DatasetFiles | None = None
    ) -> None:
        """`storage`: where datasets are, if not in the folder."""
        self._files = storage or LocalFiles(folder)
        try:
            LocalFiles(folder).make()
            self._files.make()
        except OSError as error:
            raise _unwritable() from error
        self.database, self.helper, self.clock = database, helper, clock
        self.ids = Ids(database, folder)
        self._locks = folder.with_name("locks")

    def now(self) -> int:
        """The current time, never before a time at which ids were pruned."""
        return max(self.clock.now(), self.ids.watermark())

    def row(self, origin: str, name: str, attempt: bytes) -> DatasetRow:
        """The current row of a dataset of this attempt."""
        with self.database.read() as connection:
            return tables.by_name(connection, origin, name, attempt)

    def document(self, row: DatasetRow) -> Document:
        """The document under which a dataset was opened."""
        return _decoded(row.document)

    def files(self, number: int) -> DatasetFiles:
        """Where the files of a dataset are."""
        return self._files.within(str(number))

    def check_workers(self, engine: Engine) -> None:
        """Refuse workers that cannot read or write where datasets are. Run at the start."""
        if isinstance(self._files, LocalFiles) and not engine.is_elsewhere:
            return
        with self._locked("probing"):
            try:
                name = write_probe(self._files)
                failures = [*filter(None, engine.map(try_storage, self._files, [name] * engine.workers))]
            except OSError as error:
                raise _unwritable() from error
            finally:
                remove_probes(self._files)
        if failures:
            what, why = (sorted({*each}) for each in zip(*failures, strict=True))
            raise UnreadableStorage(
                f"{len(failures)} of {engine.workers} workers cannot {' or '.join(what)} where this helper "
                f"keeps datasets ({', '.join(why)}): name storage that all of them reach in [compute] "
                "storage, and let the user that they run as read and write it"
            )

    def writing(self, number: int) -> AbstractContextManager[object]:
        """While the block runs, files of the dataset that no row names are not removed, by any process."""
        return self._locked(str(number % LOCKS), shared=True)

    def freezing(self) -> AbstractContextManager[object]:
        """While the block runs, no process freezes or aborts another dataset. Raises LockHeld if one does."""
        return self._locked("freezing", wait=False)

    @contextmanager
    def _locked(self, name: str, shared: bool = False, wait: bool = True) -> Iterator[None]:
        with ExitStack() as stack:
            try:
                stack.enter_context(file_lock.held(self._locks / name, shared=shared, wait=wait))
            except OSError as error:
                raise _unwritable() from error
            yield

    def expire(self, now: int) -> None:
        """Expire frozen datasets with their first report, and open ones with their first chunk."""
        # Not with the last: anyone sending another chunk now and then would keep the first for ever.
        first = select(func.min(CHUNKS.c.expires)).where(CHUNKS.c.dataset == DATASETS.c.number)
        end = func.coalesce(first.scalar_subquery(), DATASETS.c.expires)
        with self.database.write() as connection:
            # Two processes that update many rows in different orders could wait for each other.
            self.database.alone(connection, "expiry")
            frozen = update(DATASETS).where(DATASETS.c.state == FROZEN, DATASETS.c.expires <= now)
            connection.execute(frozen.values(state=EXPIRED, folder=None, contents=None))
            still_open = update(DATASETS).where(DATASETS.c.state == OPEN, end <= now)
            connection.execute(still_open.values(state=ABORTED))
            connection.execute(delete(ABORTED_ATTEMPTS).where(ABORTED_ATTEMPTS.c.until <= now))

    def finish_aborts(self) -> None:
        """Free the ids of aborted datasets, some at a time, and remove them."""
        for (number,) in self.database.rows(select(DATASETS.c.number).where(DATASETS.c.state == ABORTED)):
            self.ids.free_chunks(delete(CHUNKS), CHUNKS.c.dataset == number)
            self.database.change(delete(DATASETS).where(DATASETS.c.number == number))
            self.files(number).remove_all()

    def sweep_all(self) -> None:
        """Remove all files that no row names."""
        for name in self._files.names():
            if name.isdigit():
                self.sweep(int(name))

    def sweep(self, number: int) -> None:
        """Remove the files of a dataset that no row names."""
        # Somebody else will, if they are being written now: then they are neither garbage nor named.
        with suppress(LockHeld), self._locked(str(number % LOCKS), wait=False):
            self._sweep(number)

    def _sweep(self, number: int) -> None:
        files = self.files(number)
        present = files.names()
        this = DATASETS.c.number == number
        columns = select(DATASETS.c.folder).where(this, DATASETS.c.state == FROZEN)
        chunks = select(CHUNKS.c.file).join(DATASETS).where(this, DATASETS.c.state == OPEN)
        with self.database.read() as connection:
            named = {*connection.scalars(columns.union_all(chunks))}
        for name in present:
            if name not in named:
                files.remove(name)
        files.remove_if_empty()


def _unwritable() -> StorageUnavailable:
    return StorageUnavailable("the folder of columns cannot be written; try again later")
