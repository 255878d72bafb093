"""The seeds that helpers share, one per dataset: made by the document's first helper, accepted by others.

Run by a helper. A seed is written once and never changes: another would redraw the batches. It is stored as
sealed to us, and deleted when its dataset expires.
"""

from collections.abc import Callable, Mapping

from sqlalchemy import Column, LargeBinary, MetaData, Select, String, Table, delete, select

from maskedlark.clock import Clock
from maskedlark.core.batches import SEED_BYTES
from maskedlark.helper.tables import DATASETS, EXPIRED
from maskedlark.ledger.ledger import Signer
from maskedlark.parameters.document import Document
from maskedlark.randomness import Randomness
from maskedlark.release import shared_seed
from maskedlark.release.errors import BadSeed
from maskedlark.storage.engine import Database
from maskedlark.storage.schema import prepare
from maskedlark.web.errors import NoSeed
from maskedlark.wire.hpke import OpeningKey, SealingKey
from maskedlark.wire.report import MAX_ORIGIN

SCHEMA_VERSION = 2
TABLES = MetaData()
SEEDS = Table(
    "shared_seeds",
    TABLES,
    Column("origin", String(MAX_ORIGIN), primary_key=True),
    Column("dataset", LargeBinary, primary_key=True),
    Column("message", LargeBinary, nullable=False),
)
Recipients = Callable[[Document], Mapping[str, SealingKey]]
"""The current keys of the document's helpers, by name."""


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
        self._unsealed: dict[tuple[str, bytes], bytes] = {}

    def make(self, document: Document, dataset: bytes) -> bytes:
        """The message for all helpers, always the same bytes. Run by the document's first helper."""
        if document.helpers[0].name != self._signer.helper:
            raise BadSeed(f"seeds are made by {document.helpers[0].name}: ask it, and relay the answer")
        if (before := self._stored(document, dataset)) is not None:
            return before
        # Not in a transaction: the others' keys may have to be fetched.
        recipients, now = self._recipients(document), self._clock.now()
        seed = self._rng.bytes(SEED_BYTES)
        made = shared_seed.make(seed, document, dataset, recipients, self._signer.current(now), now)
        return self._keep(document.origin, dataset, made.encode())

    def accept(self, document: Document, dataset: bytes, message: bytes) -> None:
        """Keep the seed that the first helper made. Idempotent."""
        self._unseal(document, dataset, message)
        if self._keep(document.origin, dataset, message) != message:
            raise BadSeed("this dataset has another seed already: it is never changed")

    def of(self, document: Document, dataset: bytes) -> bytes:
        """The seed of a dataset."""
        if (seed := self._unsealed.get((document.origin, dataset))) is not None:
            return seed
        if (message := self._stored(document, dataset)) is None:
            raise NoSeed("the helpers of this dataset share no seed yet: relay the first helper's")
        seed = self._unsealed[document.origin, dataset] = self._unseal(document, dataset, message)
        return seed

    def expire(self) -> None:
        """Delete the seeds of expired datasets: they could unmask answers."""
        expired = DATASETS.c.origin == SEEDS.c.origin, DATASETS.c.state == EXPIRED
        gone = select(DATASETS.c.digest).where(*expired)
        self._database.change(delete(SEEDS).where(SEEDS.c.dataset.in_(gone)))
        self._unsealed.clear()

    def _stored(self, document: Document, dataset: bytes) -> bytes | None:
        with self._database.read() as connection:
            return connection.scalar(_message(document.origin, dataset))

    def _unseal(self, document: Document, dataset: bytes, message: bytes) -> bytes:
        return shared_seed.unseal(message, document, dataset, self._signer.helper, self._keys())

    def _keep(self, origin: str, dataset: bytes, message: bytes) -> bytes:
        """Store a message unless there is one; returns the stored one."""
        with self._database.write() as connection:
            self._database.insert_new(connection, SEEDS, [(origin, dataset, message)])
            return connection.scalars(_message(origin, dataset)).one()


def _message(origin: str, dataset: bytes) -> Select[bytes]:
    return select(SEEDS.c.message).where(SEEDS.c.origin == origin, SEEDS.c.dataset == dataset)
