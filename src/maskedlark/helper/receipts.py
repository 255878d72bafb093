"""A helper's receipts, public, one page at a time. Run by a helper."""

from itertools import accumulate

from maskedlark.ledger.ledger import PAGE, Ledger
from maskedlark.release.messages import ReceiptPage

PAGE_BYTES = 1 << 20
"""A page ends before the receipt that would exceed this, but holds at least one."""


def page(ledger: Ledger, origin: str, after: int) -> bytes:
    """The receipts after this number, as many as fit, and whether more follow."""
    receipts = ledger.receipts(origin, after)
    # The last of a full ledger page is left for the next one, which shows that there is a next one.
    sizes = accumulate(len(each.encode()) for each in receipts[: PAGE - 1])
    shown = receipts[: max(1, sum(size <= PAGE_BYTES for size in sizes))]
    return ReceiptPage(receipts=tuple(shown), more=len(shown) < len(receipts)).encode()
