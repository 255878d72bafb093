"""What is there of the receipts that a helper signed: in its ledger, and handed in. Run by a recovery."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from maskedlark.ledger import rows
from maskedlark.ledger.errors import BadReceipt, ReceiptsMissing
from maskedlark.ledger.ledger import Anchor
from maskedlark.ledger.receipt import RecoveredReceipt, SignedReceipt
from maskedlark.ledger.rows import ChainHead
from maskedlark.wire.signatures import VerifyingKey

_PUT_BACK = (
    "put the newest anchor back. If it is lost, hand in all receipts that can be had and run this with "
    "--anchor-lost: all accounts are closed then"
)


class Asked(NamedTuple):
    """What the operator says of what cannot be had."""

    anchor_lost: bool = False
    """The anchor is lost too, or an old copy itself."""
    close: Collection[str] = ()
    """Receipts for these origins are missing, and nobody has them."""


class Chain(NamedTuple):
    """An origin's chain: where the ledger ends, what was handed in behind that, and the anchor's mark."""

    origin: str
    end: ChainHead
    behind: Sequence[SignedReceipt]
    mark: ChainHead | None

    @property
    def reached(self) -> ChainHead:
        """The last receipt that is there, in the ledger or handed in."""
        if not self.behind:
            return self.end
        return ChainHead(self.behind[-1].claimed().number, self.behind[-1].digest)

    @property
    def has_gap(self) -> bool:
        """Whether something was signed that is not there, or was lost before and is not there."""
        earlier = any(isinstance(each.claimed(), RecoveredReceipt) for each in self.behind)
        return earlier or self.signed.number > self.reached.number

    @property
    def signed(self) -> ChainHead:
        """The last receipt that is known to have been signed."""
        return self.mark if self.mark and self.mark.number > self.reached.number else self.reached


def by_origin(
    receipts: Iterable[SignedReceipt], helper: str, identity: VerifyingKey
) -> dict[str, dict[int, SignedReceipt]]:
    """Receipts that this helper made, by origin and number. Refuses any other, and two with one number."""
    found: dict[str, dict[int, SignedReceipt]] = {}
    for signed in receipts:
        opened = signed.open(helper, identity)
        before = found.setdefault(opened.origin, {}).setdefault(opened.number, signed)
        if before.digest != signed.digest:
            raise _forked(opened.origin, opened.number)
    return found


def chain(connection: Connection, anchor: Anchor, origin: str, handed: Mapping[int, SignedReceipt]) -> Chain:
    """What was handed in, behind the ledger's end, as far as it hangs together."""
    end = last = rows.end(connection, origin)
    for number, signed in handed.items():
        if number <= end.number and rows.digest_at(connection, origin, number) not in (None, signed.digest):
            raise _forked(origin, number)
    behind = []
    while (following := _following(handed, last)) is not None:
        behind.append(following)
        last = ChainHead(following.claimed().number, following.digest)
    found = Chain(origin, end, behind, anchor.read(origin))
    _check_mark(connection, found)
    return found


def _following(handed: Mapping[int, SignedReceipt], last: ChainHead) -> SignedReceipt | None:
    """The next receipt: by its number, or one that says itself that those between were lost."""
    digest = last.digest.hex() if last.number else None
    found = handed.get(last.number + 1)
    if found is not None:
        claimed = found.claimed()
        if claimed.previous != digest:
            raise _forked(claimed.origin, claimed.number)
        return found
    for signed in handed.values():
        claimed = signed.claimed()
        if isinstance(claimed, RecoveredReceipt) and (claimed.kept, claimed.kept_digest) == (
            last.number,
            digest,
        ):
            return signed
    return None


def _check_mark(connection: Connection, chain: Chain) -> None:
    """What the anchor knows is the same receipt here, if it is here."""
    mark = chain.mark
    if mark is None or not 0 < mark.number <= chain.reached.number:
        return
    known = {each.claimed().number: each.digest for each in chain.behind}
    found = known.get(mark.number) or rows.digest_at(connection, chain.origin, mark.number)
    if found != mark.digest:
        raise _forked(chain.origin, mark.number)


def refuse_gaps(chains: Sequence[Chain], asked: Asked) -> None:
    """Refuse where it is not known what was charged, unless the operator lets it count as spent."""
    if asked.anchor_lost:
        return
    if all(each.mark is None for each in chains):
        raise ReceiptsMissing(f"there is no anchor, so nobody knows how far receipts got: {_PUT_BACK}")
    for each in chains:
        last, mark = each.reached.number, each.mark.number if each.mark else 0
        if each.mark is None and last:
            raise ReceiptsMissing(
                f"the anchor knows nothing of {each.origin}, which has receipts: {_PUT_BACK}"
            )
        if each.behind and last > mark:
            raise ReceiptsMissing(
                f"receipt {last} for {each.origin} was signed, and the anchor ends at {mark}: it is an old "
                f"copy too, and nobody knows how far receipts got: {_PUT_BACK}"
            )
        if each.has_gap and each.origin not in asked.close:
            raise ReceiptsMissing(
                f"receipts for {each.origin} are missing, those behind {last} up to {mark} or some before: "
                "get them from whoever fetched them, as its ad server does (`maskedlark receipts kept`). If "
                f"nobody has them, run this with --close {each.origin}: its accounts count as spent then"
            )


def _forked(origin: str, number: int) -> BadReceipt:
    return BadReceipt(
        f"there are two receipts {number} for {origin}, both of this helper: two ledgers wrote for it. Stop "
        "the other one; this ledger is not recovered"
    )
