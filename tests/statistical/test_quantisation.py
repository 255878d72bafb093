"""Quantisation keeps the mean and has the twin's exact distribution. False alarms: see each bound."""

import math
from fractions import Fraction

import numpy as np
import pytest

from maskedlark.core.labels import LabelSpace
from maskedlark.randomness import FixedRandomness
from tests.twins import quantise as twin

DRAWS = 200_000


@pytest.mark.parametrize(("low", "high", "buckets"), [(0, 10, 4), (-3, 9, 8), (0, 1, 1), (0, 1000, 3)])
@pytest.mark.parametrize("place", [0.0, 0.11, 0.5, 0.73, 1.0])
def test_the_mean_and_every_probability_are_kept(low, high, buckets, place):
    label = low + place * (high - low)
    rng = FixedRandomness(f"{low} {high} {buckets} {place}".encode())
    drawn = LabelSpace.reals(low, high, buckets).quantise(np.full(DRAWS, label), rng)
    expected = twin.distribution(Fraction(label), low, high, buckets)
    spread = math.sqrt(sum(p * (n - Fraction(label)) ** 2 for n, p in expected.items()))
    # Six standard deviations: one false alarm in 5 x 10^8.
    assert abs(drawn.mean() - label) <= 6 * spread / np.sqrt(DRAWS) + 1e-12
    for integer, probability in expected.items():
        error = 6 * np.sqrt(float(probability * (1 - probability)) / DRAWS) + 1e-12
        assert abs((drawn == integer).mean() - float(probability)) <= error
    assert set(drawn.tolist()) <= set(expected)
