"""Ingest: decrypts chunks and claims the ids of their reports. Run by a helper.

HPKE takes nearly all of a helper's time, and a Python process uses only one core. So worker processes decrypt
chunks and write what they hold; the requesting process claims the ids and answers.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import insert, select

from maskedlark.clock import SECONDS_AN_HOUR
from maskedlark.compute.engine import Engine
from maskedlark.core.purpose import Purpose
from maskedlark.core.sharing import ByteRows
from maskedlark.errors import Refused
from maskedlark.helper import chunk_file, tables
from maskedlark.helper.check_keys import CheckKey
from maskedlark.helper.dataset_context import DatasetContext
from maskedlark.helper.dataset_files import DatasetFiles
from maskedlark.helper.errors import BeforeRecovery, Replayed
from maskedlark.helper.tables import CHUNKS, DATASETS, OPEN, DatasetRow
from maskedlark.parameters.document import Document
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web.errors import AlreadyFrozen
from maskedlark.wire import datasets as wire
from maskedlark.wire.acceptance import Terms
from maskedlark.wire.datasets import ChunkAnswer
from maskedlark.wire.decrypt import decrypt_parts, hours_of, ids_of
from maskedlark.wire.errors import OutOfRange, PastLifetime
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.report import Opener


class OpenedChunk(NamedTuple):
    """What could be decrypted of a chunk: nothing is claimed yet."""

    file: str
    accepted: NDArray[np.bool_]
    """One boolean per part."""
    refused: dict[str, int]
    ids: ByteRows
    """The accepted parts' ids, in the order of `hours`."""
    hours: NDArray[np.uint32]


@dataclass(frozen=True, repr=False)
class SentChunk:
    """A chunk to be opened: its body, what opens it, and where its file goes."""

    opener: Opener
    body: bytes
    files: DatasetFiles


def open_chunk(sent: SentChunk) -> OpenedChunk:
    """Decrypt a chunk and durably write its file into the dataset's folder. Run by a worker."""
    opener, layout = sent.opener, sent.opener.layout
    parts = wire.decode_chunk(sent.body, layout.part_size(opener.place), wire.max_parts(layout))
    opened = decrypt_parts(opener, parts)
    file, heads, verdicts = chunk_file.write(sent.files, opened), opened.heads, opened.verdicts
    return OpenedChunk(file, verdicts.accepted, dict(verdicts.refused), ids_of(heads), hours_of(heads))


class ChunkIngest:
    """Ingests the chunks of all datasets. Threads may share it."""

    def __init__(
        self,
        context: DatasetContext,
        keys: Callable[[], Mapping[bytes, OpeningKey]],
        check_key: Callable[[Document], CheckKey],
        engine: Engine,
    ) -> None:
        self._context, self._keys, self._check_key, self._engine = context, keys, check_key, engine

    def ingest(self, origin: str, name: str, number: int, body: bytes, attempt: bytes) -> ChunkAnswer:
        """Decrypt a chunk and claim the ids of its valid reports. Durable when this returns. Idempotent."""
        if not 0 <= number < wire.MAX_CHUNKS:
            raise OutOfRange(f"chunks have numbers from 0 to {wire.MAX_CHUNKS - 1}")
        digest = hashlib.sha256(body).digest()
        with self._context.database.read() as connection:
            row = tables.by_name(connection, origin, name, attempt)
            before = tables.chunk(connection, row.number, number)
        if before is not None:
            return tables.answer(before, digest)
        if row.state != OPEN:
            raise AlreadyFrozen(f"dataset {name!r} is {row.state}: it takes no more chunks")
        with self._context.writing(row.number):
            opened = self._open(row, body)
            return self._claim(row, number, digest, opened)

    def _open(self, row: DatasetRow, body: bytes) -> OpenedChunk:
        document, purpose = self._context.document(row), Purpose(row.purpose)
        check_key = self._check_key(document).key if document.checked else None
        try:
            files = self._context.files(row.number)
            files.make()
            layout, terms = document.layout(purpose), Terms(document.report_lifetime_s, self._context.now())
            place = layout.helpers.index(self._context.helper)
            opener = Opener(layout, place, self._keys(), terms, check_key)
            return self._engine.run(open_chunk, SentChunk(opener, body, files))
        except OSError as error:
            # If it was aborted, and its folder with it, report that.
            self._context.row(row.origin, row.name, row.attempt)
            raise StorageUnavailable("the chunk cannot be written now; send it again later") from error

    def _claim(self, row: DatasetRow, number: int, body: bytes, opened: OpenedChunk) -> ChunkAnswer:
        """In one transaction: decide which of the opened reports are new, and store the chunk."""
        lifetime = self._context.document(row).report_lifetime_s
        expires = (opened.hours.astype(np.int64) + 1) * SECONDS_AN_HOUR + lifetime
        with self._context.database.write() as connection:
            # The lock keeps it open until the transaction ends.
            state = select(DATASETS.c.state).where(DATASETS.c.number == row.number)
            if connection.scalar(state.with_for_update(read=True)) != OPEN:
                row = tables.by_name(connection, row.origin, row.name, row.attempt)
                raise AlreadyFrozen(f"dataset {row.name!r} is {row.state}: it takes no more chunks")
            cursor = self._context.ids.lock(connection)
            before = tables.chunk(connection, row.number, number)
            if before is not None:  # A concurrent request was first.
                self._context.files(row.number).remove(opened.file)
                return tables.answer(before, body)
            past = expires <= cursor.watermark
            # After a disk loss it is unknown which ids were in a dataset: all earlier ones may have been.
            early = opened.hours.astype(np.int64) <= self._context.ids.floor(connection)
            replayed = self._context.ids.are_claimed(connection, cursor, opened.ids)
            answer = _answer(opened, {PastLifetime: past, BeforeRecovery: early, Replayed: replayed})
            new = ~(past | early | replayed)
            claim, ids = self._context.ids.claim(connection, cursor), opened.ids[new]
            made = insert(CHUNKS).values(
                dataset=row.number,
                number=number,
                claim=claim,
                expires=int(expires[new].max()) if new.any() else row.expires,
                body=body,
                parts=answer.parts,
                accepted=bytes.fromhex(answer.accepted),
                refused=json.dumps(answer.refused),
                file=opened.file,
                ids=ids.tobytes(),
            )
            connection.execute(made)
        self._context.ids.claimed(cursor, ids)
        return answer


def _answer(opened: OpenedChunk, why: Mapping[type[Refused], NDArray[np.bool_]]) -> ChunkAnswer:
    """What is accepted of a chunk: some opened reports are now refused, each for its first reason."""
    refused, new = Counter(opened.refused), np.ones(len(opened.ids), np.bool_)
    for error, which in why.items():
        refused[error.__name__] += int((which & new).sum())
        new &= ~which
    accepted = opened.accepted.copy()
    accepted[opened.accepted] = new
    return ChunkAnswer(parts=len(accepted), accepted=wire.pack(accepted), refused=dict(+refused))
