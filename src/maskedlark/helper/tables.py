"""The tables of a helper's datasets, and queries for common rows. Run by a helper.

Rows are authoritative; files without a row are garbage. A claimed id is in the row of the chunk that claimed
it, concatenated with the chunk's others. Ids are random, so a table of them would touch a disk page for each;
a chunk's row is written in one piece, and `ids.Ids` finds in memory what all rows hold. `ids_mark` is the
lock under which ids are claimed, and counts them.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    String,
    Table,
    Text,
    UniqueConstraint,
    select,
)

from maskedlark.core.sharing import ID_BYTES, ByteRows
from maskedlark.web.errors import ChunkConflict, UnknownDataset
from maskedlark.wire.datasets import MAX_DATASET_NAME, ChunkAnswer
from maskedlark.wire.report import MAX_ORIGIN

OPEN, FROZEN, EXPIRED, ABORTED = "open", "frozen", "expired", "aborted"
"""States of a dataset. Aborted ones are being removed: nobody sees them."""
SCHEMA_VERSION = 4
TABLES = MetaData()

DATASETS = Table(
    "datasets",
    TABLES,
    # Never reused, even after an abort: a late writer meets no other dataset's files.
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("origin", String(MAX_ORIGIN), nullable=False),
    Column("name", String(MAX_DATASET_NAME), nullable=False),
    Column("attempt", LargeBinary, nullable=False),
    Column("purpose", String(16), nullable=False),
    Column("parameters", LargeBinary, nullable=False),
    Column("state", String(16), nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=True),
    Column("records", BigInteger, nullable=True),
    # Made by freezing: the digest of what was agreed, the folder of columns, and its contents.
    Column("agreed", LargeBinary, nullable=True),
    Column("folder", String(64), nullable=True),
    Column("contents", Text, nullable=True),
    Column("receipt", LargeBinary, nullable=True),
    Column("document", LargeBinary, nullable=False),
    UniqueConstraint("origin", "name"),
    UniqueConstraint("origin", "digest"),
    sqlite_autoincrement=True,
)
CHUNKS = Table(
    "chunks",
    TABLES,
    Column("dataset", Integer, ForeignKey("datasets.number"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("claim", BigInteger, nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("parts", Integer, nullable=False),
    Column("accepted", LargeBinary, nullable=False),
    Column("refused", Text, nullable=False),
    Column("file", String(64), nullable=False),
    # Last, because it is the longest: it is not read with the others.
    Column("ids", LargeBinary, nullable=True),
)
Index("chunks_by_claim", CHUNKS.c.claim, unique=True)
Index("chunks_by_expiry", CHUNKS.c.expires)

ABORTED_ATTEMPTS = Table(
    "aborted_attempts",
    TABLES,
    Column("origin", String(MAX_ORIGIN), primary_key=True),
    Column("attempt", LargeBinary, primary_key=True),
    Column("until", BigInteger, nullable=False),
)
FLOOR = Table("ids_floor", TABLES, Column("hour", BigInteger, primary_key=True))
"""Reports of the latest of these hours, or earlier, may have been in a lost dataset."""
LOST = Table(
    "lost_datasets",
    TABLES,
    Column("origin", String(MAX_ORIGIN), primary_key=True),
    Column("digest", LargeBinary, primary_key=True),
)
MARK = Table(
    "ids_mark",
    TABLES,
    Column("id", Integer, primary_key=True),
    Column("claims", BigInteger, nullable=False),
    Column("freed", BigInteger, nullable=False),
    Column("watermark", BigInteger, nullable=False),
)
_ALL_BUT_IDS = [column for column in CHUNKS.c if column.name != "ids"]

DatasetRow = Row[Any]
ChunkRow = Row[Any]


def by_name(
    connection: Connection, origin: str, name: str, attempt: bytes | None = None, lock: bool = False
) -> DatasetRow:
    """A dataset by name and attempt. The lock keeps its state until the transaction ends."""
    query = select(DATASETS).where(DATASETS.c.origin == origin, DATASETS.c.name == name)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None or row.state == ABORTED:
        raise UnknownDataset(f"{origin} has no dataset {name!r} here; open it first")
    if attempt is not None and row.attempt != attempt:
        raise UnknownDataset(f"the dataset {name!r} here is of another attempt")
    return row


def chunk(connection: Connection, dataset: int, number: int) -> ChunkRow | None:
    """A received chunk; None if there is none."""
    query = select(*_ALL_BUT_IDS).where(CHUNKS.c.dataset == dataset, CHUNKS.c.number == number)
    return connection.execute(query).one_or_none()


def chunks(connection: Connection, dataset: int) -> Sequence[ChunkRow]:
    """All chunks of a dataset, in order."""
    query = select(*_ALL_BUT_IDS).where(CHUNKS.c.dataset == dataset).order_by(CHUNKS.c.number)
    return connection.execute(query).all()


def answer(row: ChunkRow, body: bytes | None = None) -> ChunkAnswer:
    """What was answered for a chunk. Refuses a different body, if its digest is given."""
    if body is not None and row.body != body:
        raise ChunkConflict(f"chunk {row.number} was received with other bytes, and stays")
    return ChunkAnswer(parts=row.parts, accepted=row.accepted.hex(), refused=json.loads(row.refused))


def ids_in(*rows: bytes | None) -> ByteRows:
    """The ids in rows of chunks, concatenated; none from a row whose ids were pruned."""
    return np.frombuffer(b"".join(row or b"" for row in rows), np.uint8).reshape(-1, ID_BYTES)
