"""A run over labels that browsers randomised: `param.grad` is unbiased, and nothing is charged."""

import math

import numpy as np
import pytest

from maskedlark.errors import BadArguments
from tests.unit.training import cases
from tests.unit.training.cases import FEATURES, TAG

CERTAIN = 100.0
"""So large an ε leaves every label as it was."""
X, Y = cases.table()


def document(epsilon, **changes):
    local = {
        "feature_noise": {"epsilon": 4.0, "sensitivity": 255.0},
        "randomised_response": {"epsilon": epsilon},
    }
    declared = {
        "tag": TAG,
        "columns": [{"kind": "bytes", "count": FEATURES}],
        "labels": [{"kind": "binary"}],
        "gradient_bound": 1.0,
    }
    return cases.document(3, models=[declared | local | changes])


def run(found, labels):
    net, home = cases.model(), cases.in_memory(found, TAG, X, [labels])
    return net, cases.run(home, net, sampling="whole", steps=1, noise=None)


def gradient(epsilon, labels):
    net, training = run(document(epsilon), labels)
    for step in training:
        step.backward()
    return cases.gradient(net).astype(np.float64)


def test_the_gradient_is_unbiased_in_closed_form():
    plain, zeros, ones = (gradient(CERTAIN, each) for each in (Y, np.zeros_like(Y), np.ones_like(Y)))
    a, b = math.tanh(0.5), 1 / (1 + math.e)
    wanted = (plain - b * (zeros + ones)) / a
    assert np.abs(gradient(1.0, Y) - wanted).max() < 1e-4 * np.abs(wanted).max()
    # It is another one than that of the labels as they came.
    assert np.abs(plain - wanted).max() > 0.05 * np.abs(wanted).max()


def test_nothing_is_charged():
    _, training = run(document(1.0), Y)
    # Undoing the response makes numbers so much longer that with 20 bits they could leave the field.
    assert training.plan().precision.clip.fraction == 16
    assert training.plan().session_charge is None
    assert training.plan().epsilon == training.plan().coalition_epsilon == 0


def test_with_true_features_or_labels_noise_is_needed():
    for lacking in ("feature_noise", "randomised_response"):
        with pytest.raises(BadArguments, match="noise"):
            run(document(1.0, **{lacking: None}), Y)
