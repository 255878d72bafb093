"""The gradient in reals: integers are close to what autograd gives, and keep the bound."""

import numpy as np
import pytest

from maskedlark.exact.clip import Clip, Norm
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy, SquaredError
from maskedlark.exact.operations import Activation
from maskedlark.exact.quantise import calibrate, quantise
from tests.unit.exact.models import MODULES, dense, exact_gradient, float_gradient, random_parameters

LOSSES = [BinaryCrossEntropy(), SquaredError(), SoftmaxCrossEntropy(3)]


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("activation", list(MODULES), ids=str)
def test_gradients_are_close_to_autograd(activation: Activation, loss: Loss) -> None:
    network = dense((6, 8, 7, loss.outputs), loss, activation=activation)
    parameters, rng = random_parameters(network, 2), np.random.default_rng(2)
    features = rng.integers(0, 256, (40, 6)).astype(np.uint8)
    labels = rng.integers(0, 2, 40)
    clip = Clip(8.0, fraction=12)
    wanted = float_gradient(network, parameters, features, labels, clip)
    activations = tuple(min(8, each) for each in calibrate(network, parameters, features))
    weights = quantise(network, parameters, activations, cap=7)
    integers = exact_gradient(network, weights, features, [labels], clip)
    rows = [
        float_gradient(network, parameters, features[i : i + 1], labels[i : i + 1], clip) for i in range(40)
    ]
    # Rows partly cancel in the sum, the rounding of their weights and activations does not.
    assert np.linalg.norm(integers - wanted) <= 0.03 * sum(np.linalg.norm(row) for row in rows)


@pytest.mark.parametrize("norm", list(Norm))
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_both_clip_to_the_same_bound(loss: Loss, norm: Norm) -> None:
    network = dense((6, 8, loss.outputs), loss)
    parameters, rng = random_parameters(network, 3), np.random.default_rng(3)
    features = rng.integers(0, 256, (1, 6)).astype(np.uint8)
    weights = quantise(network, parameters, calibrate(network, parameters, features))
    clip, order = Clip(0.05, norm), 1 if norm is Norm.L1 else 2
    for label in range(2):
        rows = [
            float_gradient(network, parameters, features, np.array([label]), clip),
            exact_gradient(network, weights, features, [np.array([label])], clip),
        ]
        lengths = [np.linalg.norm(row, order) for row in rows]
        assert lengths[1] <= 0.05 < 1.001 * lengths[0]
        assert lengths[1] >= 0.9 * lengths[0]


def test_a_batch_is_the_sum_of_its_records() -> None:
    network = dense((6, 8, 3), SoftmaxCrossEntropy(3))
    parameters, rng = random_parameters(network, 4), np.random.default_rng(4)
    features, labels = rng.integers(0, 256, (10, 6)).astype(np.uint8), rng.integers(0, 3, 10)
    weights, clip = quantise(network, parameters, calibrate(network, parameters, features)), Clip(1.0)
    whole = exact_gradient(network, weights, features, [labels], clip)
    rows = [
        exact_gradient(network, weights, features[i : i + 1], [labels[i : i + 1]], clip) for i in range(10)
    ]
    assert (whole == np.sum(rows, axis=0)).all()


def test_arrays_off_the_wire_are_read_only_and_do_as_well() -> None:
    network = dense((6, 8, 3), SoftmaxCrossEntropy(3))
    parameters, rng = random_parameters(network, 5), np.random.default_rng(5)
    features = np.frombuffer(rng.bytes(60), np.uint8).reshape(10, 6)
    labels = np.zeros(10, np.int64)
    for array in (labels, *parameters.values()):
        array.flags.writeable = False
    weights, clip = quantise(network, parameters, calibrate(network, parameters, features)), Clip(1.0)
    weights.values.flags.writeable = False
    assert exact_gradient(network, weights, features, [labels], clip).shape == (network.size,)
