"""Recovery: bring a ledger restored from a backup up to what was signed. Run by the operator.

A budget is never reset. What was charged since the backup is in receipts, which others hold; the anchor
states how far they got. With all of them, everything is counted: their queries are no longer answered,
because their noise is lost, and so are the datasets that they froze. If some are missing, what they cost is
unknown, and every account that they may concern is closed (`ledger.rows`).

Which reports were in the lost datasets is unknown too. Such a report, sent again into a new dataset, would
have a whole budget there. So no report is accepted that could have been accepted before: none of an hour up
to now plus the hours by which clocks may be ahead.
"""

import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, update

from maskedlark.clock import Clock, hour_of
from maskedlark.helper.anchor import open_anchor
from maskedlark.helper.config import Config
from maskedlark.helper.folder_id import adopt_folder
from maskedlark.helper.folder_lock import only_process
from maskedlark.helper.ids import Ids
from maskedlark.helper.keyring import DAY_S, Keyring
from maskedlark.helper.ledger_database import open_ledger_database
from maskedlark.helper.tables import ABORTED, DATASETS, LOST, OPEN
from maskedlark.ledger import rows, session_rows
from maskedlark.ledger.errors import BadReceipt, ReceiptsMissing
from maskedlark.ledger.ledger import Anchor, Ledger
from maskedlark.ledger.receipt import FrozenReceipt, RecoveredReceipt, SignedReceipt
from maskedlark.ledger.rows import ChainHead
from maskedlark.parameters.document import Document
from maskedlark.randomness import Randomness
from maskedlark.storage.engine import file_of, is_server
from maskedlark.web.errors import NotThere
from maskedlark.web.parameters import ParameterClient
from maskedlark.wire.acceptance import MAX_HOURS_AHEAD
from maskedlark.wire.signatures import VerifyingKey

Published = Callable[[str], Sequence[Document]]
"""All documents of an origin, fetched now; empty if it never published any."""

_PUT_BACK = (
    "put the newest anchor back. If it is lost, hand in all receipts that can be had and run this with "
    "--anchor-lost: all accounts are closed then"
)


class RecoveryOptions(NamedTuple):
    """What the operator states about what is lost."""

    anchor_lost: bool = False
    """The anchor is lost too, or is itself an old copy."""
    close: Collection[str] = ()
    """Receipts for these origins are missing, and nobody has them."""


class ReceiptChain(NamedTuple):
    """An origin's chain: the ledger's end, the supplied receipts after it, and the anchor's head."""

    origin: str
    end: ChainHead
    later: Sequence[SignedReceipt]
    head: ChainHead | None

    @property
    def reached(self) -> ChainHead:
        """The last receipt present, in the ledger or supplied."""
        return _head(self.later[-1]) if self.later else self.end

    @property
    def has_gap(self) -> bool:
        """Whether a signed receipt is missing, now or since an earlier recovery."""
        earlier = any(isinstance(each.claimed(), RecoveredReceipt) for each in self.later)
        return earlier or self.signed.number > self.reached.number

    @property
    def signed(self) -> ChainHead:
        """The last receipt known to have been signed."""
        return self.head if self.head and self.head.number > self.reached.number else self.reached


@dataclass
class Recovered:
    """What a recovery did, by origin: receipts restored, datasets lost, accounts closed."""

    put_back: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)
    """The newest closed version."""
    aborted: int = 0
    floor: int | None = None
    """Reports up to this hour are refused."""


def recover(
    config: Config,
    receipts: Iterable[SignedReceipt],
    options: RecoveryOptions,
    published: Published,
    clock: Clock,
    rng: Randomness,
) -> Recovered:
    """Bring the ledger in the helper's database up to what was signed, completely or not at all."""
    keyring = Keyring(config.keys_folder, config.name, config.keep_days * DAY_S)
    handed = _by_origin(receipts, config.name, keyring.identity)
    keyring.current(clock.now())
    with (
        only_process(config.folder),
        open_ledger_database(config, recovers=True) as database,
        open_anchor(config, database) as anchor,
    ):
        if is_server(config.database_url):
            adopt_folder(config.folder, database)  # A database that was put back may be of an earlier one.
        ledger = Ledger(database, anchor, keyring, clock, rng)
        ids = Ids(database, config.columns_folder)
        origins = sorted({*config.origins, *anchor.origins(), *handed, *ledger.origins()})
        with database.read() as connection:
            chains = [_chain(connection, anchor, each, handed.get(each, {})) for each in origins]
            # A server's dump cannot be marked as a copy: the operator who runs this has restored it.
            is_copy = rows.is_copy(connection) or file_of(config.database_url) is None
        _refuse_gaps(chains, options)
        incomplete = [each for each in chains if options.anchor_lost or each.has_gap]
        documents = {each.origin: newest for each in incomplete if (newest := _newest(each, published))}
        if not (is_copy or documents or any(each.later for each in chains)):
            return Recovered()  # Not a copy, and complete: do not abort its open datasets.
        done = _write(ledger, ids, clock.now(), chains, documents)
        # Afterwards: the ledger now holds what the anchor will state.
        ledger.reset_anchors()
    return done


