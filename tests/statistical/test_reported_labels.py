"""A reported label is randomised response of a label that was quantised once, wherever reports are made.

Fixed seeds, so a pass is a pass for good; the stated rates are for a fresh choice of seed.
"""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from maskedlark.browser import reports
from maskedlark.browser.sources import Kind, Source
from maskedlark.browser.store import Scheduled
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import FixedRandomness
from maskedlark.simulate import Population
from maskedlark.wire import batch
from maskedlark.wire.hpke import OpeningKey
from tests.twins import local_dp as response_twin
from tests.twins import quantise as quantise_twin
from tests.unit.parameters.cases import make

TRUTH, EPSILON = 2, 3.0
BUCKETS = {"low": 0, "high": 10, "buckets": 4}
"""Boundaries at 0, 2.5, 5, 7.5 and 10: two of them are no integers."""
MODEL = {
    "tag": "basket",
    "columns": [{"kind": "bytes", "count": 1}],
    "labels": [{"kind": "reals", "value": "purchase", **BUCKETS}],
    "gradient_bound": 1.0,
    "randomised_response": {"epsilon": EPSILON},
}
DOCUMENT = make(models=[MODEL], decoys=[], fake_rate=0.0)
SPACE = DOCUMENT.trained("basket").labels[0].space()
DRAWS = {"browser": 20_000, "population": 60_000}
KEYS = tuple(OpeningKey.generate(FixedRandomness(bytes([place]))).sealing for place in range(2))
FALSE_ALARM = 1e-6
SIX_SIGMA = 6
"""Six standard deviations: one false alarm in 5 x 10^8."""


def by_browsers(count):
    """One source a browser, each with a purchase of the true value."""
    rng, digest = FixedRandomness(b"browsers"), DOCUMENT.digest
    scheduled = Scheduled(0, DOCUMENT.origin, digest, Purpose.TRAIN, "basket", 0, None)
    source = Source(
        0, DOCUMENT.origin, digest, Kind.CLICK, "shop.example", {}, {"basket": b"\0"}, 0, 1, 1,
        {"purchase": TRUTH},
    )  # fmt: skip
    return [reports.make(DOCUMENT, scheduled, source, KEYS, 0, rng) for _ in range(count)]


def by_a_population(count):
    made = Population(DOCUMENT, KEYS, 0, FixedRandomness(b"population"))
    chunks = made.train("basket", np.zeros((count, 1), np.uint8), [np.full(count, TRUTH)])
    return [each for chunk in chunks for each in chunk]


@pytest.fixture(scope="module", params=["browser", "population"])
def counts(request):
    """How often each label of the space was reported: what would be sealed, in the clear."""
    make_reports = by_browsers if request.param == "browser" else by_a_population
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "seal", lambda _envelope, _place, _shown, secrets, *_: list(secrets))
        return np.sum(make_reports(DRAWS[request.param]), axis=0).astype(np.float64)


def quantised():
    """The law of a label that was quantised once."""
    law = quantise_twin.distribution(Fraction(TRUTH), *BUCKETS.values())
    return np.array([float(law.get(value, 0)) for value in SPACE.values])


def reported():
    """The law of what randomised response makes of it."""
    places = [response_twin.response(place, len(SPACE), EPSILON) for place in range(len(SPACE))]
    return quantised() @ np.array(places, np.float64)


def test_its_law_is_randomised_response_of_one_quantisation(counts):
    assert stats.chisquare(counts, counts.sum() * reported()).pvalue > FALSE_ALARM


@pytest.mark.parametrize("power", [1, 2])
def test_estimates_are_unbiased(counts, power):
    """Of the mean, and of the mean square: like a gradient, it is not linear in the label."""
    response = DOCUMENT.trained("basket").randomised_response
    assert response is not None
    (a, b), values = response.unbiasing(SPACE), np.array(SPACE.values, np.float64) ** power
    records, expected = counts.sum(), quantised() @ values
    assert power == 2 or expected == pytest.approx(TRUTH)
    spread = np.sqrt(reported() @ values**2 - (reported() @ values) ** 2) / a / np.sqrt(records)
    assert abs((counts - b * records) / a @ values / records - expected) < SIX_SIGMA * spread
