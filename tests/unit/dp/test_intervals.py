import math
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from maskedlark.dp import intervals, mechanisms
from maskedlark.dp.gaussian import Gaussian
from maskedlark.dp.mechanisms import Sensitivity
from maskedlark.errors import NotDeclared

ONE = Sensitivity(1, 1.0)
CONFIDENCES = [0.5, 0.9, 0.95, 0.999, 1 - 1e-12]


def rounded_sum(kind, scale, helpers):
    """P(a sum of so many rounded draws is n), n = -m … m, from scipy's distributions."""
    law = stats.laplace(scale=scale) if kind == "laplace" else stats.norm(scale=scale)
    n = np.arange(math.ceil(45 * scale) + 1)
    side = law.sf(n - 0.5) - law.sf(n + 0.5)
    side[0] = 1 - 2 * law.sf(0.5)
    return reduce(np.convolve, [np.concatenate([side[:0:-1], side])] * helpers)


def doubt_of(total, half_width):
    """P(|sum| > half_width)."""
    middle, width = len(total) // 2, int(half_width)
    return 2 * math.fsum(total[middle + width + 1 :])


@pytest.mark.parametrize("helpers", [1, 2, 5])
@pytest.mark.parametrize("scale", [0.05, 0.5, 1.0, 6.0, 25.0])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_interval_holds_the_sum_as_often_as_it_says_and_is_hardly_wider(kind, scale, helpers):
    total = rounded_sum(kind, scale, helpers)
    for confidence in CONFIDENCES:
        found = intervals.half_width(kind, scale, ONE, helpers, confidence)
        assert doubt_of(total, found) <= (1 - confidence) * (1 + 1e-9)
        # Where the law is summed up it is the least; above, rounding takes half a unit a helper and a unit.
        spare = 1 if mechanisms.deviation(kind, scale, ONE) <= 10 else helpers / 2 + 2
        if found >= spare:
            assert doubt_of(total, found - spare) > (1 - confidence) * (1 - 1e-9)


@pytest.mark.parametrize("helpers", [1, 2, 3, 7])
def test_the_tail_of_a_sum_of_laplace_variables_is_its_integral(helpers):
    def density(t, k):
        """Of the sum of k: the inverse of its characteristic function (1 + w²)^-k."""
        return integrate.quad(lambda w: math.cos(w * t) / (1 + w * w) ** k / math.pi, 0, 200, limit=2000)[0]

    if helpers == 1:
        assert intervals._laplace_tail(1, 2.0) == pytest.approx(math.exp(-2) / 2)
        return
    for t in (0.0, 1.0, 4.0):
        beyond = integrate.quad(lambda x: density(x, helpers), 0, t, limit=200)[0] if t else 0.0
        assert intervals._laplace_tail(helpers, t) == pytest.approx(0.5 - beyond, abs=1e-6)


def test_a_sum_of_laplace_variables_is_not_taken_for_normal():
    scale = 1000.0
    found = intervals.half_width("laplace", scale, ONE, 2, 0.9999)
    normal = stats.norm.isf(0.00005) * intervals.standard_error("laplace", scale, ONE, 2)
    assert found > 1.3 * normal


def test_one_laplace_variable_has_its_closed_form():
    for confidence in CONFIDENCES:
        exact = -1e6 * math.log(1 - confidence)
        assert 0 <= intervals.half_width("laplace", 1e6, ONE, 1, confidence) - exact + 1 < 2


def test_coarse_gaussian_noise_counts_its_uniform_bits():
    sensitivity = Sensitivity(1 << 45, 2.0**45, 100)
    law = mechanisms.law("gaussian", 1.0, sensitivity)
    assert isinstance(law, Gaussian)
    found = intervals.half_width("gaussian", 1.0, sensitivity, 4, 0.95)
    exact = 2 * law.sigma * stats.norm.isf(0.025)
    assert exact < found < exact * (1 + 1e-6)


def test_the_standard_error_grows_with_the_root_of_the_helpers():
    one = mechanisms.deviation("laplace", 3.0, ONE)
    assert intervals.standard_error("laplace", 3.0, ONE, 1) == one
    assert intervals.standard_error("laplace", 3.0, ONE, 9) == pytest.approx(3 * one)


@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from(["laplace", "gaussian"]),
    st.floats(0.01, 1e6),
    st.integers(1, 8),
    st.floats(0.01, 0.999),
    st.floats(1e-4, 0.9),
)
def test_more_confidence_and_more_helpers_make_it_no_narrower(kind, noise, helpers, confidence, more):
    found = intervals.half_width(kind, noise, ONE, helpers, confidence)
    assert intervals.half_width(kind, noise, ONE, helpers, confidence + (1 - confidence) * more) >= found
    assert intervals.half_width(kind, noise, ONE, helpers + 1, confidence) >= found


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5, 2.0, math.nan, 1 - 1e-15])
def test_senseless_confidences_are_refused(confidence):
    with pytest.raises(NotDeclared):
        intervals.half_width("laplace", 1.0, ONE, 2, confidence)


def test_noise_of_nobody_is_refused():
    with pytest.raises(NotDeclared):
        intervals.half_width("laplace", 1.0, ONE, 0, 0.95)
    with pytest.raises(NotDeclared):
        intervals.standard_error("laplace", 1.0, ONE, 0)
