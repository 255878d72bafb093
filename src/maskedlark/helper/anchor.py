"""The anchor: how far each origin's receipts got, kept apart from the database, in files. Run by a helper.

A database restored from an old copy would answer again what was charged already. A copy of the one should not
include the other: put the anchor on another disk if there is one. Helpers on several machines need one place
where it is compared and set: a folder that they share, or a database (see `database_anchor`).
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from maskedlark.helper.config import Config
from maskedlark.helper.errors import DamagedAnchor
from maskedlark.ledger.ledger import Anchor
from maskedlark.ledger.rows import ChainHead
from maskedlark.parameters.document import Origin
from maskedlark.storage.engine import Database, open_database
from maskedlark.web import files
from maskedlark.wire.message import Hex32, Settings


class _Written(Settings):
    """A chain head as stored in its file, with its origin."""

    origin: Origin
    number: Annotated[int, Field(ge=0, le=1 << 53)]
    digest: Hex32


def refuse_second_ledger(origin: str, before: ChainHead | None, head: ChainHead) -> None:
    """Refuse a second receipt of one number. Run where a chain head is not written."""
    if before is not None and before.number == head.number and before.digest != head.digest:
        raise DamagedAnchor(
            f"two different receipts have number {head.number} for {origin}: two ledgers write for one helper"
        )


class FileAnchor:
    """One small file per origin. Threads and processes may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def origins(self) -> list[str]:
        """All origins that have a chain head."""
        return sorted(self._read(path).origin for path in self._folder.glob("*.json"))

    def read(self, origin: str) -> ChainHead | None:
        """The last chain head of an origin."""
        try:
            written = self._read(self._path(origin))
        except FileNotFoundError:
            return None
        return ChainHead(written.number, bytes.fromhex(written.digest))

    def write(self, origin: str, head: ChainHead) -> None:
        """Durably store a chain head before returning. It never moves back."""
        # Locked: of two processes writing, the one with the older head must not write last.
        with files.locked(self._folder):
            before = self.read(origin)
            if before is not None and before.number >= head.number:
                refuse_second_ledger(origin, before, head)
                return
            new = _Written(origin=origin, number=head.number, digest=head.digest.hex())
            files.write(self._path(origin), new.model_dump_json().encode())

    def _path(self, origin: str) -> Path:
        return self._folder / f"{files.named(origin)}.json"

    def _read(self, path: Path) -> _Written:
        with suppress(ValidationError):
            written = _Written.model_validate_json(path.read_bytes())
            if self._path(written.origin) == path:
                return written
        raise DamagedAnchor(
            f"{path} was damaged or changed: put the newest copy back. Without it a ledger that lost "
            "receipts would not be noticed, so nothing is answered"
        )


@contextmanager
def open_anchor(config: Config, ledger: Database, wait: bool = False) -> Iterator[Anchor]:
    """The anchor of a helper's settings: a folder, or a database other than the ledger's."""
    if config.anchor_url is None:
        yield FileAnchor(config.anchor_folder)
        return
    from maskedlark.helper.database_anchor import DatabaseAnchor, refuse_ledger  # noqa: PLC0415 - few use it

    with closing(open_database(config.anchor_url, wait=wait)) as database:
        refuse_ledger(database, ledger)
        yield DatabaseAnchor(database)
