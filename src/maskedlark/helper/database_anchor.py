"""The anchor in a PostgreSQL database of its own, for helpers on several machines. Run by a helper.

One statement compares and sets a chain head, so whichever process comes last, none moves back.
"""

import logging
from typing import Any

from sqlalchemy import BigInteger, Column, LargeBinary, MetaData, String, Table, func, select
from sqlalchemy.dialects.postgresql import insert

from maskedlark.helper.anchor import refuse_second_ledger
from maskedlark.helper.errors import AnchorInLedger, DamagedAnchor
from maskedlark.ledger.rows import NOTHING, ChainHead
from maskedlark.randomness import SystemRandomness
from maskedlark.storage.engine import Database
from maskedlark.storage.postgresql import PostgreSQL
from maskedlark.storage.schema import prepare
from maskedlark.wire.report import MAX_ORIGIN

SCHEMA_VERSION = 1
_TABLES = MetaData()
_HEADS = Table(
    "anchor_heads",
    _TABLES,
    Column("origin", String(MAX_ORIGIN), primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
)
_log = logging.getLogger(__name__)


class DatabaseAnchor:
    """One row per origin. Threads, processes and machines may share it."""

    def __init__(self, database: Database) -> None:
        prepare(database, "anchor", SCHEMA_VERSION, _TABLES)
        self._database = database

    def origins(self) -> list[str]:
        """All origins that have a chain head."""
        return [
            origin for (origin,) in self._database.rows(select(_HEADS.c.origin).order_by(_HEADS.c.origin))
        ]

    def read(self, origin: str) -> ChainHead | None:
        """The last chain head of an origin."""
        query = select(_HEADS.c.number, _HEADS.c.digest).where(_HEADS.c.origin == origin)
        for number, digest in self._database.rows(query):
            if number < 0 or len(digest) != len(NOTHING):
                raise DamagedAnchor(
                    f"the row of {origin} in the anchor's database was damaged or changed: put the newest "
                    "copy back. Without it a ledger that lost receipts would not be noticed, so nothing is "
                    "answered"
                )
            return ChainHead(number, digest)
        return None

    def write(self, origin: str, head: ChainHead) -> None:
        """Durably store a chain head before returning. It never moves back."""
        new = insert(_HEADS).values(origin=origin, number=head.number, digest=head.digest)
        changed = {"number": new.excluded.number, "digest": new.excluded.digest}
        later = new.on_conflict_do_update(
            index_elements=["origin"], set_=changed, where=_HEADS.c.number < new.excluded.number
        )
        with self._database.write() as connection:
            is_set = connection.scalar(later.returning(_HEADS.c.number)) is not None
        if not is_set:
            refuse_second_ledger(origin, self.read(origin), head)


def refuse_ledger(anchor: Database, ledger: Database) -> None:
    """Refuse the ledger's own database: a copy of it that is put back would bring its anchor with it."""
    if not isinstance(ledger, PostgreSQL):
        return
    # Not by their URLs: a server has many names. A lock is of one database, so who cannot take it is there.
    lock = int.from_bytes(SystemRandomness().bytes(7), "big")
    with ledger.write() as ours, anchor.write() as theirs:
        ours.execute(select(func.pg_advisory_xact_lock(lock)))
        if not theirs.scalar(select(func.pg_try_advisory_xact_lock(lock))):
            raise AnchorInLedger(
                "the anchor is in the ledger's own database: a copy that is put back would bring it with it, "
                "and a budget would be spent twice. Name another database, best on another server"
            )
        if _server(ours) == _server(theirs):
            _log.warning("anchor and ledger are on one server: never put back a copy of the whole server")


def _server(connection: Any) -> Any:  # noqa: ANN401 - a row of the driver's
    """When the server began: no two began in the same microsecond."""
    return connection.scalar(select(func.pg_postmaster_start_time()))
