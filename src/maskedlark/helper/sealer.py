"""The sealer: a dataset that all helpers agree on is sealed once, with its receipt. Run by a helper.

`sealing` says what is in it; here it becomes true, in one transaction.
"""

import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import update

from maskedlark.core.purpose import Purpose
from maskedlark.errors import Expired
from maskedlark.helper import rows, sealing
from maskedlark.helper.errors import Busy
from maskedlark.helper.rows import OPEN, SEALED, DatasetRow
from maskedlark.helper.sealing import Agreed, Merged
from maskedlark.helper.shelf import Shelf
from maskedlark.helper.tables import DATASETS
from maskedlark.ledger import receipt
from maskedlark.ledger.ledger import Ledger
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web.errors import AlreadySealed, ChunksMissing, SealMismatch, UnknownDataset
from maskedlark.wire.datasets import Sealed, Sealing


class Sealer:
    """Seals datasets, one at a time: each reads and writes all of a dataset. Threads may share it."""

    def __init__(self, shelf: Shelf, ledger: Ledger) -> None:
        self._shelf, self._ledger = shelf, ledger
        self._busy = threading.Lock()

    def seal(self, origin: str, name: str, wanted: Sealing, opening: bytes) -> Sealed:
        """Make what all helpers accepted a dataset that never changes. The same seal gets the same answer."""
        with self.alone():
            row = self._shelf.row(origin, name, opening)
            if row.state == OPEN:
                try:
                    with self._shelf.upkeep.working(row.number):
                        self._seal(row, wanted)
                finally:
                    self._shelf.upkeep.sweep(row.number)  # Chunks, or columns that were not sealed after all.
                row = self._shelf.row(origin, name, opening)
        return self._sealed(row, wanted)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody waits here: whoever waited would keep a thread from those who need none of this."""
        if not self._busy.acquire(blocking=False):
            raise Busy("another dataset is being sealed; come again")
        try:
            yield
        finally:
            self._busy.release()

    def _seal(self, row: DatasetRow, wanted: Sealing) -> None:
        document, purpose = self._shelf.document(row), Purpose(row.purpose)
        with self._shelf.database.read() as connection:
            received = [rows.received(each) for each in rows.chunks(connection, row.number)]
        agreed = sealing.agree(received, wanted, document.k)
        folder = self._shelf.upkeep.folder(row.number)
        try:
            target = Path(tempfile.mkdtemp(prefix="columns-", dir=folder))  # 0700
            with _removed_on_failure(target):
                merged = sealing.merge(folder, target, document, purpose, agreed)
                self._check(merged, wanted)
        except OSError as error:
            raise StorageUnavailable("the columns cannot be written now; seal it again later") from error
        # From here on the folder stays: if the database goes away, it may have the seal all the same.
        self._commit(row, sealing.fingerprint(wanted), agreed, target.name, merged)

    def _check(self, merged: Merged, wanted: Sealing) -> None:
        if wanted.digest is not None and bytes.fromhex(wanted.digest) != merged.digest:
            raise SealMismatch("this helper finds another dataset than the other: nothing was sealed")
        if merged.expires <= self._shelf.now():
            raise Expired("a report of this dataset is past its lifetime: abort it, and send the others")

    def _commit(
        self, row: DatasetRow, agreed_on: bytes, agreed: list[Agreed], folder: str, merged: Merged
    ) -> None:
        """In one transaction: sealed, with its receipt, and the ids of what is not in it free again."""
        with self._shelf.database.write() as connection:
            found = rows.by_name(connection, row.origin, row.name, lock=True)
            if found.number != row.number:
                raise UnknownDataset(f"dataset {row.name!r} was aborted, and another has its name")
            if found.state != OPEN:
                return  # Another process was first; its seal is the one that counts.
            if len(rows.chunks(connection, row.number)) != len(agreed):
                raise ChunksMissing("a chunk came while the dataset was being sealed: name all of them")
            mark = self._shelf.ids.lock(connection)
            gone = rows.keep(connection, row.number, agreed)
            freed = self._shelf.ids.free(connection, mark) if len(gone) else 0
            signed = self._ledger.freeze(
                connection, self._shelf.document(row), Purpose(row.purpose), merged.digest, merged.records
            )
            this = update(DATASETS).where(DATASETS.c.number == row.number)
            connection.execute(
                this.values(
                    state=SEALED,
                    expires=merged.expires,
                    digest=merged.digest,
                    records=merged.records,
                    agreed=agreed_on,
                    folder=folder,
                    contents=merged.contents.model_dump_json(),
                    receipt=signed.encode(),
                )
            )
        if len(gone):
            self._shelf.ids.freed(freed, gone)

    def _sealed(self, row: DatasetRow, wanted: Sealing) -> Sealed:
        """What was answered to the seal, if it was this one."""
        found = bytes(row.digest).hex()
        if bytes(row.agreed) != sealing.fingerprint(wanted) or wanted.digest not in (None, found):
            raise AlreadySealed(f"dataset {row.name!r} is sealed with other content, and never changes")
        signed = receipt.decode(bytes(row.receipt))
        # Before it leaves, every time: the helper may have ended right behind the transaction.
        self._ledger.remember(row.origin, signed)
        return Sealed(digest=found, records=row.records, receipt=signed.encode().decode())


@contextmanager
def _removed_on_failure(folder: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
