import hashlib
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given
from hypothesis import strategies as st

from maskedlark.core import field
from maskedlark.dp import gaussian, intervals, laplace, mechanisms
from maskedlark.dp.gaussian import Gaussian
from maskedlark.dp.laplace import Laplace
from maskedlark.dp.mechanisms import Kind, Sensitivity
from maskedlark.errors import FieldOverflow, NotDeclared

SEED = bytes(range(32))
ONE = Sensitivity(1, 1.0)
KINDS = ("laplace", "gaussian")
PINNED = [-126, -73, -73, -74, -28, -18]


def seeds_with_one_bit_changed():
    whole = int.from_bytes(SEED, "big")
    return [(whole ^ (1 << bit)).to_bytes(32, "big") for bit in range(256)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_draws_the_same_noise_and_every_bit_of_it_counts(kind):
    drawn = [mechanisms.draw(kind, 1e6, ONE, seed, 8) for seed in [SEED, *seeds_with_one_bit_changed()]]
    assert np.array_equal(drawn[0], mechanisms.draw(kind, 1e6, ONE, SEED, 8))
    assert len({noise.tobytes() for noise in drawn}) == 257


def test_laplace_draws_are_these_on_every_platform():
    drawn = mechanisms.draw("laplace", 10.0, Sensitivity(7, 7.0), SEED, 6)
    assert drawn.tolist() == PINNED


def test_the_words_are_chacha20_under_a_key_of_256_bits():
    bits = mechanisms._bits("laplace", 2.0, ONE, SEED, 5)
    named = f"laplace {(2.0).hex()} 1 {(1.0).hex()} 1 5".encode()
    key = hashlib.sha256(b"maskedlark v2 noise key" + SEED + named).digest()
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8 * 1000))
    assert bits.random_raw(1000).astype("<u8").tobytes() == stream


def test_no_two_arguments_share_their_noise():
    # Scaled noise under one seed would cancel from a difference of answers.
    asked: list[tuple[Kind, float, Sensitivity]] = [
        ("laplace", 4.0, Sensitivity(100, 100.0)),
        ("laplace", 8.0, Sensitivity(100, 100.0)),
        ("laplace", 4.0, Sensitivity(200, 100.0)),
        ("gaussian", 4.0, Sensitivity(100, 100.0)),
        ("gaussian", 8.0, Sensitivity(100, 100.0)),
        ("gaussian", 4.0, Sensitivity(100, 50.0)),
    ]
    drawn = [mechanisms.draw(*arguments, SEED, 4000).astype(float) for arguments in asked]
    correlation = np.corrcoef(drawn) - np.eye(len(asked))
    assert abs(correlation).max() < 6 / math.sqrt(4000)
    assert len(mechanisms.draw("laplace", 1.0, ONE, SEED, 0)) == 0


def rounded_laplace(n, scale):
    """P(a Laplace variable rounds to n), by the definition."""
    with mpmath.workdps(60):
        below = [mpmath.exp(-(abs(n) + half) / mpmath.mpf(scale)) / 2 for half in (-0.5, 0.5)]
        return 1 - 2 * below[1] if n == 0 else below[0] - below[1]


def by_coins(n, noise, l1):
    """P(our coins show n), as a fraction: nothing is rounded."""
    other_than_zero, digits = laplace._coins(noise, l1)
    chance = Fraction(other_than_zero, 1 << 64)
    if n == 0:
        return 1 - chance
    chance /= 2
    for place, digit in enumerate(digits):
        one = Fraction(digit, 1 << 64)
        chance *= one if (abs(n) - 1) >> place & 1 else 1 - one
    return chance if (abs(n) - 1) >> len(digits) == 0 else Fraction(0)


@pytest.mark.parametrize(("noise", "l1"), [(0.5, 1), (1.0, 3), (0.1, 17), (4.0, 10)])
def test_the_coins_are_within_2_to_the_minus_58_of_a_rounded_laplace_variable(noise, l1):
    with mpmath.workdps(60):
        scale = mpmath.mpf(noise) * l1
        far = 1 << len(laplace._coins(noise, l1)[1])
        apart = mpmath.mpf(0)
        for n in range(far + 1):
            coins = by_coins(n, noise, l1)
            exact = rounded_laplace(n, scale)
            apart += (1 if n == 0 else 2) * abs(mpmath.mpf(coins.numerator) / coins.denominator - exact) / 2
        assert apart + mpmath.exp(-(far + 0.5) / scale) < mpmath.mpf(2) ** -58