def _write(
    ledger: Ledger, ids: Ids, now: int, chains: Sequence[ReceiptChain], documents: Mapping[str, Document]
) -> Recovered:
    """In one transaction: all receipts, what is lost, what is closed, and from when reports are accepted."""
    done = Recovered()
    with ledger.database.write() as connection:
        for chain in chains:
            if chain.later:
                ledger.restore_receipts(connection, chain.origin, chain.later)
                claimed = [each.claimed() for each in chain.later]
                frozen = [each.dataset for each in claimed if isinstance(each, FrozenReceipt)]
                lost = [(chain.origin, bytes.fromhex(digest)) for digest in sorted(frozen)]
                ledger.database.insert_new(connection, LOST, lost)
                done.put_back[chain.origin], done.lost[chain.origin] = len(claimed), len(lost)
            if chain.origin in documents:
                ledger.close(connection, documents[chain.origin], chain.signed)
                done.closed[chain.origin] = documents[chain.origin].version
        # Their chunks may be gone, and their reports in another dataset by now. The next start removes them.
        still_open = update(DATASETS).where(DATASETS.c.state == OPEN)
        done.aborted = connection.execute(still_open.values(state=ABORTED)).rowcount
        if done.put_back or done.closed:
            # The last hour whose reports this helper may have accepted, by its clock then and now.
            times = [each.claimed().time for chain in chains for each in chain.later]
            watermark = ids.lock(connection).watermark
            done.floor = hour_of(max(now, watermark, *times)) + MAX_HOURS_AHEAD
            ids.raise_floor(connection, done.floor)
        session_rows.end_recovery(connection)
    return done


def _by_origin(
    receipts: Iterable[SignedReceipt], helper: str, identity: VerifyingKey
) -> dict[str, dict[int, SignedReceipt]]:
    """Receipts that this helper made, by origin and number. Refuses any other, and two with one number."""
    receipts_of: dict[str, dict[int, SignedReceipt]] = {}
    for signed in receipts:
        opened = signed.open(helper, identity)
        before = receipts_of.setdefault(opened.origin, {}).setdefault(opened.number, signed)
        if before.digest != signed.digest:
            raise _forked(opened.origin, opened.number)
    return receipts_of


def _chain(
    connection: Connection, anchor: Anchor, origin: str, handed: Mapping[int, SignedReceipt]
) -> ReceiptChain:
    """The supplied receipts after the ledger's end, as far as they are consecutive."""
    end = last = rows.end(connection, origin)
    for number, signed in handed.items():
        if number <= end.number and rows.digest_at(connection, origin, number) not in (None, signed.digest):
            raise _forked(origin, number)
    later = []
    while (following := _following(handed, last)) is not None:
        later.append(following)
        last = _head(following)
    head = anchor.read(origin)
    if head is not None and 0 < head.number <= last.number:
        # The anchor's receipt must be the same one here.
        known = dict(map(_head, later))
        digest = known.get(head.number) or rows.digest_at(connection, origin, head.number)
        if digest != head.digest:
            raise _forked(origin, head.number)
    return ReceiptChain(origin, end, later, head)


def _following(handed: Mapping[int, SignedReceipt], last: ChainHead) -> SignedReceipt | None:
    """The next receipt: by number, or one that states that those in between were lost."""
    digest = last.digest.hex() if last.number else None
    if (following := handed.get(last.number + 1)) is not None:
        claimed = following.claimed()
        if claimed.previous != digest:
            raise _forked(claimed.origin, claimed.number)
        return following
    for signed in handed.values():
        match signed.claimed():
            case RecoveredReceipt(last_kept=last.number, last_kept_digest=kept) if kept == digest:
                return signed
    return None


def _head(signed: SignedReceipt) -> ChainHead:
    return ChainHead(signed.claimed().number, signed.digest)


def _refuse_gaps(chains: Sequence[ReceiptChain], options: RecoveryOptions) -> None:
    """Refuse where it is unknown what was charged, unless the operator lets it count as spent."""
    if options.anchor_lost:
        return
    if all(each.head is None for each in chains):
        raise ReceiptsMissing(f"there is no anchor, so nobody knows how far receipts got: {_PUT_BACK}")
    for each in chains:
        last, anchored = each.reached.number, each.head.number if each.head else 0
        if each.head is None and last:
            raise ReceiptsMissing(
                f"the anchor knows nothing of {each.origin}, which has receipts: {_PUT_BACK}"
            )
        if each.later and last > anchored:
            raise ReceiptsMissing(
                f"receipt {last} for {each.origin} was signed, and the anchor ends at {anchored}: it is an "
                f"old copy too, and nobody knows how far receipts got: {_PUT_BACK}"
            )
        if each.has_gap and each.origin not in options.close:
            raise ReceiptsMissing(
                f"receipts for {each.origin} are missing, those after {last} up to {anchored} or some "
                "before: get them from whoever fetched them, as its ad server does (`maskedlark receipts "
                f"kept`). If nobody has them, run this with --close {each.origin}: its accounts count as "
                "spent then"
            )


def _forked(origin: str, number: int) -> BadReceipt:
    return BadReceipt(
        f"there are two receipts {number} for {origin}, both of this helper: two ledgers wrote for it. Stop "
        "the other one; this ledger is not recovered"
    )


def shown_by(config: Config, clock: Clock, origin: str) -> Sequence[Document]:
    """An origin's documents that the parameter service shows now: it must answer, and not have gone back."""
    service = config.parameter_service, config.service_key_public
    documents: Sequence[Document] = []
    with tempfile.TemporaryDirectory() as empty:
        # First without a cache, which would hide that the service is unavailable.
        for folder in (Path(empty), config.parameters_folder):
            with ParameterClient(*service, folder, clock, config.pinned) as client, suppress(NotThere):
                documents = max(documents, client.chain(origin), key=len)
    return documents


def _newest(chain: ReceiptChain, published: Published) -> Document | None:
    """The document up to which an origin's accounts are closed: every one that a receipt may name."""
    documents = published(chain.origin)
    named = {each.claimed().parameters for each in chain.later}
    if named - {each.digest.hex() for each in documents} or (chain.signed.number and not documents):
        raise ReceiptsMissing(
            f"the parameter service does not show all documents of {chain.origin} that receipts name, so "
            "they cannot be closed: try again when it does"
        )
    return documents[-1] if documents else None
