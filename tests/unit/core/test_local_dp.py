import math
from decimal import Decimal, localcontext
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.core import local_dp
from maskedlark.core.labels import LabelSpace
from maskedlark.core.local_dp import FeatureNoise, RandomisedResponse
from maskedlark.errors import NotDeclared
from maskedlark.randomness import FixedRandomness, Randomness, SystemRandomness
from tests.twins import local_dp as twin

RNG = SystemRandomness()
WORDS = 1 << 64
NOISES = [(1.0, 1.0), (0.5, 255), (8.0, 255), (0.01, 255), (3.0, 2.5), (40.0, 1)]


class Rigged(Randomness):
    """Hands out the words that a test wrote down, and notices when they run out."""

    def __init__(self, *words):
        self.left = list(words)

    def bytes(self, count):
        taken, self.left = self.left[: count // 8], self.left[count // 8 :]
        assert len(taken) == count // 8
        return b"".join(word.to_bytes(8, "little") for word in taken)


@pytest.mark.parametrize("nonsense", [0, -1, math.nan, math.inf, -math.inf, 1e-7, 1e7, True, "1", None])
def test_an_epsilon_that_makes_no_sense_is_refused(nonsense):
    with pytest.raises(NotDeclared, match="epsilon is a number from"):
        FeatureNoise(nonsense, 1)
    with pytest.raises(NotDeclared, match="epsilon is a number from"):
        RandomisedResponse(nonsense)


@pytest.mark.parametrize("nonsense", [0, -1, 0.5, 256, math.nan, math.inf, True, "1", None])
def test_a_sensitivity_that_makes_no_sense_is_refused(nonsense):
    with pytest.raises(NotDeclared, match="declare 255 when in doubt"):
        FeatureNoise(1.0, nonsense)


@pytest.mark.parametrize("rows", [np.zeros((2, 3)), np.zeros(3, np.uint8), np.zeros((2, 3), np.int64)])
def test_only_rows_of_bytes_are_noised(rows):
    with pytest.raises(NotDeclared, match="rows of bytes"):
        local_dp.features(rows, FeatureNoise(1.0, local_dp.LARGEST), RNG)


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (1, 1), (7, 5)])
def test_shape_and_input_stay_as_they_are(shape):
    rows = np.full(shape, 9, np.uint8)
    noisy = local_dp.features(rows, FeatureNoise(0.1, local_dp.LARGEST), RNG)
    assert noisy.shape == shape
    assert noisy.dtype == np.uint8
    assert (rows == 9).all()


def test_rows_that_are_not_contiguous_are_noised_in_place():
    rows = np.arange(24, dtype=np.uint8).reshape(4, 6)
    noise = FeatureNoise(1.0, 8)
    turned = local_dp.features(rows.T, noise, FixedRandomness(b"t"))
    assert (turned == local_dp.features(rows.T.copy(), noise, FixedRandomness(b"t"))).all()


def test_many_features_are_noised_in_parts(monkeypatch):
    monkeypatch.setattr(local_dp, "_AT_ONCE", 7)
    noisy = local_dp.features(np.full((9, 5), 128, np.uint8), FeatureNoise(1.0, 50), FixedRandomness(b"p"))
    assert noisy.shape == (9, 5)
    assert len(np.unique(noisy)) > 20  # a part that was left out, or noised alike, would repeat itself


@pytest.mark.parametrize(("epsilon", "sensitivity"), NOISES)
@pytest.mark.parametrize("truth", [0, 1, 100, 255])
def test_every_outcome_starts_and_ends_where_the_twin_says(epsilon, sensitivity, truth):
    """The distribution to 63 bits, without a single random draw."""
    noise = FeatureNoise(epsilon, sensitivity)
    for output, upto in enumerate(accumulate(twin.byte(truth, epsilon, sensitivity)[:-1])):
        cut = int(upto * WORDS)
        if not 2 <= cut < WORDS - 2:
            continue
        rng = Rigged(cut - 1, cut + 1)
        ends = local_dp.features(np.full((2, 1), truth, np.uint8), noise, rng).reshape(-1)
        assert ends[0] <= output < ends[1]


def test_a_word_that_decides_nothing_is_settled_by_the_next():
    """The first 64 bits of P(noise <= -1) = e^(-1/2) / 2, and then bits below and above its own."""
    with localcontext(prec=80):
        first, rest = divmod(int(twin.exponential(Decimal("-0.5")) / 2 * WORDS * WORDS), WORDS)
    for second, expected in ((rest - 1, 99), (rest + 1, 100)):
        rng = Rigged(first, second)
        assert local_dp.features(np.array([[100]], np.uint8), FeatureNoise(1.0, 1), rng)[0, 0] == expected
        assert not rng.left


@pytest.mark.parametrize("truth", [0, 255])
def test_the_far_tail_is_reached(truth):
    """255 scales out, P = 2^-368: no inverse CDF of a 53-bit uniform gets past 36.7 scales."""
    word = (WORDS - 1) * (truth == 0)
    rng = Rigged(*[word] * 7)
    far = local_dp.features(np.array([[truth]], np.uint8), FeatureNoise(1.0, 1), rng)
    assert far[0, 0] == 255 - truth
    assert len(rng.left) == 1  # five words, 320 bits, are still undecided; six are enough


