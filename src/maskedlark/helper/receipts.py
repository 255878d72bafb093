"""A helper's receipts as anyone may fetch them: a page at a time, `{"receipts": […], "more": bool}`."""

from maskedlark.ledger.ledger import PAGE, Ledger

PAGE_BYTES = 1 << 20
"""A page ends before the receipt that would take it beyond this, but holds at least one."""


def page(ledger: Ledger, origin: str, after: int) -> bytes:
    """The receipts behind this number, as many as fit, and whether more follow."""
    found = [signed.encode() for signed in ledger.receipts(origin, after)]
    # Of a full page of the ledger the last one is left for the next: so it is known that there is a next.
    shown = _fitting(found[: PAGE - 1])
    more = b"true" if len(shown) < len(found) else b"false"
    return b'{"receipts":[' + b",".join(shown) + b'],"more":' + more + b"}"


def _fitting(found: list[bytes]) -> list[bytes]:
    size = 0
    for count, each in enumerate(found):
        size += len(each)
        if count and size > PAGE_BYTES:
            return found[:count]
    return found