class Scripted:
    """A generator that gives what it was told, in order."""

    def __init__(self, *words):
        self._words = [np.array(part, np.uint64) for part in words]

    def random_raw(self, count):
        part = self._words.pop(0)
        assert len(part) == count
        return part


def test_a_coin_whose_first_bits_are_those_of_its_chance_is_settled_by_the_rest():
    chance = 0x1234_8000_0000_0001
    first = 0x1235_1234_1234_1233_1234  # 16 bits each, the last one first; a word holds four
    rest = [0x8000_0000_0000_FFFF, 0x8000_0000_0001_0000, 0x8000_0000_0002_0000]
    scripted = Scripted([first & (2**64 - 1), first >> 64], rest)
    coins = laplace._toss(scripted, chance, 5)  # type: ignore[arg-type]
    assert coins.tolist() == [1, 1, 0, 0, 0]


def test_two_geometric_variables_would_leak_more_than_the_accountant_says_and_rounded_laplace_does_not():
    # Kullback-Leibler divergence of a sensitivity of 1, against that of the continuous mechanism.
    for rate in (0.1, 1.0, 3.0):
        continuous = rate + math.expm1(-rate)
        q = math.exp(-rate)
        geometric = {n: (1 - q) / (1 + q) * q ** abs(n) for n in range(-300, 301)}
        rounded = {n: float(rounded_laplace(n, 1 / rate)) for n in range(-300, 301)}
        assert divergence(geometric) > continuous * 1.01
        assert divergence(rounded) <= continuous


def divergence(law):
    return math.fsum(law[n] * math.log(law[n] / law[n + 1]) for n in range(-200, 200))


@pytest.mark.parametrize("noise", [1e-3, 0.3, 1.0, 20.0])
def test_deviations_are_those_of_the_rounded_law(noise):
    far = range(1, 50 * math.ceil(noise) + 50)
    squares = math.fsum(2 * n * n * float(rounded_laplace(n, noise)) for n in far)
    assert mechanisms.deviation("laplace", noise, ONE) == pytest.approx(math.sqrt(squares), rel=1e-9)
    root = noise * math.sqrt(2)
    beyond = [math.erfc((n - 0.5) / root) - math.erfc((n + 0.5) / root) for n in far]
    squares = math.fsum(n * n * chance for n, chance in zip(far, beyond, strict=True))
    assert mechanisms.deviation("gaussian", noise, ONE) == pytest.approx(math.sqrt(squares), rel=1e-9)


def test_the_scale_is_the_multiplier_times_the_sensitivity():
    sensitivity = Sensitivity(6, 2.0, 3)
    sharp, wide = mechanisms.law("laplace", 1.5, sensitivity), mechanisms.law("gaussian", 1.5, sensitivity)
    assert isinstance(sharp, Laplace)
    assert isinstance(wide, Gaussian)
    assert (sharp.scale, wide.sigma) == (9, 3)


@pytest.mark.parametrize("touched", [1, 10_000])
@pytest.mark.parametrize("power", [31, 40, 50])
def test_coarse_gaussian_noise_covers_the_enlarged_sensitivity_with_the_fewest_bits(power, touched):
    found = gaussian.covering(2.0, 2.0**power, touched)
    assert found.coarse > 0
    assert found.sigma == 2.0 * (2.0**power + 2 * math.sqrt(touched) * 2**found.coarse)
    assert found.sigma <= 2.0 ** (gaussian.FINE_BITS + found.coarse)
    before = 2.0 * (2.0**power + 2 * math.sqrt(touched) * 2 ** (found.coarse - 1))
    assert found.coarse == 1 or before > 2.0 ** (gaussian.FINE_BITS + found.coarse - 1)
    assert found.sigma < 2.0 * 2.0**power * 1.001


@pytest.mark.parametrize("root", [1, 100])
def test_half_of_the_enlarged_sensitivity_covers_the_way_to_the_records_absence(root):
    """Sampled batches: each neighbour is as far from a sum without the record as half of it allows."""
    step = 1 << gaussian.covering(1.0, 3 * 2.0**40, root**2).coarse
    moved = (3 << 39) // (root * step) * step + 1
    found = gaussian.covering(1.0, 2.0 * root * moved, root**2)
    assert 1 << found.coarse == step > 1
    others = step - 1  # What other records add up to: one more, and every coordinate takes a step.
    steps = (others + moved) // step - others // step
    assert root * steps * step <= found.sigma / 2


def test_fine_gaussian_noise_is_not_enlarged():
    assert gaussian.covering(4.0, 2.0**28, 10_000) == Gaussian(2.0**30, 0)


