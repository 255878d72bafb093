"""Reads many reports of an upload fast: those of one document, purpose and hour have one form.

They differ only in id, column hash and sealed bytes. So the first of a form is read strictly, and the others
are recognised by comparing all other bytes. `strict` is the slow twin, and names what is wrong.
"""

from collections.abc import Sequence
from operator import itemgetter
from struct import Struct, calcsize

from maskedlark.errors import DecodeError
from maskedlark.wire import codec, report
from maskedlark.wire.codec import Fields
from maskedlark.wire.columns import HASH_BYTES
from maskedlark.wire.report import ID_BYTES, ID_END, ID_START, PublicPart, Report

_FIELDS = Fields("public", "payloads")
_BEFORE = len(codec.VERSION_BYTE + _FIELDS.head + _FIELDS.keys[0])


def strict(data: bytes) -> PublicPart:
    """The public part of a report, whose whole form is checked. Run by the ad server."""
    return report.decode_public(report.decode(data).public)


def public_parts(reports: Sequence[bytes]) -> list[PublicPart | DecodeError]:
    """What `strict` returns or raises for every report, faster. Run by the ad server."""
    found: list[PublicPart | DecodeError] = []
    forms: dict[int, _Forms] = {}
    for data in reports:
        known = forms.get(len(data))
        if known is None or (public := known.read(data)) is None:
            try:
                public = _learn(data, forms)
            except DecodeError as error:
                found.append(error)
                continue
        found.append(public)
    return found


class _Forms:
    """The forms of reports that are split at the same places."""

    def __init__(self, layout: str) -> None:
        self.layout = layout
        self._cut = Struct(layout).unpack
        places = len(self._cut(bytes(calcsize(layout))))
        self._fixed = itemgetter(0, 2, *range(4, places))
        self._common: dict[tuple[bytes, ...], tuple[object, ...]] = {}

    def add(self, data: bytes, public: PublicPart) -> None:
        """Remember the form of a report that was read strictly."""
        self._common[self._fixed(self._cut(data))] = public[1:-1]

    def read(self, data: bytes) -> PublicPart | None:
        """The public part of a report of a known form, or None."""
        parts = self._cut(data)
        common = self._common.get(self._fixed(parts))
        return None if common is None else PublicPart._make((parts[1], *common, parts[3]))


def _learn(data: bytes, forms: dict[int, _Forms]) -> PublicPart:
    """Read strictly, and remember the form."""
    whole = report.decode(data)
    public = report.decode_public(whole.public)
    layout = _layout(len(data), whole)
    if len(data) not in forms or forms[len(data)].layout != layout:
        forms[len(data)] = _Forms(layout)
    forms[len(data)].add(data, public)
    return public


def _layout(length: int, whole: Report) -> str:
    """Where to split a report: id, column hash and everything else that is not sealed.

    What is compared includes every length and key id, so reports that are equal there have the same form.
    """
    key_id, sealed = whole.payloads[0]
    size, more = len(sealed), len(whole.payloads) - 1
    between = len(codec.listed([codec.octets(key_id), codec.octets(sealed)])) - size
    start = _BEFORE + len(codec.octets(whole.public)) - len(whole.public)
    middle = len(whole.public) - ID_END - HASH_BYTES
    behind = length - start - len(whole.public) - size - more * (between + size)
    return (
        f">{start + ID_START}s{ID_BYTES}s{middle}s{HASH_BYTES}s{behind}s{size}x" + f"{between}s{size}x" * more
    )
