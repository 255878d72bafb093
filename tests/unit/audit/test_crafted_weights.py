"""Crafted weights on cleartext sums: each target's own number, whatever features are like."""

import numpy as np
import pytest

from maskedlark.audit import crafted_weights
from maskedlark.exact.clip import Clip
from maskedlark.exact.layout import step_layout
from maskedlark.functions import weights
from maskedlark.randomness import FixedRandomness
from tests.unit.exact.models import exact_gradient

RECORDS = 300
TARGETS = np.array([3, 7, 8, 120, 299])
LABELS = FixedRandomness(b"labels").below(2, RECORDS)


def rows(kind):
    drawn = np.frombuffer(FixedRandomness(b"rows").bytes(RECORDS * 48), np.uint8).reshape(RECORDS, 48)
    return {"bytes": drawn, "bits": (drawn & 1) * np.uint8(255), "small": drawn % 5, "skewed": drawn >> 6}[
        kind
    ]


def attack(features, labels, bits=8):
    crafted = crafted_weights.craft(features, TARGETS, bits)
    gradient = exact_gradient(crafted.network, crafted.weights, features, [labels], Clip(0.25))
    return crafted, gradient


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("kind", ["bytes", "bits", "small", "skewed"])
def test_each_targets_number_is_its_label_alone(kind, bits):
    crafted, gradient = attack(rows(kind), LABELS, bits)
    assert crafted.alone.all()
    assert ((crafted.scores(gradient) > 0) == (LABELS[TARGETS] == 1)).all()
    # All of the bound, so nobody could do better against noise; and nothing but the targets' own.
    assert np.abs(crafted.scores(gradient)) == pytest.approx(0.25, rel=1e-2)
    others = LABELS.copy()
    others[np.setdiff1d(np.arange(RECORDS), TARGETS)] ^= 1
    assert (attack(rows(kind), others, bits)[1] == gradient).all()


def test_helpers_take_the_weights():
    crafted = crafted_weights.craft(rows("bytes"), TARGETS)
    taken = weights.decode(crafted.network, weights.encode(crafted.weights))
    step_layout(crafted.network, taken, Clip(0.25)).check_range(RECORDS)


def test_a_twin_cannot_be_told_from_its_twin():
    features = rows("bytes").copy()
    features[120] = features[50]
    assert crafted_weights.craft(features, TARGETS).alone.tolist() == [True, True, True, False, True]
