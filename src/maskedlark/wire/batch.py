"""Makes many reports at once, for a population of browsers. (A helper opens many in `decrypt.py`.)

Arithmetic is done for the whole batch; only encoding and one HPKE call per payload loop over records.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import sharing
from maskedlark.core.declared import Measure
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.errors import NotDeclared
from maskedlark.randomness import Randomness, SystemRandomness
from maskedlark.wire import columns, payload, report
from maskedlark.wire.columns import SALT_BYTES, AggregateColumns, Key, TrainColumns, check_keys
from maskedlark.wire.report import ID_BYTES, PublicPart, Recipient


@dataclass(frozen=True)
class Envelope:
    """What all reports of a batch have in common: document, recipients, size."""

    origin: str
    purpose: Purpose
    parameters: bytes
    recipients: tuple[Recipient, ...]
    size: int

    def __post_init__(self) -> None:
        names, keys = {each.name for each in self.recipients}, {each.key for each in self.recipients}
        if min(len(names), len(keys)) < len(self.recipients):
            raise NotDeclared("two helpers with one name or one key: one party would hold two shares")


def train_columns(
    tag: str, features: NDArray[np.uint8], candidates: Sequence[NDArray[np.int64]]
) -> list[bytes]:
    """The open columns of training records, encoded. Run by browsers."""
    if features.dtype != np.uint8 or features.ndim != 2:
        raise NotDeclared(
            f"features are bytes, an array (n, d) of uint8, not {features.ndim}-d of {features.dtype}"
        )
    check_records([len(shown) for shown in candidates], len(features))
    rows, width = features.tobytes(), features.shape[1]
    labels = zip(*[map(tuple, shown.tolist()) for shown in candidates], strict=True)
    return [
        TrainColumns(tag, rows[i * width : (i + 1) * width], shown).encode() for i, shown in enumerate(labels)
    ]


def aggregate_columns(measure: Measure, keys: Sequence[Sequence[Key]], records: int) -> list[bytes]:
    """The open columns of measured records, encoded: a column for every declared key. Run by browsers."""
    if len(keys) != len(measure.keys):
        raise NotDeclared(
            f"{len(measure.keys)} keys are declared ({', '.join(measure.keys)}), not {len(keys)}"
        )
    check_records([len(column) for column in keys], records)
    rows = [dict(zip(measure.keys, [column[i] for column in keys], strict=True)) for i in range(records)]
    for row in rows:
        check_keys(row)
    return [AggregateColumns(row, measure.names).encode() for row in rows]


def check_records(counts: Sequence[int], records: int) -> None:
    """Refuse columns of different lengths."""
    if any(count != records for count in counts):
        raise NotDeclared("the columns differ in length: each has one entry per record")


def seal(
    envelope: Envelope, encoded: Sequence[bytes], secrets: FieldArray, hours: Sequence[int], rng: Randomness
) -> list[bytes]:
    """Reports of many records: share, encode, seal. Run by a population of browsers."""
    if not len(encoded) == len(secrets) == len(hours):
        raise NotDeclared("every record has columns, a secret and an hour; they differ in number")
    purpose, records = envelope.purpose, len(secrets)
    ids = sharing.random_rows(records, ID_BYTES, rng)
    salts = sharing.cut(rng.bytes(records * SALT_BYTES), SALT_BYTES)
    shares = sharing.split(secrets, ids, purpose, len(envelope.recipients), rng)
    rows = zip(
        sharing.cut(ids.tobytes(), ID_BYTES),
        salts,
        encoded,
        hours,
        zip(*shares.carried(), strict=True),
        strict=True,
    )
    reports = []
    for report_id, salt, shown, hour, carried in rows:
        digest = columns.digest(shown, salt, purpose)
        public = PublicPart(report_id, hour, envelope.origin, purpose, envelope.parameters, digest)
        bodies = [payload.body(salt, secret, shown) for secret in carried]
        reports.append(report.seal(public, bodies, envelope.recipients, envelope.size).encode())
    return reports


Chunk = tuple[Envelope, list[bytes], FieldArray, list[int]]


def seal_apart(chunk: Chunk) -> list[bytes]:
    """`seal` for another process, with system randomness: a copied generator would repeat itself."""
    return seal(*chunk, SystemRandomness())
