"""The shelf of a helper's datasets: their database, folders, ids and documents, and the time there.

Everything that matters is in the database. A file is written first and its row after it, so a file that no
row names is nothing, and is removed; a row that is there says what is true, however the helper ended.
"""

from pathlib import Path

from maskedlark.clock import Clock
from maskedlark.helper import rows
from maskedlark.helper.ids import Ids
from maskedlark.helper.rows import DatasetRow
from maskedlark.helper.tables import SCHEMA_VERSION, TABLES
from maskedlark.helper.upkeep import Upkeep
from maskedlark.parameters import document as documents
from maskedlark.parameters.document import Document
from maskedlark.storage.engine import Database
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.storage.schema import prepare
from maskedlark.web import files
from maskedlark.web.errors import NotNamed


class Shelf:
    """What all who work on datasets share: who opens them, takes chunks, and seals. Threads may too."""

    def __init__(self, folder: Path, database: Database, helper: str, clock: Clock, most_leap_s: int) -> None:
        prepare(database, "datasets", SCHEMA_VERSION, TABLES)
        try:
            _make(folder)
        except OSError as error:
            raise StorageUnavailable("the folder of columns cannot be written; try again later") from error
        self.database, self.helper, self.clock = database, helper, clock
        self.ids = Ids(database, folder, most_leap_s)
        self.upkeep = Upkeep(folder, database, self.ids)
        self._documents: dict[bytes, Document] = {}

    def now(self) -> int:
        """The moment, never before one at which ids were pruned."""
        return max(self.clock.now(), self.ids.watermark())

    def row(self, origin: str, name: str, opening: bytes) -> DatasetRow:
        """A dataset as it is now, of this opening."""
        with self.database.read() as connection:
            return rows.by_name(connection, origin, name, opening)

    def document(self, row: DatasetRow) -> Document:
        """Under which a dataset was opened."""
        name = bytes(row.parameters)
        if name not in self._documents:
            self._documents[name] = documents.decode(bytes(row.document))
        return self._documents[name]

    def place(self, document: Document) -> int:
        """Which of the document's helpers we are."""
        names = [helper.name for helper in document.helpers]
        if self.helper not in names:
            raise NotNamed(f"version {document.version} of {document.origin} does not name {self.helper}")
        return names.index(self.helper)

    def folder(self, number: int) -> Path:
        """Where a dataset's files are; made if it is not there."""
        folder = self.upkeep.folder(number)
        _make(folder)
        return folder


def _make(folder: Path) -> None:
    """A folder that is ours alone; its name is durable when this returns."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    files.sync(folder.parent)
