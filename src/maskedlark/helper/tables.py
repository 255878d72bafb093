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
import sqlalchemy as sa

from maskedlark.core.sharing import ID_BYTES, ByteRows
from maskedlark.web.errors import ChunkConflict, UnknownDataset
from maskedlark.wire.datasets import MAX_DATASET_NAME, ChunkAnswer
from maskedlark.wire.report import MAX_ORIGIN

OPEN, FROZEN, EXPIRED, ABORTED = "open", "frozen", "expired", "aborted"
"""States of a dataset. Aborted ones are being removed: nobody sees them."""
SCHEMA_VERSION = 6
TABLES = sa.MetaData()

DATASETS = sa.Table(
    "datasets",
    TABLES,
    # Never reused, even after an abort: a late writer meets no other dataset's files.
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("origin", sa.String(MAX_ORIGIN), nullable=False),
    sa.Column("name", sa.String(MAX_DATASET_NAME), nullable=False),
    sa.Column("attempt", sa.LargeBinary, nullable=False),
    sa.Column("purpose", sa.String(16), nullable=False),
    sa.Column("parameters", sa.LargeBinary, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("expires", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=True),
    sa.Column("records", sa.BigInteger, nullable=True),
    # Made by freezing: the digest of what was agreed, the folder of columns, and its contents.
    sa.Column("agreed", sa.LargeBinary, nullable=True),
    sa.Column("folder", sa.String(64), nullable=True),
    sa.Column("contents", sa.Text, nullable=True),
    sa.Column("receipt", sa.LargeBinary, nullable=True),
    sa.Column("document", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("origin", "name"),
    sa.UniqueConstraint("origin", "digest"),
    sqlite_autoincrement=True,
)
CHUNKS = sa.Table(
    "chunks",
    TABLES,
    sa.Column("dataset", sa.Integer, sa.ForeignKey("datasets.number"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("claim", sa.BigInteger, nullable=False),
    sa.Column("expires", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("parts", sa.Integer, nullable=False),
    sa.Column("accepted", sa.LargeBinary, nullable=False),
    sa.Column("refused", sa.Text, nullable=False),
    sa.Column("file", sa.String(64), nullable=False),
    # Once the messages of all helpers were relayed: the valid parts, a bitmap, and how many are not valid.
    sa.Column("valid", sa.LargeBinary, nullable=True),
    sa.Column("invalid", sa.Integer, nullable=True),
    # Last, because it is the longest: it is not read with the others.
    sa.Column("ids", sa.LargeBinary, nullable=True),
)
sa.Index("chunks_by_claim", CHUNKS.c.claim, unique=True)
sa.Index("chunks_by_expiry", CHUNKS.c.expires)

ABORTED_ATTEMPTS = sa.Table(
    "aborted_attempts",
    TABLES,
    sa.Column("origin", sa.String(MAX_ORIGIN), primary_key=True),
    sa.Column("attempt", sa.LargeBinary, primary_key=True),
    sa.Column("until", sa.BigInteger, nullable=False),
)
FLOOR = sa.Table("ids_floor", TABLES, sa.Column("hour", sa.BigInteger, primary_key=True))
"""Reports of the latest of these hours, or earlier, may have been in a lost dataset."""
LOST = sa.Table(
    "lost_datasets",
    TABLES,
    sa.Column("origin", sa.String(MAX_ORIGIN), primary_key=True),
    sa.Column("digest", sa.LargeBinary, primary_key=True),
)
MARK = sa.Table(
    "ids_mark",
    TABLES,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("claims", sa.BigInteger, nullable=False),
    sa.Column("freed", sa.BigInteger, nullable=False),
    sa.Column("watermark", sa.BigInteger, nullable=False),
)
_ALL_BUT_IDS = [column for column in CHUNKS.c if column.name != "ids"]

DatasetRow = sa.Row[Any]
ChunkRow = sa.Row[Any]


def by_name(
    connection: sa.Connection, origin: str, name: str, attempt: bytes | None = None, lock: bool = False
) -> DatasetRow:
    """A dataset by name and attempt. The lock keeps its state until the transaction ends."""
    query = sa.select(DATASETS).where(DATASETS.c.origin == origin, DATASETS.c.name == name)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None or row.state == ABORTED:
        raise UnknownDataset(f"{origin} has no dataset {name!r} here; open it first")
    if attempt is not None and row.attempt != attempt:
        raise UnknownDataset(f"the dataset {name!r} here is of another attempt")
    return row


def chunk(connection: sa.Connection, dataset: int, number: int) -> ChunkRow | None:
    """A received chunk; None if there is none."""
    query = sa.select(*_ALL_BUT_IDS).where(CHUNKS.c.dataset == dataset, CHUNKS.c.number == number)
    return connection.execute(query).one_or_none()


def chunks(connection: sa.Connection, dataset: int) -> Sequence[ChunkRow]:
    """All chunks of a dataset, in order."""
    query = sa.select(*_ALL_BUT_IDS).where(CHUNKS.c.dataset == dataset).order_by(CHUNKS.c.number)
    return connection.execute(query).all()


def answer(row: ChunkRow, body: bytes | None = None) -> ChunkAnswer:
    """What was answered for a chunk. Refuses a different body, if its digest is given."""
    if body is not None and row.body != body:
        raise ChunkConflict(f"chunk {row.number} was received with other bytes, and stays")
    return ChunkAnswer(parts=row.parts, accepted=row.accepted.hex(), refused=json.loads(row.refused))


def ids_in(*rows: bytes | None) -> ByteRows:
    """The ids in rows of chunks, concatenated; none from a row whose ids were pruned."""
    return np.frombuffer(b"".join(row or b"" for row in rows), np.uint8).reshape(-1, ID_BYTES)
