"""The fast gradient of known labels against the engine's, bit for bit."""

import numpy as np
import pytest

from experiments import clear
from maskedlark.core import field
from maskedlark.exact.clip import Clip
from maskedlark.exact.gradient import GradientEngine, Records, gradient
from maskedlark.exact.layout import step_layout
from maskedlark.exact.losses import BinaryCrossEntropy, SoftmaxCrossEntropy
from maskedlark.exact.quantise import calibrate, quantise
from tests.unit.exact.models import dense, random_parameters


def both(sizes, psi, fraction, records, seed):
    outputs = sizes[-1]
    network = dense(sizes, BinaryCrossEntropy() if outputs == 1 else SoftmaxCrossEntropy(outputs))
    rng = np.random.default_rng(seed)
    parameters = random_parameters(network, seed)
    x = rng.integers(0, 256, (records, sizes[0]), dtype=np.uint8)
    y = rng.integers(0, max(2, outputs), (records, 1))
    weights, clip = (
        quantise(network, parameters, calibrate(network, parameters, x)),
        Clip(psi, fraction=fraction),
    )
    own = Records(x, [y], np.ones_like(y))
    fast = clear.total(step_layout(network, weights, clip), own)
    return fast, field.to_signed(gradient(network, weights, own, clip))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sizes", [(7, 6, 5, 1), (12, 9, 4), (400, 200, 10), (5, 3), (6, 5, 4, 3)])
def test_known_labels_give_the_engines_integers(sizes, seed):
    fast, engine = both(sizes, (0.05, 1.0, 10.0, 100.0)[seed], 20, 30, seed)
    assert np.array_equal(fast, engine)
    assert np.any(fast)


class Asked(GradientEngine):
    """Counts the batches that go the engine's way."""

    seen: list[int] = []  # noqa: RUF012 - a test's own, emptied by it

    def share(self, records, block=None):
        self.seen.append(len(records))
        return super().share(records, block)


@pytest.mark.parametrize("mask", [0, 2])
def test_masks_that_are_not_all_1_go_the_engines_way(monkeypatch, mask):
    monkeypatch.setattr(clear, "GradientEngine", Asked)
    Asked.seen.clear()
    network = dense((6, 5, 3), SoftmaxCrossEntropy(3))
    rng, parameters = np.random.default_rng(0), random_parameters(network, 0)
    x, y = rng.integers(0, 256, (8, 6), dtype=np.uint8), rng.integers(0, 3, (8, 1))
    weights = quantise(network, parameters, calibrate(network, parameters, x))
    masks = np.ones_like(y)
    masks[3] = mask
    own = Records(x, [y], masks)
    fast = clear.total(step_layout(network, weights, Clip(1.0)), own)
    assert Asked.seen == [8]
    assert np.array_equal(fast, field.to_signed(gradient(network, weights, own, Clip(1.0))))


def test_what_is_too_long_for_one_product_goes_the_engines_way(monkeypatch):
    monkeypatch.setattr(clear, "_EXACT", 1 << 30)
    monkeypatch.setattr(clear, "GradientEngine", Asked)
    Asked.seen.clear()
    fast, engine = both((12, 9, 4), 100.0, 20, 30, 0)
    assert Asked.seen == [30]
    assert np.array_equal(fast, engine)
