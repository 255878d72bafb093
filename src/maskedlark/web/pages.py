"""Chains of signed documents over HTTP, page by page. Strict; signatures are not verified here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated

from pydantic import FailFast, TypeAdapter, ValidationError

from maskedlark.errors import InvalidDocument
from maskedlark.parameters.chain import Envelope, Signed
from maskedlark.wire.message import Settings, faults, refuse_duplicates

MAX_PAGE = 64
"""Documents in one page."""
MAX_PAGE_BYTES = 1 << 20
"""A page ends before the item that would exceed this, but holds at least one."""

_Envelopes = Annotated[tuple[Envelope, ...], FailFast()]
_CHAIN: TypeAdapter[tuple[Envelope, ...]] = TypeAdapter(_Envelopes)


class _Page(Settings):
    documents: _Envelopes
    more: bool


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
    try:
        item = _Page.model_validate_json(data)
    except ValidationError as error:
        raise InvalidDocument(f"no page of a chain: {faults(error)}") from None
    return Page(tuple(each.signed() for each in item.documents), item.more)


def decode_chain(data: bytes) -> tuple[Signed, ...]:
    """A whole chain, as `maskedlark parameters verify --save` writes it: a list of signed documents."""
    try:
        refuse_duplicates(data)
        return tuple(each.signed() for each in _CHAIN.validate_json(data))
    except ValidationError as error:
        raise InvalidDocument(f"a chain is a list of signed documents: {faults(error)}") from None


def encode_chain(documents: Sequence[Signed]) -> bytes:
    """A whole chain as a list, to be stored or passed on."""
    return b"[" + b",\n".join(signed.encode() for signed in documents) + b"]\n"
