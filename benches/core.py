"""The protocol core: sealing and opening against bare HPKE, field sums against numpy, a million masks."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benches.timing import one_core, seconds, side_by_side
from maskedlark.core import field, sharing
from maskedlark.core.declared import Bytes, Model
from maskedlark.core.purpose import Purpose
from maskedlark.core.validity import KEY_BYTES
from maskedlark.randomness import Randomness, SystemRandomness
from maskedlark.wire import batch, columns, decrypt
from maskedlark.wire.acceptance import Terms
from maskedlark.wire.batch import Envelope
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.report import Opener, ReportLayout

FEATURES = 100
HELPERS = 2
REPORTS = 256
BATCHES = 8  # A helper is sent some thousand parts at a time.
ROUNDS = 31
INFO_BYTES = 200  # as long as a report's
HOUR = 480_000
LIFETIME_S = 30 * 86_400
SUMMED = 10_000_000
MASKED = 1_000_000


def measure(progress: Callable[[str], None]) -> dict[str, object]:
    """One core, one run. A whole report for two helpers counts two seals. Reports are checked, or are not."""
    one_core()
    rng = SystemRandomness()
    model = Model("ConversionModel11005", (Bytes(FEATURES),))
    unchecked = _sealing_and_opening(model, rng, progress)
    figures = _sealing_and_opening(replace(model, checked=True), rng, progress)
    figures |= {f"unchecked_{name}": unchecked[name] for name in ("report_bytes", "seal_ratio", "open_ratio")}

    progress("summing")
    elements = rng.below(field.P, SUMMED)
    sum_s, numpy_s, sum_ratio = side_by_side(lambda: field.total(elements), elements.sum, 15)

    progress("masking a million labels")
    million = rng.below(2, MASKED)
    ids = sharing.random_rows(MASKED, sharing.ID_BYTES, rng)

    def mask() -> sharing.Shares:
        _, secrets = model.mask([million], np.ones(MASKED, np.bool_), rng)
        return sharing.split(secrets, ids, Purpose.TRAIN, HELPERS, rng)

    return figures | {
        "field_sum_ms": round(sum_s * 1e3, 2),
        "numpy_sum_ms": round(numpy_s * 1e3, 2),
        "field_sum_ratio": round(sum_ratio, 2),
        "mask_million_s": round(min(seconds(mask) for _ in range(3)), 3),
    }


def _sealing_and_opening(model: Model, rng: Randomness, progress: Callable[[str], None]) -> dict[str, object]:
    """Against bare HPKE on payloads of the same size."""
    keys = [OpeningKey.generate(rng) for _ in range(HELPERS)]
    names = tuple(f"helper-{i}" for i in range(HELPERS))
    layout = ReportLayout("ads.example", bytes(32), names, (model,))
    envelope = Envelope(layout, tuple(key.sealing for key in keys))
    features = np.frombuffer(rng.bytes(REPORTS * FEATURES), np.uint8).reshape(REPORTS, FEATURES)
    labels, real = rng.below(2, REPORTS), np.ones(REPORTS, np.bool_)
    plain = [[rng.bytes(payload.size) for _ in range(REPORTS)] for payload in layout.payloads]
    infos = [rng.bytes(INFO_BYTES) for _ in range(REPORTS)]

    def make() -> list[bytes]:
        candidates, secrets = model.mask([labels], real, rng)
        shown = columns.train_columns(0, model, features, candidates)
        return batch.seal(envelope, 0, shown, secrets, [HOUR] * REPORTS, rng)

    def bare_seal() -> list[bytes]:
        pairs = zip(keys, plain, strict=True)
        return [
            key.sealing.seal(data, info)
            for key, some in pairs
            for data, info in zip(some, infos, strict=True)
        ]

    progress("sealing")
    seal_s, bare_seal_s, seal_cost = side_by_side(make, bare_seal, ROUNDS)

    # Helper 1 has the harder part: it expands its masks from seeds.
    reports = [data for _ in range(BATCHES) for data in make()]
    sealed = bare_seal()[REPORTS:]
    parts = layout.parts(reports, 1).tobytes()
    terms = Terms(LIFETIME_S, HOUR * 3600)
    opener = Opener(layout, 1, {keys[1].key_id: keys[1]}, terms, rng.bytes(KEY_BYTES))

    def open_reports() -> None:
        assert decrypt.decrypt_parts(opener, parts).verdicts.accepted.all()

    def bare_open() -> list[bytes]:
        return [
            keys[1].open(data, info) for _ in range(BATCHES) for data, info in zip(sealed, infos, strict=True)
        ]

    progress("opening")
    open_s, bare_open_s, open_cost = side_by_side(open_reports, bare_open, ROUNDS)
    return {
        "payload_bytes": [payload.size for payload in layout.payloads],
        "report_bytes": len(reports[0]),
        "bare_seal_per_s": round(HELPERS * REPORTS / bare_seal_s),
        "report_seal_per_s": round(HELPERS * REPORTS / seal_s),
        "seal_ratio": round(1 / seal_cost, 3),
        "bare_open_per_s": round(BATCHES * REPORTS / bare_open_s),
        "report_open_per_s": round(BATCHES * REPORTS / open_s),
        "open_ratio": round(1 / open_cost, 3),
    }
