"""Reports: a public part, and a sealed payload for every helper. Made by browsers, opened by helpers.

    report = prefix, head, (key id (16 bytes), sealed payload) for every helper, in order
    prefix = version (1 byte), purpose (1), document digest (32), origin (a vector of 1 to 253 bytes)
    head   = report id (16), hours since 1970 (4), column hash (32)
    part   = head, key id, sealed payload                                   what one helper is sent of it

Prefix and head are the public part: `info` binds exactly these bytes, with the helper's name, place and key
id. All reports of one purpose and document have one prefix and one size, so many are rows of an array.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from maskedlark.core import sharing
from maskedlark.core.declared import Measure, Model
from maskedlark.core.purpose import Purpose
from maskedlark.core.sharing import ByteRows
from maskedlark.errors import WrongLength
from maskedlark.wire import binary
from maskedlark.wire.acceptance import Terms
from maskedlark.wire.binary import Reader
from maskedlark.wire.columns import HASH_BYTES
from maskedlark.wire.errors import DuplicateKey, OutOfRange, WrongHelper
from maskedlark.wire.hpke import KEY_ID_BYTES, OVERHEAD, OpeningKey
from maskedlark.wire.payload import Payload, PayloadLayout

ID_BYTES = sharing.ID_BYTES
MAX_ORIGIN = 253
MAX_BYTES = 1 << 20
"""Of a report."""
_INFO = b"maskedlark v2 report"
_HEAD = struct.Struct(f">{ID_BYTES}sI{HASH_BYTES}s")
HEAD_BYTES = _HEAD.size
_PURPOSES = {ord(purpose.byte): purpose for purpose in Purpose}


class Prefix(NamedTuple):
    """What all reports of one purpose and document begin with."""

    purpose: Purpose
    parameters: bytes
    """The digest of the parameter document that the report was made under."""
    origin: str

    def encode(self) -> bytes:
        """Run by the browser."""
        origin = binary.vector(self.origin.encode(), 1)
        return binary.VERSION_BYTE + self.purpose.byte + self.parameters + origin


class Head(NamedTuple):
    """What differs between reports: nothing in it depends on what the user did."""

    id: bytes
    hour: int
    column_hash: bytes

    def encode(self) -> bytes:
        """Run by the browser."""
        return _HEAD.pack(*self)


_ORIGIN = len(binary.VERSION_BYTE) + 1 + HASH_BYTES
"""Where a report states the length of its origin."""


def prefix_size(data: bytes) -> int:
    """Where the prefix of a report ends, if it is one."""
    return _ORIGIN + 1 + (data[_ORIGIN] if len(data) > _ORIGIN else 0)


def decode_prefix(data: bytes) -> Prefix:
    """The prefix of a report. Run by the ad server."""
    reader = Reader.message(data, "a report")
    purpose = reader.number(1)
    if purpose not in _PURPOSES:
        raise OutOfRange("the purpose of a report is 1, to aggregate, or 2, to train")
    return Prefix(_PURPOSES[purpose], reader.octets(HASH_BYTES), reader.text(1, MAX_ORIGIN))


def decode_head(data: bytes) -> Head:
    """What differs in a report, whatever its document. Run by the ad server before it has the document."""
    return Head._make(_HEAD.unpack(Reader(data[prefix_size(data) :], "a report").octets(HEAD_BYTES)))


@dataclass(frozen=True)
class ReportLayout:
    """The layout of all reports of one purpose under one document."""

    origin: str
    parameters: bytes
    helpers: tuple[str, ...]
    """Their names, in the order of the document."""
    declared: tuple[Measure | Model, ...]
    """One measure, or the models of the document in its order."""

    @cached_property
    def purpose(self) -> Purpose:
        """What the reports are for."""
        return self.declared[0].purpose

    @cached_property
    def prefix(self) -> bytes:
        """The first bytes of every report."""
        return Prefix(self.purpose, self.parameters, self.origin).encode()

    @cached_property
    def payloads(self) -> tuple[PayloadLayout, ...]:
        """The layout of every helper's payload."""
        return tuple(PayloadLayout(self.declared, place) for place in range(len(self.helpers)))

    @cached_property
    def size(self) -> int:
        """Of every report, in bytes."""
        return len(self.prefix) + HEAD_BYTES + sum(self._entry_sizes)

    def part_size(self, place: int) -> int:
        """Of what one helper is sent of a report, in bytes."""
        return HEAD_BYTES + KEY_ID_BYTES + self.payloads[place].size + OVERHEAD

    def head(self, report: bytes) -> Head:
        """What differs in a report of this prefix, whose form is checked. Run by the ad server."""
        if len(report) != self.size:
            raise WrongLength(f"a report of {len(report)} bytes; under its document all have {self.size}")
        keys = {report[begin : begin + KEY_ID_BYTES] for begin in self._begins}
        if len(keys) < len(self.helpers):
            raise DuplicateKey("two payloads are sealed to one key: one helper would hold two shares")
        return Head._make(_HEAD.unpack_from(report, len(self.prefix)))

    def heads(self, reports: Sequence[bytes]) -> ByteRows:
        """What differs in stored reports: (n, 52). Run by the ad server."""
        return self._rows(reports)[:, self._head]

    def parts(self, reports: Sequence[bytes], place: int) -> ByteRows:
        """What one helper is sent of stored reports: (n, part_size). Run by the ad server."""
        rows = self._rows(reports)
        return np.concatenate([rows[:, self._head], rows[:, self._entry(place)]], axis=1)

    def _rows(self, reports: Sequence[bytes]) -> ByteRows:
        return sharing.byte_rows(b"".join(reports), self.size)

    @property
    def _head(self) -> slice:
        return slice(len(self.prefix), len(self.prefix) + HEAD_BYTES)

    def info(self, place: int, key_id: bytes) -> bytes:
        """Everything public that a payload is bound to, without the head, which follows."""
        name = binary.vector(self.helpers[place].encode(), 1)
        return _INFO + bytes([place]) + key_id + name + self.prefix

    def _entry(self, place: int) -> slice:
        """Where the key id and the sealed payload of a helper are in a report."""
        return slice(self._begins[place], self._begins[place] + self._entry_sizes[place])

    @cached_property
    def _begins(self) -> list[int]:
        sizes = [len(self.prefix) + HEAD_BYTES, *self._entry_sizes[:-1]]
        return [*accumulate(sizes)]

    @cached_property
    def _entry_sizes(self) -> list[int]:
        return [KEY_ID_BYTES + layout.size + OVERHEAD for layout in self.payloads]


