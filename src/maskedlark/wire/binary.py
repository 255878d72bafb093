"""The language of binary messages: numbers of fixed width, bytes of fixed length, and vectors.

The presentation language of TLS (RFC 8446, section 3): numbers are big-endian, and a vector is preceded by
its length in bytes. Messages that come by the thousand, such as reports, are rows of an array instead;
`Reader` reads one, and is the slow twin of such arrays.
"""

from collections.abc import Sequence

from maskedlark.errors import UnsupportedVersion, WrongLength, WrongType
from maskedlark.wire.errors import OutOfRange, TrailingBytes, Truncated

VERSION = 2
"""The first byte of every message that `Reader.message` reads. Payloads have none, weights their own."""
VERSION_BYTE = bytes([VERSION])


def number(value: int, width: int) -> bytes:
    """A number of `width` bytes."""
    if not 0 <= value < 1 << 8 * width:
        raise OutOfRange(f"a number that does not fit into {width} bytes")
    return value.to_bytes(width, "big")


def vector(data: bytes, width: int) -> bytes:
    """Bytes, preceded by their length as a number of `width` bytes."""
    return number(len(data), width) + data


def vectors(items: Sequence[bytes], width: int) -> bytes:
    """Several vectors, one after the other."""
    return b"".join([part for item in items for part in (number(len(item), width), item)])


class Reader:
    """Reads one message from front to back. `what`: how errors name it."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data, self._at, self._what = data, 0, what

    @classmethod
    def message(cls, data: bytes, what: str) -> "Reader":
        """A reader after the version byte. Refuses another version."""
        reader = cls(data, what)
        version = reader.number(1)
        if version != VERSION:
            raise UnsupportedVersion(f"{what} of version {version}; this package speaks {VERSION}")
        return reader

    @property
    def left(self) -> int:
        """How many bytes follow."""
        return len(self._data) - self._at

    def octets(self, size: int) -> bytes:
        """Exactly this many bytes."""
        if size > self.left:
            raise Truncated(f"{self._what} ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, width: int, most: int | None = None) -> int:
        """A number of `width` bytes."""
        value = int.from_bytes(self.octets(width), "big")
        if most is not None and value > most:
            raise OutOfRange(f"{self._what} holds {value} where at most {most} is allowed")
        return value

    def vector(self, width: int, least: int, most: int) -> bytes:
        """Bytes that are preceded by their length, a number of `width` bytes."""
        size = self.number(width)
        if not least <= size <= most:
            raise WrongLength(f"{self._what} holds {size} bytes where {least} to {most} are allowed")
        return self.octets(size)

    def vectors(self, width: int, most: int, max_bytes: int) -> list[bytes]:
        """At most `most` vectors of 1 to `max_bytes` bytes, to the end of the message."""
        items: list[bytes] = []
        while self.left:
            if len(items) == most:
                raise WrongLength(f"{self._what} holds more than {most} items; send the others apart")
            items.append(self.vector(width, 1, max_bytes))
        return items

    def text(self, width: int, most: int) -> str:
        """A vector of 1 to `most` bytes of UTF-8."""
        try:
            return self.vector(width, 1, most).decode()
        except UnicodeDecodeError:
            raise WrongType(f"{self._what} holds a text that is not UTF-8") from None

    def end(self) -> None:
        """Refuse anything after the message."""
        if self.left:
            raise TrailingBytes(f"{self.left} bytes follow {self._what}")
