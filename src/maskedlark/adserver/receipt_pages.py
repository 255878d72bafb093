"""A helper's receipts as they cross HTTP, page by page. Public; nothing is verified here.

page = {"receipts": [signed receipt, …], "more": bool}
"""

from collections.abc import Iterator
from urllib.parse import quote

from pydantic import ValidationError

from maskedlark.privacy.receipt import SignedReceipt
from maskedlark.privacy.settings import Settings
from maskedlark.web.errors import StrangeAnswer
from maskedlark.web.remote import Remote


class Page(Settings):
    """Some receipts in their order, and whether more follow."""

    receipts: tuple[SignedReceipt, ...]
    more: bool


def fetch(remote: Remote, origin: str, after: int = 0) -> Iterator[SignedReceipt]:
    """Every receipt of an origin behind the one of that number. Run by the ad server, or by anyone."""
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
