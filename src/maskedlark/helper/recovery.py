"""Recovery: a ledger that was put back from a backup is brought up to what was signed. Run by the operator.

A budget is never reset. What was charged since the backup is in receipts, which others hold; the anchor says
how far they got. With all of them, everything is counted: their questions are answered no more, because their
noise is lost, and the datasets that they sealed are lost. Without some of them, what those cost is not known,
and every account that they may have been about is closed (`privacy.recovered`).

Which reports were in the lost datasets is not known either. A report that was, sent again into a new dataset,
would have a whole budget there. So no report is taken any more that this helper could have taken before: none
of an hour up to now and the hours by which clocks may be ahead.
"""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, update

from maskedlark.clock import Clock, hour_of
from maskedlark.helper import handed_in
from maskedlark.helper.alone import alone
from maskedlark.helper.anchor import FileAnchor
from maskedlark.helper.config import Config
from maskedlark.helper.handed_in import Asked, Chain
from maskedlark.helper.ids import Ids
from maskedlark.helper.keyring import DAY_S, Keyring
from maskedlark.helper.tables import ABORTED, DATASETS, LOST, OPEN, SCHEMA_VERSION, TABLES
from maskedlark.ledger import recovered
from maskedlark.ledger.errors import ReceiptsMissing
from maskedlark.ledger.ledger import Ledger
from maskedlark.ledger.receipt import SealedReceipt, SignedReceipt
from maskedlark.parameters.document import Document
from maskedlark.randomness import Randomness
from maskedlark.storage.engine import Database, file_of, open_database
from maskedlark.storage.schema import prepare
from maskedlark.web.errors import NotThere
from maskedlark.web.parameters import ParameterClient
from maskedlark.wire.terms import MOST_HOURS_AHEAD

Published = Callable[[str], Sequence[Document]]
"""All documents of an origin, asked for now; none if it never published any."""


@dataclass
class Recovered:
    """What a recovery did, by origin: receipts put back, datasets that are lost, accounts that are closed."""

    put_back: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)
    """The newest version that is closed."""
    aborted: int = 0
    floor: int | None = None
    """Reports up to this hour are refused."""


def recover(
    config: Config,
    receipts: Iterable[SignedReceipt],
    asked: Asked,
    published: Published,
    clock: Clock,
    rng: Randomness,
) -> Recovered:
    """Bring the ledger in the helper's database up to what was signed. All of it is done, or nothing."""
    keyring = Keyring(config.keys_folder, config.name, config.keep_days * DAY_S)
    handed = handed_in.by_origin(receipts, config.name, keyring.identity)
    keyring.current(clock.now())
    with ExitStack() as stack:
        stack.enter_context(alone(config.folder))
        database = open_database(config.database_url, make=False)
        stack.callback(database.close)
        anchor = FileAnchor(config.anchor_folder)
        ledger = Ledger(database, anchor, keyring, clock, rng)
        prepare(database, "datasets", SCHEMA_VERSION, TABLES)
        ids = Ids(database, config.columns_folder)
        origins = sorted({*config.origins, *anchor.origins(), *handed, *ledger.origins()})
        with database.read() as connection:
            chains = [handed_in.chain(connection, anchor, each, handed.get(each, {})) for each in origins]
            # A server's dump cannot say of itself that it is one: who runs this has put it back.
            is_copy = recovered.is_copy(connection) or file_of(config.database_url) is None
        handed_in.refuse_gaps(chains, asked)
        closing = [each for each in chains if asked.anchor_lost or each.has_gap]
        documents = {each.origin: found for each in closing if (found := _newest(each, published))}
        if not (is_copy or documents or any(each.behind for each in chains)):
            return Recovered()  # It is no copy and lacks nothing: its open datasets are not aborted for that.
        done = _Recovering(database, ledger, ids, clock).write(chains, documents)
        # After it: the ledger holds now what the anchor will say.
        ledger.accept()
    return done


class _Recovering(NamedTuple):
    """The one transaction of a recovery."""

    database: Database
    ledger: Ledger
    ids: Ids
    clock: Clock

    def write(self, chains: Sequence[Chain], documents: Mapping[str, Document]) -> Recovered:
        """All receipts, what is lost, what is closed, and the hour from which reports are taken again."""
        done = Recovered()
        with self.database.write() as connection:
            for chain in chains:
                self._put_back(connection, chain, done)
                if chain.origin in documents:
                    self.ledger.close(connection, documents[chain.origin], chain.signed)
                    done.closed[chain.origin] = documents[chain.origin].version
            done.aborted = _abort_open(connection)
            if done.put_back or done.closed:
                done.floor = self._floor(connection, chains)
                self.ids.raise_floor(connection, done.floor)
            recovered.unmark(connection)
        return done

    def _put_back(self, connection: Connection, chain: Chain, done: Recovered) -> None:
        """One origin's receipts, and the datasets that they sealed."""
        if not chain.behind:
            return
        self.ledger.put_back(connection, chain.origin, chain.behind)
        claimed = [each.claimed() for each in chain.behind]
        lost = sorted(bytes.fromhex(each.dataset) for each in claimed if isinstance(each, SealedReceipt))
        self.database.insert_new(connection, LOST, [(chain.origin, digest) for digest in lost])
        done.put_back[chain.origin], done.lost[chain.origin] = len(claimed), len(lost)

    def _floor(self, connection: Connection, chains: Sequence[Chain]) -> int:
        """The last hour of which this helper may have taken a report, by its clock as it was and is."""
        times = [each.claimed().time for chain in chains for each in chain.behind]
        watermark = self.ids.lock(connection).watermark
        return hour_of(max(self.clock.now(), watermark, *times)) + MOST_HOURS_AHEAD


def shown_by(config: Config, clock: Clock) -> Published:
    """The documents that the parameter service shows now: it has to answer, and not to have gone back."""

    def chain(origin: str) -> Sequence[Document]:
        with tempfile.TemporaryDirectory() as empty:
            # Without a memory first: with one, a service that is away would not be noticed.
            found = [
                _ask(config, folder, clock, origin) for folder in (Path(empty), config.parameters_folder)
            ]
        return max(found, key=len)

    return chain


def _ask(config: Config, folder: Path, clock: Clock, origin: str) -> Sequence[Document]:
    service, key = config.parameter_service, config.service_key_public
    with ParameterClient(service, key, folder, clock, config.pinned) as client:
        try:
            return client.chain(origin)
        except NotThere:
            return []


def _newest(chain: Chain, published: Published) -> Document | None:
    """The document up to which an origin's accounts are closed: every one that a receipt may name."""
    documents = published(chain.origin)
    named = {each.claimed().parameters for each in chain.behind}
    if named - {each.digest.hex() for each in documents} or (chain.signed.number and not documents):
        raise ReceiptsMissing(
            f"the parameter service does not show all documents of {chain.origin} that receipts name, so "
            "they cannot be closed: try again when it does"
        )
    return documents[-1] if documents else None


def _abort_open(connection: Connection) -> int:
    """Their chunks may be gone, and their reports in another dataset by now. The next start removes them."""
    these = update(DATASETS).where(DATASETS.c.state == OPEN)
    return connection.execute(these.values(state=ABORTED)).rowcount