@pytest.mark.parametrize(
    ("found", "off"),
    [
        (Gaussian(1000.0), 0.5),
        (Gaussian(2000.0), 1.0),
        (Gaussian(1000.0, 4), 16.0),
        (Gaussian(2.0**20, 4), 24.0),
        (Gaussian(2.0**50, 20), 1.5 * 2**20),
    ],
)
def test_gaussian_draws_lie_near_the_normal_ones_that_they_are_made_of(found, off):
    bits, again = (mechanisms._bits("gaussian", 1.0, ONE, SEED, 1) for _ in range(2))
    drawn = found.draw(bits, 10_000)
    parts = 1 if off in (0.5, 16.0) else 2
    normal = np.random.Generator(again).standard_normal((parts, 10_000)).sum(axis=0) / math.sqrt(parts)
    apart = abs(drawn - normal * found.sigma)
    assert found.off == off
    assert 0.9 * off < apart.max() <= off + 2.0**-50 * found.sigma * 8
    assert found.deviation == pytest.approx(drawn.std(), rel=0.05)


@given(st.floats(0.01, 1e6), st.integers(1, 1000), st.integers(1, 16))
def test_no_sum_of_helpers_noise_passes_the_tail(noise, l1, helpers):
    found = Laplace(noise, l1)
    continuous = (found.tail(helpers) - helpers / 2) / found.scale
    assert 2 * intervals._laplace_tail(helpers, continuous) < 2**-63
    normal = gaussian.covering(noise, float(l1), 1)
    beyond = (normal.tail(helpers) - helpers * normal.off) / normal.sigma / math.sqrt(helpers)
    assert math.erfc(beyond / math.sqrt(2)) < 2**-75


@pytest.mark.parametrize("kind", KINDS)
def test_noise_that_leaves_the_field_is_refused(kind):
    small, large = Sensitivity(1 << 53, 2.0**53), Sensitivity(1 << 59, 2.0**59)
    assert mechanisms.tail(kind, 1.0, small, 1) <= field.HALF
    field.from_signed(mechanisms.draw(kind, 1.0, small, SEED, 1000))
    with pytest.raises(FieldOverflow):
        mechanisms.draw(kind, 1.0, large, SEED, 1)
    with pytest.raises(FieldOverflow):
        mechanisms.draw(kind, 1e9, large, SEED, 1)


@pytest.mark.parametrize("noise", [0.0, -1.0, 9e-4, 2e9, math.nan, math.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_senseless_multipliers_are_refused(kind, noise):
    with pytest.raises(NotDeclared):
        mechanisms.draw(kind, noise, ONE, SEED, 1)
    with pytest.raises(NotDeclared):
        mechanisms.tail(kind, noise, ONE, 2)


def test_senseless_arguments_are_refused():
    for l1, l2, touched in ((0, 1.0, 1), (1, 0.5, 1), (1, math.nan, 1), (1, math.inf, 1), (1, 1.0, 0)):
        with pytest.raises(NotDeclared):
            Sensitivity(l1, l2, touched)
    for seed in (b"", bytes(31), bytes(33)):
        with pytest.raises(NotDeclared):
            mechanisms.draw("laplace", 1.0, ONE, seed, 1)
    with pytest.raises(NotDeclared):
        mechanisms.draw("laplace", 1.0, ONE, SEED, -1)
    with pytest.raises(NotDeclared):
        mechanisms.draw("uniform", 1.0, ONE, SEED, 1)  # type: ignore[arg-type]
    with pytest.raises(NotDeclared):
        mechanisms.tail("laplace", 1.0, ONE, 0)


@pytest.mark.parametrize(
    ("kind", "noise", "width", "digest"),
    [
        ("laplace", 2.0, 100, "d05db8a932c19c7a"),
        ("laplace", 1e6, 1 << 30, "bd0589c776b0ecf9"),
        ("gaussian", 2.0, 100, "cafa774406847426"),
        ("gaussian", 4.0, 1000, "ffaf7ff6a4376d1c"),
        ("gaussian", 1e4, 1 << 30, "36614ad8c4e60413"),
    ],
)
def test_the_same_engine_draws_the_same_noise_for_ever(kind, noise, width, digest):
    """Where this fails, noise changed: then `engine` has to change too, or old charges get fresh noise."""
    if kind == "gaussian" and mechanisms.engine("gaussian") != "gaussian 3, numpy 2.4.6":
        pytest.skip("Gaussian noise is pinned for the numpy of the lock")
    drawn = mechanisms.draw(kind, noise, Sensitivity(width, float(width)), bytes(range(32)), 100_000)
    assert hashlib.sha256(drawn.astype("<i8").tobytes()).hexdigest()[:16] == digest
