"""Makes many reports at once, for a population of browsers. (A helper opens many in `decrypt.py`.)

Arithmetic and layout are done for the whole batch; only a hash and one HPKE call per payload loop over
records.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maskedlark.core import sharing, validity
from maskedlark.core.field import FieldArray
from maskedlark.core.sharing import ByteRows
from maskedlark.errors import NotDeclared
from maskedlark.randomness import Randomness, SystemRandomness
from maskedlark.wire import columns
from maskedlark.wire.columns import SALT_BYTES
from maskedlark.wire.hpke import SealingKey
from maskedlark.wire.report import ID_BYTES, Head, ReportLayout


@dataclass(frozen=True)
class Envelope:
    """What all reports of a batch have in common: their layout, and the key of every helper."""

    layout: ReportLayout
    keys: tuple[SealingKey, ...]

    def __post_init__(self) -> None:
        if len(self.keys) != len(self.layout.helpers):
            raise NotDeclared(f"{len(self.keys)} keys for {len(self.layout.helpers)} helpers")
        if min(len(set(self.keys)), len(set(self.layout.helpers))) < len(self.keys):
            raise NotDeclared("two helpers with one name or one key: one party would hold two shares")


def seal(
    envelope: Envelope,
    place: int,
    shown: ByteRows,
    secrets: FieldArray,
    hours: Sequence[int],
    rng: Randomness,
) -> list[bytes]:
    """Reports of many records of one declaration, by its place in the layout. Run by a population."""
    declared = envelope.layout.declared[place]
    if declared.checked:
        secrets = np.concatenate([secrets, validity.prove(secrets, declared, rng)], axis=1)
    return seal_proved(envelope, place, shown, secrets, hours, rng)


def seal_proved(
    envelope: Envelope,
    place: int,
    shown: ByteRows,
    secrets: FieldArray,
    hours: Sequence[int],
    rng: Randomness,
) -> list[bytes]:
    """`seal`, of secrets that are followed by their proof if one is declared."""
    if not len(shown) == len(secrets) == len(hours):
        raise NotDeclared("every record has columns, a secret and an hour; they differ in number")
    layout, records = envelope.layout, len(secrets)
    ids = sharing.random_rows(records, ID_BYTES, rng)
    salted = np.concatenate([sharing.random_rows(records, SALT_BYTES, rng), shown], axis=1)
    shares = sharing.split(secrets, ids, layout.purpose, len(layout.helpers), rng)
    heads = _heads(layout, ids, salted, hours)
    reports = [[layout.prefix + head] for head in heads]
    for helper, carried in enumerate(shares.carried()):
        payload, key = layout.payloads[helper], envelope.keys[helper]
        info, rows = layout.info(helper, key.key_id), payload.rows(place, salted, carried)
        plain = sharing.cut(rows.tobytes(), payload.size)
        # Loops over records: HPKE is one call each.
        for report, data, head in zip(reports, plain, heads, strict=True):
            report.extend((key.key_id, key.seal(data, info + head)))
    return [b"".join(report) for report in reports]


def _heads(layout: ReportLayout, ids: ByteRows, salted: ByteRows, hours: Sequence[int]) -> list[bytes]:
    """What differs between the reports of a batch. Loops over records: a hash is one call each."""
    names, opened = sharing.cut(ids.tobytes(), ID_BYTES), sharing.cut(salted.tobytes(), salted.shape[1])
    return [
        Head(name, hour, columns.digest(data, layout.purpose)).encode()
        for name, hour, data in zip(names, hours, opened, strict=True)
    ]


Chunk = tuple[Envelope, int, ByteRows, FieldArray, list[int]]


def seal_apart(chunk: Chunk) -> list[bytes]:
    """`seal` for another process, with system randomness: a copied generator would repeat itself."""
    return seal(*chunk, SystemRandomness())
