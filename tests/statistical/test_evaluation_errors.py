"""Error bars of measures are as wide as the noise of all helpers makes them: not wider, not narrower.

Fixed seeds, so a pass is a pass for good; the stated rates are for a fresh choice of seed.
"""

import hashlib
from math import sqrt

import numpy as np
import pytest
from scipy import stats

from maskedlark.dp import intervals, mechanisms
from maskedlark.dp.mechanisms import Sensitivity
from maskedlark.training.metrics import Binary, Classes, Values

DRAWS = 300
FALSE_ALARM = 1e-6
"""For each measure below."""
SENSITIVITY = Sensitivity(2, sqrt(2), touched=2)
RNG = np.random.default_rng(11)


def noisy(counts, kind, helpers, number):
    total = counts
    for helper in range(helpers):
        seed = hashlib.sha256(b"%d %d" % (helper, number)).digest()
        total = total + mechanisms.draw(kind, 3.0, SENSITIVITY, seed, counts.size).reshape(counts.shape)
    return total


def check(make, counts, kind, helpers, measures):
    """Noise-free values are the truth; errors are as large as each histogram says of itself."""
    deviation = intervals.standard_error(kind, 3.0, SENSITIVITY, helpers)
    truth = [measure(make(counts, 0.0)).value for measure in measures]
    off = np.empty((len(measures), DRAWS))
    for number in range(DRAWS):
        found = make(noisy(counts, kind, helpers, number), deviation)
        for place, measure in enumerate(measures):
            said = measure(found)
            off[place, number] = (said.value - truth[place]) / said.error
    for each in off:
        spread = float((each**2).sum())
        # A sum of squares of normals; Laplace noise and curvature leave it a little wider than that.
        assert stats.chi2.sf(spread / 1.15, DRAWS) > FALSE_ALARM
        assert stats.chi2.cdf(spread * 1.15, DRAWS) > FALSE_ALARM
        assert abs(each.mean()) < 5.2 / sqrt(DRAWS)


@pytest.mark.parametrize(("kind", "helpers"), [("gaussian", 2), ("gaussian", 3), ("laplace", 2)])
def test_binary(kind, helpers):
    scores = RNG.beta(2, 3, 4000)
    counts = np.zeros((20, 2), np.int64)
    np.add.at(counts, ((scores * 20).astype(int), (RNG.random(4000) < scores).astype(int)), 1)
    measures = [
        lambda each: each.auc,
        lambda each: each.log_loss,
        lambda each: each.accuracy,
        lambda each: each.records,
        lambda each: next(found for middle, found in each.calibration() if middle > 0.25),
    ]
    edges = np.linspace(0, 1, 21)
    check(lambda counts, deviation: Binary(counts, deviation, edges), counts, kind, helpers, measures)


def test_classes_and_values():
    check(Classes, RNG.integers(50, 400, (4, 4)), "gaussian", 3, [lambda each: each.accuracy])

    def values(counts, deviation):
        return Values(counts, deviation, np.linspace(-2, 2, 11), np.arange(-2.0, 3.0))

    measures = [lambda each: each.squared_error, lambda each: each.bias]
    check(values, RNG.integers(50, 400, (10, 5)), "gaussian", 3, measures)
