"""Chains of signed documents over HTTP, page by page. Strict; signatures are not verified here."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from maskedlark.errors import InvalidDocument
from maskedlark.parameters import chain
from maskedlark.parameters.chain import Signed

MAX_PAGE = 64
"""Documents in one page."""
MAX_PAGE_BYTES = 1 << 20
"""A page ends before the item that would exceed this, but holds at least one."""


@dataclass(frozen=True)
class Page:
    """Some documents of a chain in their order, and whether more follow."""

    documents: tuple[Signed, ...]
    more: bool

    def encode(self) -> bytes:
        """JSON for the wire."""
        listed = b",".join(signed.encode() for signed in self.documents)
        return b'{"documents":[' + listed + b'],"more":' + (b"true" if self.more else b"false") + b"}"


def page(documents: Sequence[Signed]) -> Page:
    """The first documents, as many as fit into one page. Run by the parameter service."""
    count = fitting(len(signed.body) for signed in documents[:MAX_PAGE])
    return Page(tuple(documents[:count]), count < len(documents))


def fitting(sizes: Iterable[int]) -> int:
    """How many of these go into one page: at least one."""
    return max(1, sum(size <= MAX_PAGE_BYTES for size in accumulate(sizes)))


def decode_page(data: bytes) -> Page:
    """A page off the wire."""
    item = _json(data)
    if not isinstance(item, dict) or item.keys() != {"documents", "more"}:
        raise InvalidDocument("a page of a chain has exactly documents and more")
    if not isinstance(item["more"], bool):
        raise InvalidDocument("a page says with true or false whether more follow")
    return Page(_listed(item["documents"]), item["more"])


def decode_chain(data: bytes) -> tuple[Signed, ...]:
    """A whole chain, as `maskedlark parameters verify --save` writes it: a list of signed documents."""
    return _listed(_json(data))


def encode_chain(documents: Sequence[Signed]) -> bytes:
    """A whole chain as a list, to be stored or passed on."""
    return b"[" + b",\n".join(signed.encode() for signed in documents) + b"]\n"


def _listed(item: object) -> tuple[Signed, ...]:
    if not isinstance(item, list):
        raise InvalidDocument("a chain is a list of signed documents")
    try:
        return tuple(chain.decode(json.dumps(each).encode()) for each in item)
    except RecursionError:
        raise InvalidDocument("a document is nested deeper than any") from None


def _json(data: bytes) -> object:
    try:
        item: object = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidDocument("a chain of documents is JSON") from None
    return item
