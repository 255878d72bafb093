"""Checking chunks before they are frozen: our numbers go out, those of all helpers come in. Run by a helper.

The numbers were computed when the chunk was decrypted, from our own shares, the pinned key and the report ids
alone. So asking again, in whatever dataset and after whatever crash or abort, gives the same numbers or none.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select, update

from maskedlark.errors import NotDeclared, WrongLength
from maskedlark.helper import chunk_file, tables
from maskedlark.helper.check_keys import CheckKeys
from maskedlark.helper.dataset_context import DatasetContext
from maskedlark.helper.errors import DamagedDataset
from maskedlark.helper.tables import CHUNKS, DATASETS, OPEN, ChunkRow, DatasetRow
from maskedlark.parameters.document import Document
from maskedlark.release import check_messages
from maskedlark.web.errors import AlreadyFrozen, UnknownChunk
from maskedlark.wire import datasets
from maskedlark.wire.checks import Checks, decode_relay
from maskedlark.wire.datasets import CheckAnswer


class _OwnChecks(NamedTuple):
    """A chunk with our numbers."""

    dataset: DatasetRow
    document: Document
    chunk: ChunkRow
    accepted: NDArray[np.bool_]
    checks: Checks


class ChunkChecks:
    """Checks the chunks of all datasets. Threads may share it."""

    def __init__(self, context: DatasetContext, keys: CheckKeys) -> None:
        self._context, self._keys = context, keys

    def message(self, origin: str, name: str, number: int, attempt: bytes) -> bytes:
        """Our signed numbers for the parts of a chunk that we accepted."""
        own = self._own(origin, name, number, attempt)
        return check_messages.sign(own.checks, self._keys.signer.current(own.checks.time))

    def check(self, origin: str, name: str, number: int, relayed: bytes, attempt: bytes) -> CheckAnswer:
        """Decide which parts are valid, by our numbers and those of all others. Durable when this returns."""
        own = self._own(origin, name, number, attempt)
        places = [place for place in range(len(own.document.helpers)) if place != own.checks.place]
        messages = decode_relay(relayed)
        if len(messages) != len(places):
            raise WrongLength(
                f"{len(messages)} check messages, and there are {len(places)} other helpers: relay all"
            )
        others = [
            check_messages.verify(message, own.document, place, own.checks.key_digest)
            for message, place in zip(messages, places, strict=True)
        ]
        verdict, valid = check_messages.verdict(own.checks, others), np.zeros(own.chunk.parts, np.bool_)
        valid[own.accepted] = verdict.valid
        answer = CheckAnswer(valid=datasets.pack(valid), invalid=int(verdict.invalid.sum()))
        self._store(own, answer)
        return answer

    def _store(self, own: _OwnChecks, answer: CheckAnswer) -> None:
        row = own.dataset
        with self._context.database.write() as connection:
            # The lock keeps it open until the transaction ends.
            state = select(DATASETS.c.state).where(DATASETS.c.number == row.number)
            if connection.scalar(state.with_for_update(read=True)) != OPEN:
                raise _no_longer_open(tables.by_name(connection, row.origin, row.name, row.attempt))
            this = CHUNKS.c.dataset == row.number, CHUNKS.c.number == own.chunk.number
            stored = {"valid": bytes.fromhex(answer.valid), "invalid": answer.invalid}
            connection.execute(update(CHUNKS).where(*this).values(**stored))

    def _own(self, origin: str, name: str, number: int, attempt: bytes) -> _OwnChecks:
        with self._context.database.read() as connection:
            row = tables.by_name(connection, origin, name, attempt)
            chunk = tables.chunk(connection, row.number, number)
        document = self._context.document(row)
        if not document.checked:
            raise NotDeclared(f"version {document.version} of {origin} declares no checks")
        if row.state != OPEN:
            raise _no_longer_open(row)
        if chunk is None:
            raise UnknownChunk(f"chunk {number} of {name!r} was not received")
        key = self._keys.of(document)  # Its pin is anchored before a number leaves.
        accepted = datasets.unpack(chunk.accepted.hex(), chunk.parts)
        try:
            kept = chunk_file.read_checks(self._context.files(row.number), chunk.file, accepted)
        except DamagedDataset:
            # If it was frozen or aborted meanwhile, and its file is gone, report that.
            if (row := self._context.row(origin, name, attempt)).state != OPEN:
                raise _no_longer_open(row) from None
            raise
        place = [each.name for each in document.helpers].index(self._context.helper)
        named = place, self._context.clock.now(), document.origin, document.digest, key.digest
        return _OwnChecks(row, document, chunk, accepted, Checks(*named, kept.ids, kept.numbers))


def _no_longer_open(row: DatasetRow) -> AlreadyFrozen:
    return AlreadyFrozen(f"dataset {row.name!r} is {row.state}: its chunks are checked no more")
