"""What the parameter service has published. Only ever added to."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, func, insert, select

from maskedlark.errors import MaskedLarkError
from maskedlark.parameter_service.tables import configurations, documents, open_tables
from maskedlark.parameters.chain import Signed
from maskedlark.parameters.document import Document
from maskedlark.web.errors import UnknownDocument, UnknownHelper, UnknownOrigin
from maskedlark.web.pages import MOST_PAGE, Page, page

_SIGNED = (documents.c.body, documents.c.origin_signature, documents.c.service_signature)


class View:
    """The store within one transaction: reads agree with each other, and with the write that follows."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def latest(self, origin: str) -> Signed:
        """The newest document of an origin."""
        newest = documents.c.version.desc()
        found = select(*_SIGNED).where(documents.c.origin == origin).order_by(newest).limit(1)
        return self._one(found, UnknownOrigin(f"nothing of {origin} is published"))

    def version(self, origin: str, version: int) -> Signed:
        """One version of an origin."""
        found = select(*_SIGNED).where(documents.c.origin == origin, documents.c.version == version)
        return self._one(found, UnknownDocument(f"version {version} of {origin} is not published"))

    def digest(self, digest: bytes) -> Signed:
        """The document of this digest."""
        found = select(*_SIGNED).where(documents.c.digest == digest)
        return self._one(found, UnknownDocument(f"no document of digest {digest.hex()} is published"))

    def page(self, origin: str, after: int) -> Page:
        """The documents of an origin behind a version, as many as one page holds."""
        chosen = select(*_SIGNED).where(documents.c.origin == origin, documents.c.version > after)
        rows = self._connection.execute(chosen.order_by(documents.c.version).limit(MOST_PAGE + 1))
        found = [_signed(row) for row in rows]
        if not found:
            self.latest(origin)  # An unknown origin is an error, not an empty chain.
        return page(found)

    def keys(self, helper: str) -> tuple[bytes, int]:
        """A helper's newest key configuration, as it was signed, and its sequence."""
        newest = configurations.c.sequence.desc()
        chosen = select(configurations.c.message, configurations.c.sequence)
        found = chosen.where(configurations.c.helper == helper).order_by(newest).limit(1)
        row = self._connection.execute(found).first()
        if row is None:
            raise UnknownHelper(f"{helper} has published no keys")
        return row.message, row.sequence

    def check(self) -> None:
        """Return if the store can be read."""
        self._connection.execute(select(documents.c.version).limit(1)).first()

    def counts(self) -> tuple[int, int]:
        """How many documents and how many key configurations there are."""
        found = [
            self._connection.scalar(select(func.count()).select_from(each))
            for each in (documents, configurations)
        ]
        return found[0] or 0, found[1] or 0

    def add(self, found: Document, signed: Signed, moment: int) -> None:
        """Add a document that was checked in this very transaction."""
        row = {
            "origin": found.origin,
            "version": found.version,
            "digest": found.digest,
            "body": signed.body,
            "origin_signature": signed.origin_signature,
            "service_signature": signed.service_signature,
            "published_at": moment,
        }
        self._connection.execute(insert(documents).values(row))

    def add_keys(self, helper: str, sequence: int, message: bytes, moment: int) -> None:
        """Add a key configuration that was checked in this very transaction."""
        row = {"helper": helper, "sequence": sequence, "message": message, "published_at": moment}
        self._connection.execute(insert(configurations).values(row))

    def _one(self, chosen: Select[Any], missing: MaskedLarkError) -> Signed:
        row = self._connection.execute(chosen).first()
        if row is None:
            raise missing
        return _signed(row)


class Store:
    """The database of one parameter service. Several processes may open it."""

    def __init__(self, where: Path | str) -> None:
        """Opens the database at a URL, or the SQLite file at a path."""
        self._database = open_tables(where)

    @contextmanager
    def reading(self) -> Iterator[View]:
        """A transaction that only reads."""
        with self._database.read() as connection:
            yield View(connection)

    @contextmanager
    def writing(self) -> Iterator[View]:
        """A transaction that excludes every other writer from its first read on; durable when it ends."""
        with self._database.write() as connection:
            self._database.alone(connection, "parameters")
            yield View(connection)

    def check(self) -> None:
        """Return if the store can be read; raise if not."""
        with self.reading() as view:
            view.check()

    def close(self) -> None:
        """Let the connections go."""
        self._database.close()


def _signed(row: Sequence[Any]) -> Signed:
    body, origin_signature, service_signature = row
    return Signed(body, origin_signature, service_signature)
