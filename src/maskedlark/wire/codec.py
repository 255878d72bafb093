"""Strict deterministic CBOR (RFC 8949, section 4.2.1): one value, one encoding, nothing else decodes.

Our messages are made of integers, byte strings, texts, lists, and maps from text: no floats, no tags.
The reader knows the next key that must come, so a message is checked as it is read, in one pass; only if
something is wrong does it look again to name the fault. Tests compare it with cbor2, which shares no code.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import index
from typing import Any, NoReturn

from maskedlark.errors import (
    DuplicateKey,
    MissingKey,
    NotDeterministic,
    OutOfRange,
    TooDeep,
    TrailingBytes,
    Truncated,
    UnknownKey,
    UnsupportedVersion,
    WrongLength,
    WrongType,
)

VERSION = 1
"""The first byte of every message."""
VERSION_BYTE = bytes([VERSION])
MAX_BYTES = 1 << 20
MAX_DIAGNOSED = 1 << 14
MAX_DEPTH = 6

Item = Any
"""An int, bytes, str, list of items, or dict from str to item."""

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _LIST, _MAP = range(6)
_KINDS = ("number", "negative number", "byte string", "text", "list", "map", "tag", "float or simple value")


@lru_cache(maxsize=4096)
def _head(major: int, argument: int) -> bytes:
    """The first bytes of an item: its type, and a number or length in shortest form."""
    if argument < 24:
        return bytes([major << 5 | argument])
    size = next(size for size in range(4) if argument < 1 << (8 << size))
    return bytes([major << 5 | 24 + size]) + argument.to_bytes(1 << size, "big")


def number(value: int) -> bytes:
    """A whole number, encoded."""
    value = index(value)  # The cache of heads would treat 27.0 as 27.
    if not -(1 << 64) <= value < 1 << 64:
        raise OutOfRange("a number in a message has at most 64 bits")
    return _head(_UNSIGNED, value) if value >= 0 else _head(_NEGATIVE, -1 - value)


def octets(value: bytes) -> bytes:
    """A byte string, encoded."""
    return _head(_BYTES, len(value)) + value


def text(value: str) -> bytes:
    """A text, encoded."""
    encoded = value.encode()
    return _head(_TEXT, len(encoded)) + encoded


def listed(items: Sequence[bytes]) -> bytes:
    """A list of encoded items."""
    return _head(_LIST, len(items)) + b"".join(items)


def mapped(items: Mapping[str, bytes]) -> bytes:
    """A map to encoded items, its keys in canonical order: bytewise as encoded, so shorter ones first."""
    pairs = sorted((text(key), value) for key, value in items.items())
    return _head(_MAP, len(pairs)) + b"".join([key + value for key, value in pairs])


class Fields:
    """The keys of one kind of map, known in advance."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.keys = tuple(text(name) for name in names)
        self.head = _head(_MAP, len(names))
        assert list(self.keys) == sorted(self.keys), "name the keys in deterministic order"

    def write(self, *values: bytes) -> bytes:
        """The map, from one encoded value for every key."""
        return self.head + b"".join([key + value for key, value in zip(self.keys, values, strict=True)])


