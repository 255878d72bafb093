"""Section 4.2.3: weights that fire on one record alone read its label from a noiseless sum, not from ours.

Hundreds of targets in one step. A figure fails its test beyond 5 standard deviations of what chance allows:
one false alarm in 3.5 million. All seeds are fixed.
"""

import numpy as np
import pytest

from maskedlark.audit import crafted_weights
from maskedlark.audit.attacks import advantage
from maskedlark.audit.canaries import max_advantage
from maskedlark.core import local_dp
from maskedlark.core.labels import LabelSpace
from maskedlark.dp.calibration import noise_for_session
from maskedlark.dp.sampling import Sampling
from maskedlark.dp.session_charge import adserver_epsilon
from maskedlark.randomness import FixedRandomness
from tests.statistical.training_in_memory import DELTA, document, helpers_in_memory

RECORDS, FEATURES, TARGETS = 2000, 64, 600
EPSILON, STEPS = 1.0, 4
DEVIATIONS = 5
RNG = FixedRandomness(b"crafted weights")
ROWS = np.frombuffer(RNG.bytes(RECORDS * FEATURES), np.uint8).reshape(RECORDS, FEATURES)
LABELS = RNG.below(2, RECORDS)
TRUTH = LABELS[:TARGETS] == 1


def attack(crafted, gradient):
    assert crafted.alone.all()
    return advantage(crafted.scores(gradient) > 0, TRUTH)


@pytest.fixture
def world(tmp_path):
    with helpers_in_memory(
        tmp_path, document(FEATURES, 1.0), ROWS, LABELS, FixedRandomness(b"shares")
    ) as made:
        yield made


@pytest.mark.parametrize("bits", [8, 16])
def test_every_label_is_read_from_a_noiseless_sum(world, bits):
    crafted = crafted_weights.craft(ROWS, np.arange(TARGETS), bits)
    assert attack(crafted, world.noiseless(crafted.weights, crafted.network)).value == 1


def test_noise_on_features_hides_no_label(tmp_path):
    """The paper's variant: features are noised in the browser, and the sum is not noised at all."""
    noise = local_dp.FeatureNoise(8.0, local_dp.LARGEST)
    noised = local_dp.features(ROWS, noise, FixedRandomness(b"feature noise"))
    with helpers_in_memory(
        tmp_path, document(FEATURES, 1.0), noised, LABELS, FixedRandomness(b"shares")
    ) as made:
        crafted = crafted_weights.craft(ROWS, np.arange(TARGETS))
        found = attack(crafted, made.noiseless(crafted.weights, crafted.network))
    print("noisy features", found)
    assert found.value > 0.95


def test_labels_that_browsers_randomised_are_read_as_they_were_sent(tmp_path):
    """Where helpers may skip their noise, a label is as private as randomised response made it."""
    response = local_dp.RandomisedResponse(EPSILON)
    sent = local_dp.labels(LABELS, LabelSpace.binary(), response, FixedRandomness(b"response"))
    with helpers_in_memory(tmp_path, document(FEATURES, 1.0), ROWS, sent, FixedRandomness(b"shares")) as made:
        crafted = crafted_weights.craft(ROWS, np.arange(TARGETS))
        gradient = made.noiseless(crafted.weights, crafted.network)
    assert ((crafted.scores(gradient) > 0) == (sent[:TARGETS] == 1)).all()
    allowed = np.tanh(EPSILON / 2)
    found = attack(crafted, gradient)
    assert abs(found.value - allowed) < DEVIATIONS * found.error


@pytest.mark.parametrize("collude", [False, True], ids=["alone", "with all helpers but one"])
def test_a_session_gives_no_more_than_its_noise_allows(world, collude):
    """All steps of a session go at the same targets, whole batches: the most that ε = 1 allows anybody."""
    noise = noise_for_session("gaussian", 1.0, STEPS, DELTA, EPSILON, EPSILON)
    crafted = crafted_weights.craft(ROWS, np.arange(TARGETS))
    world.begin(crafted.network, Sampling(kind="whole"), STEPS, noise)
    gradients = np.array([world.step(crafted.weights) for _ in range(STEPS)])
    if collude:
        gradients -= world.noise_of(1)
    found, allowed = attack(crafted, gradients.sum(axis=0)), max_advantage(noise, 1.0, STEPS)
    epsilon = adserver_epsilon(world.opened.session_charge)
    print("noise", noise, "ε", epsilon, "found", found, "allowed", allowed)
    assert epsilon <= EPSILON
    assert allowed < 0.15
    assert found.value <= allowed + DEVIATIONS * found.error
    assert found.value < 0.5
