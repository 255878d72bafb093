"""What a ledger knows of having been lost: that it is a copy, and which accounts are closed. Run by a helper.

A backup's ledger says that it is one: put back, it answers nothing until it was recovered, whatever the
anchor says. Where receipts are missing for good, nobody knows what they cost. So the accounts that they may
have been about count as spent, all of them: an account is of one document, and those up to the newest one
that there was are closed. A later document's sources are others, and begin with its whole budget.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Integer,
    MetaData,
    String,
    Table,
    delete,
    insert,
    select,
)

from maskedlark.ledger import slots
from maskedlark.ledger.errors import AccountClosed, LedgerBehind
from maskedlark.parameters.document import Document
from maskedlark.wire.report import MOST_ORIGIN

SCHEMA_VERSION = 1
TABLES = MetaData()
_COPIES = Table("ledger_copies", TABLES, Column("taken", BigInteger, primary_key=True))
_CLOSED = Table(
    "ledger_closed",
    TABLES,
    Column("origin", String(MOST_ORIGIN), primary_key=True),
    Column("version", Integer, primary_key=True),
)


def is_copy(connection: Connection) -> bool:
    """Whether this ledger was put back from a backup, and not recovered yet."""
    return connection.execute(select(_COPIES).limit(1)).first() is not None


def mark_copy(connection: Connection, taken: int) -> None:
    """Let a backup's ledger say that it is one. Never on the ledger itself."""
    connection.execute(insert(_COPIES).values(taken=taken))


def unmark(connection: Connection) -> None:
    """It was recovered: it is the ledger now. Steps may have been taken since: open sessions are over."""
    connection.execute(delete(_COPIES))
    slots.lose_open(connection)


def refuse_copy(connection: Connection) -> None:
    """Refuse a ledger that is a copy. What was answered since it was made is not in it."""
    if is_copy(connection):
        raise LedgerBehind(
            "this ledger was put back from a backup, which lacks what was answered since: run "
            "`maskedlark helper recover` with the receipts"
        )


def close(connection: Connection, document: Document) -> None:
    """Nothing is charged any more under this document of its origin, nor under an earlier one."""
    if not is_closed(connection, document):
        connection.execute(insert(_CLOSED).values(origin=document.origin, version=document.version))


def is_closed(connection: Connection, document: Document) -> bool:
    """Whether the account of a document counts as spent."""
    query = select(_CLOSED).where(_CLOSED.c.origin == document.origin, _CLOSED.c.version >= document.version)
    return connection.execute(query.limit(1)).first() is not None


def refuse_closed(connection: Connection, document: Document) -> None:
    """Refuse an account that counts as spent."""
    if is_closed(connection, document):
        raise AccountClosed(
            f"this helper lost receipts under version {document.version} of {document.origin} or a later "
            "one: what they cost is not known, so all of it counts as spent. Publish a new version"
        )
