"""A helper's receipts as they cross HTTP, page by page. Public; nothing is verified here.

page = {"receipts": [signed receipt, …], "more": bool}
"""

from collections.abc import Iterator
from itertools import islice
from urllib.parse import quote

from pydantic import ValidationError

from maskedlark.ledger.receipt import SignedReceipt
from maskedlark.parameters.settings import Settings
from maskedlark.web.errors import StrangeAnswer
from maskedlark.web.remote import Remote


class Page(Settings):
    """Some receipts in their order, and whether more follow."""

    receipts: tuple[SignedReceipt, ...]
    more: bool


MOST_RECEIPTS = 1 << 20
"""Read at a time, unless something else is wanted: a helper must not be able to fill our memory."""


def fetch(remote: Remote, origin: str, after: int = 0, most: int = MOST_RECEIPTS) -> Iterator[SignedReceipt]:
    """The receipts of an origin behind the one of that number, so many at most. Run by anyone."""
    return islice(_all(remote, origin, after), most)


def _all(remote: Remote, origin: str, after: int) -> Iterator[SignedReceipt]:
    more = True
    while more:
        page = _page(remote.get(f"/v1/origins/{quote(origin, safe='')}/receipts", {"after": after}))
        yield from page.receipts
        more = page.more
        if more:
            after = _last(page, after)


def _page(data: bytes) -> Page:
    try:
        return Page.model_validate_json(data)
    except ValidationError:
        raise StrangeAnswer("a page of receipts has exactly receipts and more; is this a helper?") from None


def _last(page: Page, after: int) -> int:
    """The number to go on from. A helper must not keep its reader going for ever."""
    last = page.receipts[-1].claimed().number if page.receipts else after
    if last <= after:
        raise StrangeAnswer("a page of receipts says that more follow, and does not go on")
    return last
