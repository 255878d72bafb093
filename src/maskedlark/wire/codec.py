"""Strict deterministic CBOR (RFC 8949, section 4.2.1): one value, one encoding, nothing else decodes.

The fast way decodes with cbor2, encodes again and compares: equal bytes mean that the message was in its
one form. Whatever fails goes through `_Reader`, a plain decoder of the few CBOR types that we use, which
names the first fault. The two accept exactly the same bytes; a fuzz test holds them to that.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import cbor2

from maskedlark.errors import (
    DecodeError,
    DuplicateKey,
    MissingKey,
    NotDeterministic,
    OutOfRange,
    TrailingBytes,
    Truncated,
    UnknownKey,
    UnsupportedVersion,
    WrongLength,
    WrongType,
)

T = TypeVar("T")

VERSION = 1
"""The first byte of every message."""
MOST_BYTES = 1 << 20
MOST_DEPTH = 6

Item = Any
"""An int, bytes, str, list of items, or dict from str to item: all that our messages are made of."""


def encode(item: Item) -> bytes:
    """The one encoding of a value, without a version byte: for parts within a message."""
    return cbor2.dumps(item, canonical=True)


def encode_message(item: Item) -> bytes:
    """A whole message: the version, then the value."""
    return bytes([VERSION]) + encode(item)


def decode(data: bytes) -> Item:
    """The value that these bytes, all of them, encode. Refuses every other form of it."""
    if len(data) > MOST_BYTES:
        raise WrongLength(f"a message has at most {MOST_BYTES} bytes, this one {len(data)}")
    try:
        item = cbor2.loads(data, max_depth=MOST_DEPTH)
        accepted = _ours(item) and cbor2.dumps(item, canonical=True) == data
    except (cbor2.CBORError, ValueError, TypeError, OverflowError, RecursionError):
        accepted = False
    return item if accepted else _Reader(data).message()


def decode_message(data: bytes) -> Item:
    """The value of a whole message. Refuses a version that we do not speak."""
    if not data:
        raise Truncated("an empty message")
    if data[0] != VERSION:
        raise UnsupportedVersion(f"version {data[0]} of the protocol; this package speaks {VERSION}")
    return decode(data[1:])


def _ours(item: Item) -> bool:
    """Whether a decoded value is made of our types alone. Exact types: a bool is no int here."""
    kind = type(item)
    if kind is bytes or kind is str:
        return True
    if kind is int:
        return -(1 << 64) <= item < 1 << 64
    if kind is list:
        return all(map(_ours, item))
    if kind is dict:
        return all(type(key) is str for key in item) and all(map(_ours, item.values()))
    return False


class _Reader:
    """The slow twin of cbor2: reads our types, and only them, and names what is wrong."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def message(self) -> Item:
        item = self._item(0)
        if self._at < len(self._data):
            raise TrailingBytes(f"{len(self._data) - self._at} bytes follow the message")
        return item

    def _item(self, depth: int) -> Item:
        if depth > MOST_DEPTH:
            raise DecodeError(f"nested deeper than {MOST_DEPTH}")
        major, argument = self._head()
        if major == 0:
            return argument
        if major == 1:
            return -1 - argument
        if major == 2:
            return self._take(argument)
        if major == 3:
            return self._text(argument)
        if major == 4:
            return [self._item(depth + 1) for _ in range(self._plausible(argument))]
        return self._map(argument, depth)

    def _head(self) -> tuple[int, int]:
        first = self._take(1)[0]
        major, short = first >> 5, first & 31
        if major > 5:
            raise WrongType("tags, floats and simple values have no place in a message")
        if short < 24:
            return major, short
        if short > 27:
            raise NotDeterministic("a length that is indefinite or reserved")
        size = 1 << (short - 24)
        argument = int.from_bytes(self._take(size), "big")
        if argument < (24 if size == 1 else 1 << (4 * size)):
            raise NotDeterministic("a number or length that is not in its shortest form")
        return major, argument

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) < count:
            raise Truncated("the message ends too early")
        self._at += count
        return taken

    def _text(self, count: int) -> str:
        try:
            return self._take(count).decode()
        except UnicodeDecodeError:
            raise WrongType("a text that is not UTF-8") from None

    def _plausible(self, count: int) -> int:
        """Every item takes at least a byte: a longer list is refused before memory is taken for it."""
        if count > len(self._data) - self._at:
            raise Truncated("the message ends too early")
        return count

    def _map(self, count: int, depth: int) -> dict[str, Item]:
        answer: dict[str, Item] = {}
        last = b""
        for _ in range(self._plausible(count)):
            start = self._at
            key = self._item(depth + 1)
            if type(key) is not str:
                raise WrongType("a key that is not a text")
            encoded = self._data[start : self._at]
            if key in answer:
                raise DuplicateKey(f"the key {key!r} stands twice")
            if encoded < last:
                raise NotDeterministic("keys out of order")
            last, answer[key] = encoded, self._item(depth + 1)
        return answer


def fields(item: Item, *names: str) -> Mapping[str, Item]:
    """A map with exactly these keys."""
    mapping = typed(item, dict)
    if mapping.keys() != set(names):
        if unknown := mapping.keys() - set(names):
            raise UnknownKey(f"{min(unknown)!r} is not a key of this message: {', '.join(names)}")
        raise MissingKey(f"the message lacks {min(set(names) - mapping.keys())!r}")
    return mapping


def typed(item: Item, kind: type[T]) -> T:
    """A value of exactly this type."""
    if type(item) is not kind:
        raise WrongType(f"expected {kind.__name__}, found {type(item).__name__}")
    return item


def exact_list(item: Item, count: int) -> list[Item]:
    """A list of exactly so many items."""
    items = typed(item, list)
    if len(items) != count:
        raise WrongLength(f"expected a list of {count}, found {len(items)}")
    return items


def exactly(item: Item, size: int) -> bytes:
    """A byte string of exactly this length."""
    data = typed(item, bytes)
    if len(data) != size:
        raise WrongLength(f"expected {size} bytes, found {len(data)}")
    return data


def natural(item: Item, most: int) -> int:
    """A whole number from 0 to `most`."""
    number = typed(item, int)
    if not 0 <= number <= most:
        raise OutOfRange(f"expected a number from 0 to {most}, found {number}")
    return number


def text(item: Item, most: int) -> str:
    """A text of 1 to `most` characters."""
    words = typed(item, str)
    if not 1 <= len(words) <= most:
        raise WrongLength(f"expected a text of 1 to {most} characters, found {len(words)}")
    return words
