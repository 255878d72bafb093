"""Vectors of the proof that a report is valid, and of its check: those that hold, and those that must not.

Each has the secret and its proof, each helper's share of both, and what every helper publishes. `labels` is
how many masks each label has; for values it is null, and the secret's own numbers have to be bits.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from maskedlark.core import field, sharing, validity
from maskedlark.core.declared import Measure, Model, Value
from maskedlark.core.field import FieldArray
from maskedlark.core.labels import LabelSpace
from maskedlark.randomness import FixedRandomness
from tests.unit.core.forging import FORGED, OF_LABELS
from vectors.good import CHECK_KEY, Vectors, numbers_of

RANGES = (
    (0, 0),
    (0, 1),
    (0, 2),
    (0, 255),
    (0, 50_000),
    (-300, 300),
    (5, 50),
    (-300, -1),
    (-(10**15), 10**15),
)
DECLARED: dict[str, Measure | Model] = {
    "a binary label": Model("m", (), checked=True),
    "two labels": Model("m", (), (LabelSpace.categorical(3), LabelSpace.binary()), checked=True),
    "values": Measure((), (Value("v", 0, 9), Value("w", -2, 1)), checked=True),
}
SECRETS = {
    "a binary label": {"0": [1, 0], "1": [0, 1], "fake": [0, 0]},
    "two labels": {"2 and 0": [0, 0, 1, 1, 0], "0 and 1": [1, 0, 0, 0, 1]},
    "values": {"9 and -2": [1, 1, 1, 1, 1, 0, 0], "8 and 1": [1, 0, 1, 1, 1, 1, 1], "fake": [0] * 5 + [0, 1]},
}


def bits() -> Vectors:
    """The weights of values of many ranges, and the bits of some."""
    vectors = []
    for low, high in RANGES:
        value = Value("v", low, high)
        most = max(high, 0)
        some = np.array(sorted({value.least, 0, most, (value.least + most) // 2, max(most - 1, value.least)}))
        rows = value.bits(field.from_signed(some)).tolist()
        written = [{"value": str(each), "bits": row} for each, row in zip(some.tolist(), rows, strict=True)]
        weights = [str(weight) for weight in value.weights]
        vectors.append({"low": str(low), "high": str(high), "weights": weights, "values": written})
    return vectors


def checks() -> Vectors:
    """Valid records, then forged ones."""
    return [*_valid(), *_forged()]


def _valid() -> Iterator[dict[str, Any]]:
    for name, declared in DECLARED.items():
        for truth, numbers in SECRETS[name].items():
            secrets, rng = np.array([numbers]), FixedRandomness(f"{name} {truth}".encode())
            carried = np.concatenate([secrets, validity.prove(secrets, declared, rng)], axis=1)
            for helpers in (2, 3):
                yield _vector(f"{name}: {truth}", declared, carried, helpers, rng, valid=True)


def _forged() -> Iterator[dict[str, Any]]:
    for name, declared in DECLARED.items():
        secrets = np.array([next(iter(SECRETS[name].values()))])
        for kind, forge in (FORGED | OF_LABELS if isinstance(declared, Model) else FORGED).items():
            rng = FixedRandomness(f"{name} {kind}".encode())
            forged = forge(secrets, declared, rng)
            for helpers in (2, 3):
                yield _vector(f"{name}: {kind}", declared, forged, helpers, rng, valid=False)


def _vector(
    name: str,
    declared: Measure | Model,
    carried: FieldArray,
    helpers: int,
    rng: FixedRandomness,
    valid: bool,
) -> dict[str, Any]:
    ids, count = sharing.random_rows(1, sharing.ID_BYTES, rng), declared.secrets()
    t = validity.challenges(CHECK_KEY, ids, declared.points())
    sent = sharing.split(carried, ids, declared.purpose, helpers, rng).carried()
    shares = [
        sharing.recover(own, ids, declared.purpose, place, declared.carried())
        for place, own in enumerate(sent)
    ]
    return {
        "name": name,
        "labels": [len(space) for space in declared.labels] if isinstance(declared, Model) else None,
        "secret": numbers_of(carried[0, :count]),
        "proof": numbers_of(carried[0, count:]),
        "report_id": ids.tobytes().hex(),
        "check_key": CHECK_KEY.hex(),
        "t": str(t[0]),
        "shares": [numbers_of(share[0]) for share in shares],
        "numbers": [numbers_of(validity.evaluate(share, t, declared)[0]) for share in shares],
        "valid": valid,
    }
