"""The tables of a helper's datasets. What they say is the truth; files without a row are nothing.

A claimed id is in the row of the chunk that claimed it, sixteen bytes after the other. Ids are random, so a
table of them would touch a page of the disk for each; a chunk's row is written in one piece, and `ids.Ids`
finds in memory what all rows hold. `ids_mark` is the lock under which ids are claimed, and counts them.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from maskedlark.wire.datasets import MOST_DATASET_NAME
from maskedlark.wire.report import MOST_ORIGIN

SCHEMA_VERSION = 3
TABLES = MetaData()

DATASETS = Table(
    "datasets",
    TABLES,
    # Never used again, even if the dataset is aborted: a late writer meets no other dataset's files.
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("origin", String(MOST_ORIGIN), nullable=False),
    Column("name", String(MOST_DATASET_NAME), nullable=False),
    Column("opening", LargeBinary, nullable=False),
    Column("purpose", String(16), nullable=False),
    Column("parameters", LargeBinary, nullable=False),
    Column("state", String(16), nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=True),
    Column("records", BigInteger, nullable=True),
    # What sealing made: the digest of what was agreed, the folder of columns, and what is in it.
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

ABORTED_OPENINGS = Table(
    "aborted_openings",
    TABLES,
    Column("origin", String(MOST_ORIGIN), primary_key=True),
    Column("opening", LargeBinary, primary_key=True),
    Column("until", BigInteger, nullable=False),
)
RECOVERY_VERSION = 1
RECOVERY = MetaData()
"""Made beside the others, so that a database of before a recovery was thought of is still good."""
FLOOR = Table("ids_floor", RECOVERY, Column("hour", BigInteger, primary_key=True))
"""Reports of the greatest of these hours, and of all before it, may have been in a dataset that was lost."""
LOST = Table(
    "lost_datasets",
    RECOVERY,
    Column("origin", String(MOST_ORIGIN), primary_key=True),
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
