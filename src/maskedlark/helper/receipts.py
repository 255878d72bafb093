"""A helper's receipts as anyone may fetch them: a page at a time."""

from itertools import accumulate

from maskedlark.ledger.ledger import PAGE, Ledger
from maskedlark.release.messages import ReceiptPage

PAGE_BYTES = 1 << 20
"""A page ends before the receipt that would take it beyond this, but holds at least one."""


def page(ledger: Ledger, origin: str, after: int) -> bytes:
    """The receipts after this number, as many as fit, and whether more follow."""
    receipts = ledger.receipts(origin, after)
    # Of a full page of the ledger the last one is left for the next: so it is known that there is a next.
    sizes = accumulate(len(each.encode()) for each in receipts[: PAGE - 1])
    shown = receipts[: max(1, sum(size <= PAGE_BYTES for size in sizes))]
    return ReceiptPage(receipts=tuple(shown), more=len(shown) < len(receipts)).encode()
