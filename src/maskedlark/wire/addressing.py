"""The first stage of opening many parts: for whom they are, and their public parts. Run by a helper.

The parts of a dataset differ only in key id, report id, hour, column hash and payload. Those of this layout
are read as columns of an array; others go to `Opener.address`, which also names what is wrong with them.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import sharing
from maskedlark.errors import DecodeError, Refused
from maskedlark.wire.acceptance import Verdicts
from maskedlark.wire.columns import HASH_BYTES
from maskedlark.wire.hpke import KEY_ID_BYTES, OVERHEAD, OpeningKey
from maskedlark.wire.layout import Layout, inverted, span, spans
from maskedlark.wire.report import ID_BYTES, Addressed, Opener, PublicPart, Report, info

_HOUR, _OTHER_HOUR = 0x01010101, 0xFEFEFEFE
Envelope = tuple[OpeningKey, bytes, bytes]
"""What is needed to open one part: our key, the sealed bytes, and the `info` that binds them."""
_MIN_HOUR = 1 << 16
"""Hours since 1977 take four bytes. Smaller ones have another encoding."""


class PartForm(NamedTuple):
    """Where each field is in the parts of a dataset."""

    layout: Layout
    """Of everything before the sealed payload, which is last."""
    length: int
    key_id: slice
    public: slice
    id: slice
    hour: slice
    column_hash: slice
    sealed: slice


@lru_cache(maxsize=64)
def part_form(example: PublicPart, size: int) -> PartForm:
    """The form of parts with public parts like the example, as the encoder makes them."""

    def part(key_id: bytes, public: bytes, sealed: bytes) -> bytes:
        return Report(public, ((key_id, sealed),)).part(0)

    shown = example._replace(hour=_HOUR)
    usual = {"key_id": bytes(KEY_ID_BYTES), "public": shown.encode(), "sealed": bytes(size + OVERHEAD)}
    message, places = part(**usual), spans(part, usual)
    changed = {
        "id": shown._replace(id=inverted(shown.id)),
        "hour": shown._replace(hour=_OTHER_HOUR),
        "column_hash": shown._replace(column_hash=inverted(shown.column_hash)),
    }
    for name, other in changed.items():
        places[name] = span(message, part(**{**usual, "public": other.encode()}))
    varying = [places["key_id"], *(places[name] for name in changed)]
    layout = Layout.of(message[: places["sealed"].start], varying)
    return PartForm(layout=layout, length=len(message), **places)


class Addressing:
    """The public columns of parts, and which of them are ours to open."""

    def __init__(self, opener: Opener, parts: Sequence[bytes], verdicts: Verdicts) -> None:
        self._opener, self._parts, self._verdicts = opener, parts, verdicts
        self.ids = np.zeros((len(parts), ID_BYTES), np.uint8)
        self.hours = np.zeros(len(parts), np.uint32)
        self.column_hashes = np.zeros((len(parts), HASH_BYTES), np.uint8)
        self._keys = list(opener.keys.items())
        self._holder: NDArray[np.intp] = np.full(len(parts), -1, np.intp)
        """By part that was read by form: which of our keys it is sealed to."""
        self._form = part_form(opener.example, opener.size) if opener.example else None
        self._strict: dict[int, Addressed] = {}
        if self._form:
            self._read(self._form)
        for part in np.flatnonzero((self._holder < 0) & verdicts.accepted).tolist():
            self._read_strictly(part)

    def envelopes(self, parts: Sequence[int]) -> list[Envelope]:
        """What is needed to open these parts, all accepted so far."""
        helper, place, form = self._opener.helper, self._opener.place, self._form
        holders, made = self._holder[parts].tolist(), []
        for part, holder in zip(parts, holders, strict=True):
            if form is None or holder < 0:
                made.append(self._strict[part][1:])
            else:
                data, (key_id, key) = self._parts[part], self._keys[holder]
                bound = info(data[form.public], helper, place, key_id)
                made.append((key, data[form.sealed], bound))
        return made

    def _read(self, form: PartForm) -> None:
        """Read all parts that have the form."""
        lengths = np.fromiter(map(len, self._parts), np.intp, len(self._parts))
        parts = np.flatnonzero(lengths == form.length)
        start = form.sealed.start
        heads = sharing.byte_rows(b"".join([self._parts[part][:start] for part in parts.tolist()]), start)
        hours = np.ascontiguousarray(heads[:, form.hour]).view(">u4")[:, 0]
        holder = self._holders(heads[:, form.key_id])
        fits = form.layout.matches(heads) & (hours >= _MIN_HOUR) & (holder >= 0)
        parts, heads = parts[fits], heads[fits]
        self._holder[parts], self.hours[parts] = holder[fits], hours[fits]
        self.ids[parts], self.column_hashes[parts] = heads[:, form.id], heads[:, form.column_hash]
        self._check_hours(parts)

    def _holders(self, key_ids: sharing.ByteRows) -> NDArray[np.intp]:
        holder = np.full(len(key_ids), -1, np.intp)
        for index, (key_id, _) in enumerate(self._keys):
            holder[(key_ids == np.frombuffer(key_id, np.uint8)).all(axis=1)] = index
        return holder

    def _check_hours(self, parts: NDArray[np.intp]) -> None:
        """Check each hour once: public parts of one form differ in nothing else that is checked."""
        assert self._opener.example is not None
        for hour in np.unique(self.hours[parts]).tolist():
            try:
                self._opener.check(self._opener.example._replace(hour=hour))
            except Refused as error:
                for part in parts[self.hours[parts] == hour].tolist():
                    self._verdicts.refuse(part, error)

    def _read_strictly(self, part: int) -> None:
        try:
            found = self._opener.address(self._parts[part])
        except (DecodeError, Refused) as error:
            self._verdicts.refuse(part, error)
            return
        self._strict[part] = found
        self.hours[part] = found.public.hour
        self.ids[part] = np.frombuffer(found.public.id, np.uint8)
        self.column_hashes[part] = np.frombuffer(found.public.column_hash, np.uint8)