class Reader:
    """Reads one message from front to back. Every method takes the key that must precede the value."""

    __slots__ = ("_at", "_data", "_fields", "_start")

    def __init__(self, data: bytes, at: int = 0, most: int = MAX_BYTES) -> None:
        if len(data) > most:
            raise WrongLength(f"a message of this kind has at most {most} bytes, this one {len(data)}")
        self._data = data
        self._at = at
        self._start = at
        self._fields: Fields | None = None

    @classmethod
    def message(cls, data: bytes, most: int = MAX_BYTES) -> "Reader":
        """A reader positioned after the version byte. Refuses an unknown version."""
        if not data:
            raise Truncated("an empty message")
        if data[0] != VERSION:
            raise UnsupportedVersion(f"version {data[0]} of the protocol; this package speaks {VERSION}")
        return cls(data, 1, most)

    def map(self, fields: Fields) -> tuple[bytes, ...]:
        """The head of a map with these fields; returns their keys, in reading order."""
        self._start, self._fields = self._at, fields
        self._expect(fields.head)
        return fields.keys

    def octets(self, key: bytes, size: int | None = None) -> bytes:
        """A byte string, of exactly this size if one is given."""
        count = self._argument(key, _BYTES)
        if size is not None and count != size:
            raise WrongLength(f"expected {size} bytes, found {count}")
        return self._take(count)

    def text(self, key: bytes, most: int) -> str:
        """A text of 1 to `most` bytes."""
        count = self._argument(key, _TEXT)
        if not 1 <= count <= most:
            raise WrongLength(f"expected a text of 1 to {most} bytes, found {count}")
        return self._utf8(count)

    def natural(self, key: bytes, most: int) -> int:
        """A whole number from 0 to `most`."""
        found = self._argument(key, _UNSIGNED)
        if found > most:
            raise OutOfRange(f"expected a number from 0 to {most}, found {found}")
        return found

    def integer(self, most: int) -> int:
        """An item of a list: an integer of magnitude up to `most`."""
        major, argument = self._any_head()
        if major > _NEGATIVE:
            raise WrongType(f"expected a number, found a {_KINDS[major]}")
        found = argument if major == _UNSIGNED else -1 - argument
        if abs(found) > most:
            raise OutOfRange(f"expected a number of magnitude up to {most}")
        return found

    def items(self, key: bytes, least: int, most: int) -> range:
        """The head of a list; its items follow, one per number of the range."""
        count = self._argument(key, _LIST)
        if not least <= count <= most:
            raise WrongLength(f"expected a list of {least} to {most} items, found {count}")
        return range(count)

    def item(self, key: bytes) -> Item:
        """Whatever value follows, for parts whose shape is not known in advance."""
        self._expect(key)
        return self._item(1)

    def rest(self, key: bytes) -> bytes:
        """Everything after the last key, to be read separately."""
        self._expect(key)
        rest = self._data[self._at :]
        self._at = len(self._data)
        return rest

    def end(self) -> None:
        """Refuse anything after the message."""
        if self._at != len(self._data):
            raise TrailingBytes(f"{len(self._data) - self._at} bytes follow the message")

    def _expect(self, key: bytes) -> None:
        if not self._data.startswith(key, self._at):
            self._wrong_key()
        self._at += len(key)

    def _argument(self, key: bytes, major: int) -> int:
        """The number or length of an item that must be of this type, after this key."""
        self._expect(key)
        data, at = self._data, self._at
        # The two short forms first, inlined: nearly every item of a report has one of them.
        argument = (data[at] if at < len(data) else 255) - (major << 5)
        if 0 <= argument < 24:
            self._at = at + 1
            return argument
        if argument == 24 and at + 1 < len(data) and (argument := data[at + 1]) >= 24:
            self._at = at + 2
            return argument
        found, argument = self._any_head()
        if found != major:
            raise WrongType(f"expected a {_KINDS[major]}, found a {_KINDS[found]}")
        return argument

    def _any_head(self) -> tuple[int, int]:
        if self._at >= len(self._data):
            raise Truncated("the message ends too early")
        first = self._data[self._at]
        self._at += 1
        major, short = first >> 5, first & 31
        if major > _MAP:
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
        end = self._at + count
        if end > len(self._data):
            raise Truncated("the message ends too early")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _utf8(self, count: int) -> str:
        try:
            return self._take(count).decode()
        except UnicodeDecodeError:
            raise WrongType("a text that is not UTF-8") from None

    def _item(self, depth: int) -> Item:
        if depth > MAX_DEPTH:
            raise TooDeep(f"nested deeper than {MAX_DEPTH}")
        major, argument = self._any_head()
        if major <= _NEGATIVE:
            return argument if major == _UNSIGNED else -1 - argument
        if major == _BYTES:
            return self._take(argument)
        if major == _TEXT:
            return self._utf8(argument)
        if argument > len(self._data) - self._at:  # Every item takes a byte: allocate no more than can be.
            raise Truncated("the message ends too early")
        if major == _LIST:
            return [self._item(depth + 1) for _ in range(argument)]
        return self._mapping(argument, depth + 1)

    def _mapping(self, count: int, depth: int) -> dict[str, Item]:
        answer: dict[str, Item] = {}
        last = b""
        for _ in range(count):
            start = self._at
            key = self._item(depth)
            if type(key) is not str:
                raise WrongType("a key that is not a text")
            if key in answer:
                raise DuplicateKey("a key stands twice")
            encoded = self._data[start : self._at]
            if encoded < last:
                raise NotDeterministic("keys out of order")
            last, answer[key] = encoded, self._item(depth)
        return answer

    def _wrong_key(self) -> NoReturn:
        """Name what is wrong with a map that does not have the keys it should.

        Only for messages of a usual size: strangers must not make us read a megabyte again. Content is never
        named, since it may be a payload's.
        """
        if len(self._data) > MAX_DIAGNOSED:
            raise UnknownKey("other keys than this message's")
        self._at = self._start
        found = self._item(0)
        if self._fields is None or type(found) is not dict:
            raise WrongType(f"expected a map, found {type(found).__name__}")
        names = self._fields.names
        if any(name not in names for name in found):
            raise UnknownKey(f"a key that is not one of this message's: {', '.join(names)}")
        raise MissingKey(f"the message lacks one of its keys: {', '.join(names)}")
