"""A helper's datasets: received by `ingest`, frozen by `freezing`, deleted on expiry. Run by a helper."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import insert, select, update

from maskedlark.compute.engine import Engine
from maskedlark.core.purpose import Purpose
from maskedlark.errors import Expired, NotValid
from maskedlark.helper import tables
from maskedlark.helper.check_keys import CheckKeys
from maskedlark.helper.checking import ChunkChecks
from maskedlark.helper.columns import Contents
from maskedlark.helper.dataset_context import DatasetContext
from maskedlark.helper.forgetting import forget_columns
from maskedlark.helper.freezing import Freezer
from maskedlark.helper.ingest import ChunkIngest
from maskedlark.helper.shards import FrozenDataset
from maskedlark.helper.tables import (
    ABORTED,
    ABORTED_ATTEMPTS,
    DATASETS,
    EXPIRED,
    LOST,
    OPEN,
    ChunkRow,
    DatasetRow,
)
from maskedlark.ledger.ledger import Ledger
from maskedlark.parameters.document import Document
from maskedlark.randomness import Randomness
from maskedlark.web.errors import AlreadyFrozen, DatasetConflict, DatasetLost, UnknownChunk, UnknownDataset
from maskedlark.wire.datasets import ChunkAnswer, FreezeRequest, Frozen, State
from maskedlark.wire.hpke import OpeningKey

ABORTED_S = 3600
"""How long an aborted attempt is remembered: longer than a signed request can be replayed."""


class Datasets:
    """All datasets of a helper, in one folder and one database. Threads may share it."""

    def __init__(
        self,
        context: DatasetContext,
        ledger: Ledger,
        keys: Callable[[], Mapping[bytes, OpeningKey]],
        check_keys: CheckKeys,
        engine: Engine,
        shard_bytes: int,
        rng: Randomness,
    ) -> None:
        self._context, self._engine = context, engine
        self._ingest = ChunkIngest(context, keys, check_keys.of, engine)
        self.checks = ChunkChecks(context, check_keys)
        self._freezer = Freezer(context, ledger, engine, shard_bytes, rng)
        self._loaded: dict[tuple[str, bytes], FrozenDataset] = {}
        self._must_tell_workers = False

    def open(self, document: Document, name: str, purpose: Purpose, attempt: bytes) -> State:
        """Begin a dataset, or find it as it is. Refuses a name used for anything else."""
        while (state := self._open(document, name, purpose, attempt)) is None:
            self._context.finish_aborts()
        return state

    def _open(self, document: Document, name: str, purpose: Purpose, attempt: bytes) -> State | None:
        """None while another dataset of this name is being removed."""
        with self._context.database.write() as connection:
            self._context.database.alone(connection, "datasets")
            named = DATASETS.c.origin == document.origin, DATASETS.c.name == name
            row = connection.execute(select(DATASETS).where(*named)).one_or_none()
            if row is not None and row.state == ABORTED:
                return None
            kept = ABORTED_ATTEMPTS.c
            aborted = select(kept.until).where(kept.origin == document.origin, kept.attempt == attempt)
            if connection.scalar(aborted) is not None:
                raise DatasetConflict(f"this attempt to build {name!r} was aborted; begin another")
            if row is None:
                new = insert(DATASETS).values(
                    origin=document.origin,
                    name=name,
                    attempt=attempt,
                    purpose=purpose.value,
                    parameters=document.digest,
                    document=document.encode(),
                    state=OPEN,
                    expires=self._context.clock.now() + document.report_lifetime_s,
                )
                row = connection.execute(new.returning(*DATASETS.c)).one()
            if (row.parameters, row.purpose, row.attempt) != (document.digest, purpose.value, attempt):
                raise DatasetConflict(
                    f"{name!r} is of another document, purpose or attempt; choose another name"
                )
            return _state(row, tables.chunks(connection, row.number))

    def add(self, origin: str, name: str, number: int, body: bytes, attempt: bytes) -> ChunkAnswer:
        """Decrypt a chunk and claim the ids of its valid reports. Durable when this returns. Idempotent."""
        return self._ingest.ingest(origin, name, number, body, attempt)

    def chunk(self, origin: str, name: str, number: int) -> ChunkAnswer:
        """What was answered for a chunk."""
        with self._context.database.read() as connection:
            row = tables.chunk(connection, tables.by_name(connection, origin, name).number, number)
        if row is None:
            raise UnknownChunk(f"chunk {number} of {name!r} was not received")
        return tables.answer(row)

    def state(self, origin: str, name: str) -> State:
        """A dataset's state."""
        with self._context.database.read() as connection:
            row = tables.by_name(connection, origin, name)
            return _state(row, tables.chunks(connection, row.number))

    def freeze(self, origin: str, name: str, request: FreezeRequest, attempt: bytes) -> Frozen:
        """Freeze what all helpers accepted. The same request gets the same answer."""
        return self._freezer.freeze(origin, name, request, attempt)

    def abort(self, origin: str, name: str, attempt: bytes) -> None:
        """Abort a dataset that is not frozen: its reports may be in another."""
        # Not while it is being frozen: the reader of its files would find them gone.
        with self._freezer.alone(), self._context.database.write() as connection:
            row = tables.by_name(connection, origin, name, attempt, lock=True)
            if row.state != OPEN:
                raise AlreadyFrozen(f"dataset {name!r} is {row.state} and never changes")
            this = update(DATASETS).where(DATASETS.c.number == row.number)
            connection.execute(this.values(state=ABORTED))
            # Its requests may be replayed: they must not open it again and claim its ids.
            until = self._context.clock.now() + ABORTED_S
            self._context.database.insert_new(connection, ABORTED_ATTEMPTS, [(origin, attempt, until)])
        self._context.finish_aborts()

    def find(self, origin: str, digest: bytes) -> FrozenDataset:
        """A frozen dataset of an origin, until any report in it has expired."""
        dataset = self._loaded.get((origin, digest)) or self._load(origin, digest)
        if dataset.expires <= self._context.now():
            raise _over(digest)
        return self._loaded.setdefault((origin, digest), dataset)

    def forget(self) -> None:
        """Delete what has expired and files that no row names. Run at the start, and every hour.

        Then `tell_workers`.
        """
        self._context.ids.prune(self._context.clock.now())
        # The time that is stored, not what the clock says by now: by it all processes refuse what goes.
        now = self._context.ids.watermark()
        self._context.expire(now)
        self._context.finish_aborts()
        self._context.sweep_all()
        expired = [name for name, each in [*self._loaded.items()] if each.expires <= now]
        if expired:
            # What has expired must not stay in memory: neither here, nor in workers.
            self._must_tell_workers = True
            for name in expired:
                del self._loaded[name]
            forget_columns()

    def tell_workers(self) -> None:
        """Have workers forget too. Run last: while a cluster is away it fails, and is tried again next time.

        Workers that ended meanwhile hold nothing.
        """
        if self._must_tell_workers:
            self._engine.map(forget_columns, None, range(self._engine.workers))
            self._must_tell_workers = False

    def _load(self, origin: str, digest: bytes) -> FrozenDataset:
        query = select(DATASETS).where(DATASETS.c.origin == origin, DATASETS.c.digest == digest)
        with self._context.database.read() as connection:
            row = connection.execute(query).one_or_none()
            lost = select(LOST.c.digest).where(LOST.c.origin == origin, LOST.c.digest == digest)
            is_lost = connection.scalar(lost) is not None
        if row is None and is_lost:
            raise DatasetLost(f"dataset {digest.hex()} was frozen here, and lost with this helper's disk")
        if row is None:
            raise UnknownDataset(f"{origin} has no frozen dataset {digest.hex()} here")
        if row.state == EXPIRED:
            raise _over(digest)
        document, purpose = self._context.document(row), Purpose(row.purpose)
        files = self._context.files(row.number).within(row.folder)
        contents = Contents.model_validate_json(row.contents)
        return FrozenDataset(digest, document, purpose, row.expires, files, contents)


def _over(digest: bytes) -> Expired:
    return Expired(f"dataset {digest.hex()} holds a report that is past its lifetime: it is gone")


def _state(row: DatasetRow, chunks: Sequence[ChunkRow]) -> State:
    refused = sum((Counter(json.loads(each.refused)) for each in chunks), Counter[str]())
    refused += Counter({NotValid.__name__: sum(each.invalid or 0 for each in chunks)})
    parts = sum(each.parts for each in chunks)
    return State(
        name=row.name,
        attempt=row.attempt.hex(),
        parameters=row.parameters.hex(),
        purpose=row.purpose,
        state=row.state,
        chunks=tuple(each.number for each in chunks) if row.state == OPEN else (),
        received=parts,
        accepted=parts - refused.total(),
        refused=dict(refused),
        digest=None if row.digest is None else row.digest.hex(),
        records=row.records,
    )
