"""What the parameter service has published. Append-only, which the database itself enforces."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import product
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import URL

from maskedlark.errors import MaskedLarkError
from maskedlark.parameters.chain import Signed
from maskedlark.parameters.document import Document
from maskedlark.storage import schema
from maskedlark.storage.engine import open_database
from maskedlark.web.errors import UnknownDocument, UnknownHelper, UnknownOrigin
from maskedlark.web.pages import MAX_PAGE, Page, page

SCHEMA_VERSION = 1

metadata = sa.MetaData()

documents = sa.Table(
    "documents",
    metadata,
    sa.Column("origin", sa.Text, primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True),
    sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("origin_signature", sa.LargeBinary, nullable=False),
    sa.Column("service_signature", sa.LargeBinary, nullable=False),
    sa.Column("published_at", sa.BigInteger, nullable=False),
)

configurations = sa.Table(
    "key_configurations",
    metadata,
    sa.Column("helper", sa.Text, primary_key=True),
    sa.Column("sequence", sa.BigInteger, primary_key=True),
    sa.Column("message", sa.LargeBinary, nullable=False),
    sa.Column("published_at", sa.BigInteger, nullable=False),
)

_REFUSAL = "what is published never changes"
_SQLITE = """
CREATE TRIGGER IF NOT EXISTS {table}_{deed} BEFORE {deed} ON {table}
BEGIN SELECT RAISE(ABORT, '{refusal}'); END
"""
_POSTGRESQL_REFUSES = f"""
CREATE OR REPLACE FUNCTION maskedlark_refuse() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN RAISE EXCEPTION '{_REFUSAL}' USING ERRCODE = 'integrity_constraint_violation'; END$$
"""
_POSTGRESQL = """
CREATE OR REPLACE TRIGGER {table}_{deed} BEFORE {deed} ON {table}
FOR EACH STATEMENT EXECUTE FUNCTION maskedlark_refuse()
"""


def _then(statement: str, dialect: str) -> None:
    sa.event.listen(metadata, "after_create", sa.DDL(statement).execute_if(dialect=dialect))  # type: ignore[no-untyped-call]


# Make rows immutable once the tables exist: for mistakes of ours, and for operators by hand.
_then(_POSTGRESQL_REFUSES, "postgresql")
for _table, _deed in product(metadata.tables, ("UPDATE", "DELETE", "TRUNCATE")):
    _then(_POSTGRESQL.format(table=_table, deed=_deed), "postgresql")
    if _deed != "TRUNCATE":  # SQLite has none.
        _then(_SQLITE.format(table=_table, deed=_deed, refusal=_REFUSAL), "sqlite")

_SIGNED = (documents.c.body, documents.c.origin_signature, documents.c.service_signature)


class View:
    """The store within one transaction: reads agree with each other, and with the write that follows."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def latest(self, origin: str) -> Signed:
        """The newest document of an origin."""
        return self._newest(UnknownOrigin(f"nothing of {origin} is published"), documents.c.origin == origin)

    def version(self, origin: str, version: int) -> Signed:
        """One version of an origin."""
        missing = UnknownDocument(f"version {version} of {origin} is not published")
        return self._newest(missing, documents.c.origin == origin, documents.c.version == version)

    def digest(self, digest: bytes) -> Signed:
        """The document of this digest."""
        missing = UnknownDocument(f"no document of digest {digest.hex()} is published")
        return self._newest(missing, documents.c.digest == digest)

    def page(self, origin: str, after: int) -> Page:
        """The documents of an origin after a version, as many as one page holds."""
        chosen = sa.select(*_SIGNED).where(documents.c.origin == origin, documents.c.version > after)
        rows = self._connection.execute(chosen.order_by(documents.c.version).limit(MAX_PAGE + 1))
        following = [Signed(*row) for row in rows]
        if not following:
            self.latest(origin)  # An unknown origin is an error, not an empty chain.
        return page(following)

    def keys(self, helper: str) -> tuple[bytes, int]:
        """A helper's newest key configuration, as it was signed, and its sequence."""
        chosen = sa.select(configurations.c.message, configurations.c.sequence)
        newest = chosen.where(configurations.c.helper == helper).order_by(configurations.c.sequence.desc())
        row = self._connection.execute(newest.limit(1)).first()
        if row is None:
            raise UnknownHelper(f"{helper} has published no keys")
        return row.message, row.sequence

    def add(self, document: Document, signed: Signed, moment: int) -> None:
        """Add a document that was checked in this very transaction."""
        named = {"origin": document.origin, "version": document.version, "digest": document.digest}
        row = named | asdict(signed) | {"published_at": moment}
        self._connection.execute(sa.insert(documents).values(row))

    def add_keys(self, helper: str, sequence: int, message: bytes, moment: int) -> None:
        """Add a key configuration that was checked in this very transaction."""
        row = {"helper": helper, "sequence": sequence, "message": message, "published_at": moment}
        self._connection.execute(sa.insert(configurations).values(row))

    def _newest(self, missing: MaskedLarkError, *where: sa.ColumnElement[bool]) -> Signed:
        chosen = sa.select(*_SIGNED).where(*where).order_by(documents.c.version.desc())
        row = self._connection.execute(chosen.limit(1)).first()
        if row is None:
            raise missing
        return Signed(*row)


class Store:
    """The database of one parameter service. Several processes may open it."""

    def __init__(self, where: Path | str) -> None:
        """Opens the database at a URL, or the SQLite file at a path, with our tables."""
        by_url = isinstance(where, str) and "://" in where
        url = str(where) if by_url else URL.create("sqlite", database=str(where))
        self._database = open_database(url, wait=True)
        try:
            schema.prepare(self._database, "parameters", SCHEMA_VERSION, metadata)
        except BaseException:
            self._database.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[View]:
        """A transaction that only reads."""
        with self._database.read() as connection:
            yield View(connection)

    @contextmanager
    def writing(self) -> Iterator[View]:
        """A transaction that excludes other writers from its first read on; durable when it ends."""
        with self._database.write() as connection:
            self._database.alone(connection, "parameters")
            yield View(connection)

    def check(self) -> None:
        """Return if documents can be stored; raise if not."""
        schema.check(self._database)

    def counts(self) -> dict[tuple[str, ...], float]:
        """How many documents and key configurations there are, by kind."""
        kinds = {"document": documents, "keys": configurations}
        counts = {kind: sa.select(sa.func.count()).select_from(table) for kind, table in kinds.items()}
        with self._database.read() as connection:
            return {(kind,): connection.scalar(count) or 0 for kind, count in counts.items()}

    def close(self) -> None:
        """Close the connections."""
        self._database.close()
