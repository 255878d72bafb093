"""A helper's receipts as anyone may fetch them: a page at a time."""

from maskedlark.ledger.ledger import PAGE, Ledger
from maskedlark.ledger.receipt import SignedReceipt
from maskedlark.release.messages import ReceiptPage

PAGE_BYTES = 1 << 20
"""A page ends before the receipt that would take it beyond this, but holds at least one."""


def page(ledger: Ledger, origin: str, after: int) -> bytes:
    """The receipts after this number, as many as fit, and whether more follow."""
    receipts = ledger.receipts(origin, after)
    # Of a full page of the ledger the last one is left for the next: so it is known that there is a next.
    shown = _fitting(receipts[: PAGE - 1])
    return ReceiptPage(receipts=tuple(shown), more=len(shown) < len(receipts)).encode()


def _fitting(receipts: list[SignedReceipt]) -> list[SignedReceipt]:
    size = 0
    for count, each in enumerate(receipts):
        size += len(each.encode())
        if count and size > PAGE_BYTES:
            return receipts[:count]
    return receipts
