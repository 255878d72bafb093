"""Intake: a chunk is opened, and the ids of what opened are claimed. Run by a helper."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import insert

from maskedlark.clock import SECONDS_AN_HOUR
from maskedlark.core.purpose import Purpose
from maskedlark.errors import OutOfRange, PastLifetime
from maskedlark.helper import rows
from maskedlark.helper.errors import BeforeRecovery, Replayed
from maskedlark.helper.ingest import Ingest, Job, Taken
from maskedlark.helper.rows import OPEN, DatasetRow
from maskedlark.helper.shelf import Shelf
from maskedlark.helper.tables import CHUNKS
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web.errors import AlreadySealed
from maskedlark.wire import datasets as wire
from maskedlark.wire.acceptance import DatasetOpener, Terms
from maskedlark.wire.datasets import ChunkAnswer
from maskedlark.wire.hpke import OpeningKey


class Intake:
    """Takes the chunks of all datasets, in worker processes. Threads may share it."""

    def __init__(self, shelf: Shelf, keys: Callable[[], Mapping[bytes, OpeningKey]], workers: int) -> None:
        self._shelf, self._keys = shelf, keys
        self._ingest = Ingest(workers)

    def take(self, origin: str, name: str, number: int, body: bytes, opening: bytes) -> ChunkAnswer:
        """Take a chunk: open it, claim the ids of what opened. Durable when this returns, and done once."""
        if not 0 <= number < wire.MOST_CHUNKS:
            raise OutOfRange(f"chunks have numbers from 0 to {wire.MOST_CHUNKS - 1}")
        digest = hashlib.sha256(body).digest()
        with self._shelf.database.read() as connection:
            row = rows.by_name(connection, origin, name, opening)
            before = rows.chunk(connection, row.number, number)
        if before is not None:
            return rows.answer(before, digest)
        if row.state != OPEN:
            raise AlreadySealed(f"dataset {name!r} is {row.state}: it takes no more chunks")
        with self._shelf.upkeep.working(row.number):
            taken = self._open(row, body)
            return self._claim(row, number, digest, taken)

    def close(self) -> None:
        """End the workers."""
        self._ingest.close()

    def _open(self, row: DatasetRow, body: bytes) -> Taken:
        try:
            return self._ingest.take(Job(self._opener(row), body, self._shelf.folder(row.number)))
        except OSError as error:
            # Was it aborted, and its folder with it? Then that is what is said.
            self._shelf.row(row.origin, row.name, bytes(row.opening))
            raise StorageUnavailable("the chunk cannot be written now; send it again later") from error

    def _claim(self, row: DatasetRow, number: int, body: bytes, taken: Taken) -> ChunkAnswer:
        """In one transaction: which of the opened reports are new, and the chunk."""
        lifetime = self._shelf.document(row).report_lifetime_s
        expires = (taken.hours.astype(np.int64) + 1) * SECONDS_AN_HOUR + lifetime
        with self._shelf.database.write() as connection:
            if not rows.keep_open(connection, row):
                row = rows.by_name(connection, row.origin, row.name, bytes(row.opening))
                raise AlreadySealed(f"dataset {row.name!r} is {row.state}: it takes no more chunks")
            mark = self._shelf.ids.lock(connection)
            before = rows.chunk(connection, row.number, number)
            if before is not None:  # Somebody sent it at the same time, and was first.
                (self._shelf.upkeep.folder(row.number) / taken.file).unlink(missing_ok=True)
                return rows.answer(before, body)
            past = expires <= mark.watermark
            # After a disk was lost it is not known which ids lived in a dataset: all of before may have.
            early = (taken.hours.astype(np.int64) <= self._shelf.ids.floor(connection)) & ~past
            replayed = self._shelf.ids.taken(connection, mark, taken.ids) & ~past & ~early
            new, answer = ~past & ~early & ~replayed, _answer(taken, past, early, replayed)
            claim, ids = self._shelf.ids.claim(connection, mark), taken.ids[new]
            made = {
                "dataset": row.number,
                "number": number,
                "claim": claim,
                "expires": int(expires[new].max()) if new.any() else row.expires,
                "body": body,
                "parts": answer.parts,
                "accepted": bytes.fromhex(answer.accepted),
                "refused": json.dumps(answer.refused),
                "file": taken.file,
                "ids": ids.tobytes(),
            }
            connection.execute(insert(CHUNKS).values(made))
        self._shelf.ids.claimed(mark, ids)
        return answer

    def _opener(self, row: DatasetRow) -> DatasetOpener:
        document, purpose = self._shelf.document(row), Purpose(row.purpose)
        return DatasetOpener(
            self._shelf.helper,
            self._shelf.place(document),
            self._keys(),
            document.measure if purpose is Purpose.AGGREGATE else document.declared_models,
            document.payload_size(purpose),
            Terms(document.origin, document.digest, document.report_lifetime_s, self._shelf.now()),
        )


def _answer(
    taken: Taken, past: NDArray[np.bool_], early: NDArray[np.bool_], replayed: NDArray[np.bool_]
) -> ChunkAnswer:
    """What is accepted of a chunk: some of its opened reports are too old, or may be in a dataset already."""
    refused = Counter(taken.refused)
    for why, which in ((PastLifetime, past), (BeforeRecovery, early), (Replayed, replayed)):
        refused[why.__name__] += int(which.sum())
    accepted = taken.accepted.copy()
    accepted[np.flatnonzero(accepted)[past | early | replayed]] = False
    return ChunkAnswer(parts=len(accepted), accepted=wire.pack(accepted), refused=dict(+refused))
