"""The check of reports against opening them: a million with one binary label, a million with one 8-bit value.

What a helper does for the check of a chunk: a point per report and its two numbers there, its signed message,
the other helper's message verified, and the verdict. What it does to open them: `decrypt_parts`, which also
expands the proof's shares from the seed, as it expands those of the secret.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benches.timing import one_core
from maskedlark.core import sharing, validity
from maskedlark.core.declared import Measure
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.parameters.document import Document
from maskedlark.randomness import SystemRandomness
from maskedlark.release import check_messages
from maskedlark.wire import batch, columns
from maskedlark.wire.acceptance import Terms
from maskedlark.wire.batch import Envelope
from maskedlark.wire.checks import Checks
from maskedlark.wire.datasets import PARTS
from maskedlark.wire.decrypt import decrypt_parts, ids_of
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.report import Opener
from tests.unit.ledger.ledgers import NOW, Signs
from tests.unit.parameters import cases

MILLION = 1_000_000
CHUNKS = 8
"""Different ones: a million records are these again and again."""
PLACE = 1
"""This helper has the harder part: it expands its shares from seeds."""
KEY, KEY_DIGEST = bytes(range(32)), bytes(32)
SIGNERS = [Signs(place).current(NOW) for place in range(2)]


def measure(progress: Callable[[str], None]) -> dict[str, object]:
    """One core. `check_over_open`: seconds for the check over seconds to open, of the same records."""
    one_core()
    label = {"models": [cases.settings()["models"][0]], "values": [], "keys": []}
    value = {"models": [], "training": None, "keys": [], "values": [{"name": "price", "low": 0, "high": 255}]}
    return {
        "label": _measure("label", cases.make(checks="bits", decoys=[], fake_rate=0, **label), progress),
        "value": _measure("value", cases.make(checks="bits", decoys=[], fake_rate=0, **value), progress),
    }


class _Chunk(NamedTuple):
    """What a helper is sent of a chunk, its shares once it is opened, and the other helper's message."""

    parts: bytes
    shares: FieldArray
    message: bytes


def _measure(name: str, document: Document, progress: Callable[[str], None]) -> dict[str, object]:
    (purpose,) = document.purposes()
    layout, keys = document.layout(purpose), [OpeningKey.generate(SystemRandomness()) for _ in range(2)]
    openers = [
        Opener(layout, place, {key.key_id: key}, Terms(document.report_lifetime_s, NOW))
        for place, key in enumerate(keys)
    ]
    progress(f"{name}: making reports")
    chunks = [_made(document, openers) for _ in range(CHUNKS)]
    opening = checking = 0.0
    rounds = -(-MILLION // PARTS)
    for number in range(rounds):
        if number % 100 == 0:
            progress(f"{name}: {number * PARTS} of {rounds * PARTS} reports")
        chunk = chunks[number % CHUNKS]
        start = time.perf_counter()
        opened = decrypt_parts(openers[PLACE], chunk.parts)
        opening += time.perf_counter() - start
        ids = ids_of(opened.heads)
        start = time.perf_counter()
        message = _check(document, ids, chunk)
        checking += time.perf_counter() - start
    declared = layout.declared[0]
    return {
        "records": rounds * PARTS,
        "points": declared.points(),
        "open_us": round(1e6 * opening / (rounds * PARTS), 2),
        "check_us": round(1e6 * checking / (rounds * PARTS), 2),
        "check_over_open": round(checking / opening, 4),
        "relayed_bytes": round(len(message) / PARTS, 2),
        "report_bytes": layout.size,
    }


def _check(document: Document, ids: sharing.ByteRows, chunk: _Chunk) -> bytes:
    """All that a helper does to check a chunk."""
    own = _numbers(document, PLACE, ids, chunk.shares)
    message = check_messages.sign(own, SIGNERS[PLACE])
    other = check_messages.verify(chunk.message, document, 1 - PLACE, KEY_DIGEST)
    assert check_messages.verdict(own, [other]).valid.all()
    return message


def _numbers(document: Document, place: int, ids: sharing.ByteRows, shares: FieldArray) -> Checks:
    declared = document.layout(document.purposes()[0]).declared[0]
    t = validity.challenges(KEY, ids, declared.points())
    named = place, NOW, document.origin, document.digest, KEY_DIGEST
    return Checks(*named, ids, validity.evaluate(shares, t, declared))


def _made(document: Document, openers: list[Opener]) -> _Chunk:
    rng, layout = SystemRandomness(), openers[0].layout
    declared: Any = layout.declared[0]
    real = np.ones(PARTS, np.bool_)
    if isinstance(declared, Measure):
        secrets = declared.lift([rng.below(256, PARTS)], real)
        shown = columns.aggregate_columns(declared, [], PARTS)
    else:
        candidates, secrets = declared.mask([rng.below(2, PARTS)], real, rng)
        rows = sharing.random_rows(PARTS, declared.width, rng)
        shown = columns.train_columns(0, declared, rows, candidates)
    sealing = tuple(key.sealing for opener in openers for key in opener.keys.values())
    reports = batch.seal(Envelope(layout, sealing), 0, shown, secrets, [NOW // 3600] * PARTS, rng)
    parts = [layout.parts(reports, opener.place) for opener in openers]
    shares = [_shares(opener, own) for opener, own in zip(openers, parts, strict=True)]
    ids = parts[0][:, : sharing.ID_BYTES]
    other = _numbers(document, 1 - PLACE, ids, shares[1 - PLACE])
    return _Chunk(parts[PLACE].tobytes(), shares[PLACE], check_messages.sign(other, SIGNERS[1 - PLACE]))


def _shares(opener: Opener, parts: sharing.ByteRows) -> FieldArray:
    """All shares, with those of the proof: what `decrypt_parts` has before it lets go of them."""
    opened = [opener.open(part.tobytes()) for part in parts]
    carried = sharing.byte_rows(b"".join(payload.secret for _, payload in opened), len(opened[0][1].secret))
    ids = parts[:, : sharing.ID_BYTES]
    declared, purpose = opener.layout.declared[0], Purpose(opener.layout.purpose)
    return sharing.recover(carried, ids, purpose, opener.place, declared.carried())