@pytest.mark.parametrize("truth", [0, 255])
def test_just_short_of_the_far_tail_another_byte_comes(truth):
    words = [0] * 4 + [1 << 60] if truth else [WORDS - 1] * 4 + [WORDS - 1 - (1 << 60)]
    near = local_dp.features(np.array([[truth]], np.uint8), FeatureNoise(1.0, 1), Rigged(*words))
    assert 0 < near[0, 0] < 255


@pytest.mark.parametrize(("epsilon", "sensitivity"), NOISES[:4])
@pytest.mark.parametrize("lower", [0, 1, 100, 254])
def test_the_exact_distribution_is_private(lower, epsilon, sensitivity):
    """Every output's likelihood ratio, in the twin: at most e^ε a change of Δ, and not far below it."""
    upper = min(255, lower + int(sensitivity))
    a, b = twin.byte(lower, epsilon, sensitivity), twin.byte(upper, epsilon, sensitivity)
    assert abs(sum(a, Decimal(-1))) < Decimal("1e-25")
    with localcontext(prec=160):
        bound = Decimal(epsilon) * (upper - lower) / Decimal(sensitivity)
        worst = max(abs((x / y).ln()) for x, y in zip(a, b, strict=True))
        assert bound * Decimal("0.99") <= worst <= bound + Decimal("1e-40")


def test_the_same_draws_move_every_byte_alike():
    noise = FeatureNoise(1.0, 4)
    low, high = (
        local_dp.features(np.full((50, 8), byte, np.uint8), noise, FixedRandomness(b"same"))
        for byte in (100, 140)
    )
    assert (high - low == 40).all()


@settings(deadline=None)
@given(st.integers(2, 40), st.sampled_from([1e-6, 0.1, 1.0, 5.0, 30.0, 800.0, 1e6]))
def test_unbiasing_is_the_mean_of_the_twin(size, epsilon):
    a, b = RandomisedResponse(epsilon).unbiasing(LabelSpace.categorical(size))
    if epsilon <= 30:
        exact = twin.response(0, size, epsilon)
        assert a + b == pytest.approx(float(exact[0]), rel=1e-12)
        assert b == pytest.approx(float(exact[1]), rel=1e-12)
    assert a + size * b == pytest.approx(1, rel=1e-12)
    assert a > 0


@pytest.mark.parametrize(("epsilon", "size"), [(1.0, 2), (0.1, 5), (8.0, 100)])
def test_a_label_gives_way_as_often_as_the_twin_says(epsilon, size):
    """P(replaced by one of all k) = k times the probability of each other label."""
    space = LabelSpace.categorical(size)
    cut = int(size * twin.response(0, size, epsilon)[1] * WORDS)
    rng = Rigged(cut - 1, cut + 1, 1, 1)  # two decisions, then the label 1 for whoever gives way
    assert local_dp.labels([0, 0], space, RandomisedResponse(epsilon), rng).tolist() == [1, 0]


def test_labels_stay_in_their_space_and_strangers_are_refused():
    space = LabelSpace((-7, 0, 3, 1000))
    drawn = local_dp.labels(np.tile([-7, 0, 3, 1000], 200), space, RandomisedResponse(0.1), RNG)
    assert set(drawn.tolist()) == set(space.values)
    with pytest.raises(NotDeclared, match="not in its label space"):
        local_dp.labels([1], space, RandomisedResponse(1.0), RNG)
    with pytest.raises(NotDeclared, match="whole number"):
        local_dp.labels([0.5], space, RandomisedResponse(1.0), RNG)
    assert local_dp.labels([], space, RandomisedResponse(1.0), RNG).shape == (0,)


def test_a_large_epsilon_keeps_every_label_and_byte():
    space = LabelSpace.binary()
    assert local_dp.labels([0, 1] * 50, space, RandomisedResponse(1e6), RNG).tolist() == [0, 1] * 50
    rows = np.arange(256, dtype=np.uint8).reshape(16, 16)
    assert (local_dp.features(rows, FeatureNoise(1e6, 1), RNG) == rows).all()


def test_the_randomness_used_does_not_depend_on_the_labels():
    space, draws = LabelSpace.categorical(5), []
    for label in (0, 4):
        rng = FixedRandomness(b"count")
        local_dp.labels([label] * 100, space, RandomisedResponse(1.0), rng)
        draws.append(rng.bytes(8))
    assert draws[0] == draws[1]


def test_the_guarantee_is_for_the_whole_record():
    noise, response = FeatureNoise(0.5, 51), RandomisedResponse(2.0)
    stated = local_dp.guarantee(10, noise, [response, RandomisedResponse(1.0)])
    assert (stated.features, stated.any_features, stated.labels) == (5.0, 25.0, 3.0)
    assert stated.total == 8.0


def test_a_part_without_noise_is_promised_nothing():
    assert local_dp.guarantee(1, None, [RandomisedResponse(1.0)]).total == math.inf
    assert local_dp.guarantee(3, FeatureNoise(1.0, local_dp.LARGEST), [None]).total == math.inf
    assert local_dp.guarantee(0, None, [RandomisedResponse(1.0)]).total == 1.0
    with pytest.raises(NotDeclared, match="0 features or more"):
        local_dp.guarantee(-1)