@dataclass(frozen=True)
class Opener:
    """Opens one helper's parts of the reports of a dataset, all of one purpose and document."""

    layout: ReportLayout
    place: int
    keys: Mapping[bytes, OpeningKey]
    terms: Terms
    check_key: bytes | None = field(default=None, repr=False)
    """Of all helpers of the document, if reports are checked: without it, no numbers are computed."""

    @property
    def payload(self) -> PayloadLayout:
        """The layout of our payloads."""
        return self.layout.payloads[self.place]

    @property
    def helper(self) -> str:
        """Our name."""
        return self.layout.helpers[self.place]

    def open(self, part: bytes) -> tuple[Head, Payload]:
        """One part: the slow twin of `decrypt.py`. Refuses what is changed, late, or not as declared."""
        head, plain = self.unseal(part)
        return head, self.payload.decode(plain, head.column_hash)

    def unseal(self, part: bytes) -> tuple[Head, bytes]:
        """The head and the payload of a part that is for us, in time and unchanged."""
        reader = Reader(part, "a part")
        encoded, key_id = reader.octets(HEAD_BYTES), reader.octets(KEY_ID_BYTES)
        sealed = reader.octets(self.payload.size + OVERHEAD)
        reader.end()
        head = Head._make(_HEAD.unpack(encoded))
        if key_id not in self.keys:
            raise WrongHelper(f"the payload is sealed to key {key_id.hex()}, which {self.helper} lacks")
        self.terms.check(head.hour)
        return head, self.keys[key_id].open(sealed, self.layout.info(self.place, key_id) + encoded)
