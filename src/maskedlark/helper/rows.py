"""Rows of datasets and chunks: read, and turned into what crosses the line. Run by a helper."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, delete, select

from maskedlark.core.sharing import ID_BYTES, ByteRows
from maskedlark.helper.ids import rows_of
from maskedlark.helper.sealing import Agreed, Received
from maskedlark.helper.tables import ABORTED_OPENINGS, CHUNKS, DATASETS
from maskedlark.web.errors import ChunkConflict, UnknownDataset
from maskedlark.wire.datasets import ChunkAnswer, State

OPEN, SEALED, EXPIRED, ABORTED = "open", "sealed", "expired", "aborted"
"""Aborted ones are on their way out: nobody sees them."""
PAGE = 64
_SHORT = [column for column in CHUNKS.c if column.name != "ids"]

DatasetRow = Row[Any]
ChunkRow = Row[Any]


def by_name(
    connection: Connection, origin: str, name: str, opening: bytes | None = None, lock: bool = False
) -> DatasetRow:
    """A dataset that was opened, by that opening. The lock keeps its state until the transaction ends."""
    query = select(DATASETS).where(DATASETS.c.origin == origin, DATASETS.c.name == name)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None or row.state == ABORTED:
        raise UnknownDataset(f"{origin} has no dataset {name!r} here; open it first")
    if opening is not None and bytes(row.opening) != opening:
        raise UnknownDataset(f"the dataset {name!r} here is of another opening")
    return row


def is_going(connection: Connection, origin: str, name: str) -> bool:
    """Whether a dataset of this name was aborted, and is not gone yet."""
    query = select(DATASETS.c.state).where(DATASETS.c.origin == origin, DATASETS.c.name == name)
    return connection.scalar(query) == ABORTED


def was_aborted(connection: Connection, origin: str, opening: bytes) -> bool:
    """Whether a dataset of this opening was aborted, so lately that its requests may come again."""
    kept = ABORTED_OPENINGS.c
    query = select(kept.until).where(kept.origin == origin, kept.opening == opening)
    return connection.scalar(query) is not None


def keep_open(connection: Connection, row: DatasetRow) -> bool:
    """Whether the dataset is still open; if so, it stays open until the transaction ends."""
    query = select(DATASETS.c.state).where(DATASETS.c.number == row.number)
    return connection.scalar(query.with_for_update(read=True)) == OPEN


def chunk(connection: Connection, dataset: int, number: int) -> ChunkRow | None:
    """A chunk that was received."""
    query = select(*_SHORT).where(CHUNKS.c.dataset == dataset, CHUNKS.c.number == number)
    return connection.execute(query).one_or_none()


def chunks(connection: Connection, dataset: int) -> Sequence[ChunkRow]:
    """All chunks of a dataset, in order."""
    query = select(*_SHORT).where(CHUNKS.c.dataset == dataset).order_by(CHUNKS.c.number)
    return connection.execute(query).all()


def answer(row: ChunkRow, body: bytes | None = None) -> ChunkAnswer:
    """What was answered for a chunk. Refuses one of another body, where its digest is given."""
    if body is not None and bytes(row.body) != body:
        raise ChunkConflict(f"chunk {row.number} was received with other bytes, and stays")
    return ChunkAnswer(parts=row.parts, accepted=bytes(row.accepted).hex(), refused=json.loads(row.refused))


def received(row: ChunkRow) -> Received:
    """A chunk as sealing sees it."""
    bits = np.unpackbits(np.frombuffer(bytes(row.accepted), np.uint8), count=row.parts)
    return Received(row.number, row.file, bits.astype(np.bool_))


def state(row: DatasetRow, found: Sequence[ChunkRow]) -> State:
    """Where a dataset stands."""
    refused: Counter[str] = Counter()
    for each in found:
        refused.update(json.loads(each.refused))
    parts = sum(each.parts for each in found)
    return State(
        name=row.name,
        opening=bytes(row.opening).hex(),
        parameters=bytes(row.parameters).hex(),
        purpose=row.purpose,
        state=row.state,
        chunks=tuple(each.number for each in found) if row.state == OPEN else (),
        received=parts,
        accepted=parts - refused.total(),
        refused=dict(refused),
        digest=None if row.digest is None else bytes(row.digest).hex(),
        records=row.records,
    )


def claimed(connection: Connection, dataset: int, number: int) -> ByteRows:
    """The ids that a chunk has claimed, in the order of its accepted parts; none if they were pruned."""
    query = select(CHUNKS.c.ids).where(CHUNKS.c.dataset == dataset, CHUNKS.c.number == number)
    return rows_of(connection.scalar(query) or b"")


def keep(connection: Connection, dataset: int, agreed: Sequence[Agreed]) -> ByteRows:
    """Let chunks claim no more than what all helpers accepted; returns the ids that are free now."""
    gone = [np.empty((0, ID_BYTES), np.uint8)]
    for found, kept in agreed:
        if (kept == found.accepted).all():
            continue
        ids = claimed(connection, dataset, found.number)
        if len(ids):
            stays: NDArray[np.bool_] = kept[found.accepted]
            gone.append(ids[~stays])
            row = CHUNKS.update().where(CHUNKS.c.dataset == dataset, CHUNKS.c.number == found.number)
            connection.execute(row.values(ids=ids[stays].tobytes()))
    return np.concatenate(gone)


def take_away(connection: Connection, dataset: int) -> tuple[ByteRows, int]:
    """Delete some chunks of a dataset; returns the ids that are free now, and how many chunks that was."""
    some = select(CHUNKS.c.number, CHUNKS.c.ids).where(CHUNKS.c.dataset == dataset).limit(PAGE)
    found = connection.execute(some).all()
    numbers = [row.number for row in found]
    connection.execute(delete(CHUNKS).where(CHUNKS.c.dataset == dataset, CHUNKS.c.number.in_(numbers)))
    gone = [np.empty((0, ID_BYTES), np.uint8), *(rows_of(row.ids or b"") for row in found)]
    return np.concatenate(gone), len(found)


def files(connection: Connection, dataset: int) -> Iterator[str]:
    """The names that a dataset's folder may hold."""
    row = connection.execute(select(DATASETS).where(DATASETS.c.number == dataset)).one_or_none()
    if row is not None and row.state == SEALED:
        yield row.folder
    elif row is not None and row.state == OPEN:
        yield from connection.scalars(select(CHUNKS.c.file).where(CHUNKS.c.dataset == dataset))
