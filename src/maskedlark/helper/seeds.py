"""The seeds of batches, one a dataset: made here if we are the document's first helper, else taken from it.

Run by a helper. A seed is written once and never changes: another would draw who was in a batch anew.
"""

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Column, Connection, LargeBinary, MetaData, Row, String, Table, insert, select

from maskedlark.clock import Clock
from maskedlark.core.batches import SEED_BYTES
from maskedlark.privacy import batch_seed
from maskedlark.privacy.document import Document
from maskedlark.privacy.errors import BadSeed
from maskedlark.privacy.ledger import Signer
from maskedlark.randomness import Randomness
from maskedlark.storage.engine import Database
from maskedlark.storage.schema import prepare
from maskedlark.web.errors import NoSeed
from maskedlark.wire.hpke import OpeningKey, SealingKey
from maskedlark.wire.report import MOST_ORIGIN

SCHEMA_VERSION = 1
TABLES = MetaData()
SEEDS = Table(
    "batch_seeds",
    TABLES,
    Column("origin", String(MOST_ORIGIN), primary_key=True),
    Column("dataset", LargeBinary, primary_key=True),
    Column("seed", LargeBinary, nullable=False),
    Column("message", LargeBinary, nullable=False),
)
Recipients = Callable[[Document], Mapping[str, SealingKey]]
"""The keys, now, of the document's other helpers by name."""


class Seeds:
    """All seeds of a helper. Threads may share it."""

    def __init__(
        self,
        database: Database,
        signer: Signer,
        keys: Callable[[], Mapping[bytes, OpeningKey]],
        recipients: Recipients,
        clock: Clock,
        rng: Randomness,
    ) -> None:
        prepare(database, "seeds", SCHEMA_VERSION, TABLES)
        self._database, self._signer, self._keys = database, signer, keys
        self._recipients, self._clock, self._rng = recipients, clock, rng

    def make(self, document: Document, dataset: bytes) -> bytes:
        """The message for the other helpers: the same bytes always. Run by the document's first helper."""
        if document.helpers[0].name != self._signer.helper:
            raise BadSeed(f"seeds are made by {document.helpers[0].name}: ask it, and relay the answer")
        with self._database.read() as connection:
            row = _row(connection, document.origin, dataset)
        if row is not None:
            return bytes(row.message)
        # Not in a transaction: the others' keys may have to be fetched.
        recipients, now = self._recipients(document), self._clock.now()
        seed = self._rng.bytes(SEED_BYTES)
        made = batch_seed.make(seed, document, dataset, recipients, self._signer.current(now), now)
        return self._keep(document.origin, dataset, seed, made.encode())

    def take(self, document: Document, dataset: bytes, message: bytes) -> None:
        """Keep the seed that the first helper made. The same message again changes nothing."""
        seed = batch_seed.unseal(message, document, dataset, self._signer.helper, self._keys())
        if self._keep(document.origin, dataset, seed, message) != message:
            raise BadSeed("this dataset has another seed already: it is never changed")

    def of(self, origin: str, dataset: bytes) -> bytes:
        """The seed of a dataset."""
        with self._database.read() as connection:
            row = _row(connection, origin, dataset)
        if row is None:
            raise NoSeed("no seed of batches is here yet: get it from the first helper, and relay it")
        return bytes(row.seed)

    def _keep(self, origin: str, dataset: bytes, seed: bytes, message: bytes) -> bytes:
        """Write a seed down unless there is one; return the message of the one that is there then."""
        with self._database.write() as connection:
            self._database.alone(connection, "seeds")
            row = _row(connection, origin, dataset)
            if row is not None:
                return bytes(row.message)
            values = {"origin": origin, "dataset": dataset, "seed": seed, "message": message}
            connection.execute(insert(SEEDS).values(values))
            return message


def _row(connection: Connection, origin: str, dataset: bytes) -> Row[Any] | None:
    query = select(SEEDS).where(SEEDS.c.origin == origin, SEEDS.c.dataset == dataset)
    return connection.execute(query).one_or_none()
