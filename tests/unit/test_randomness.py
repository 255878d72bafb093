import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskedlark.randomness import FixedRandomness, SystemRandomness


@given(st.integers(1, 2**63), st.integers(0, 100))
def test_below_is_below(bound, count):
    drawn = SystemRandomness().below(bound, count)
    assert drawn.dtype == np.int64
    assert ((drawn >= 0) & (drawn <= bound - 1)).all()


def test_below_reaches_everything_equally():
    # 60,000 draws of 3: each count is within 6 standard deviations (115) of 20,000 but for one run in 10^8.
    counts = np.bincount(FixedRandomness(b"three").below(3, 60_000))
    assert (abs(counts - 20_000) < 6 * 115).all()


def test_units_are_multiples_of_two_to_the_minus_53_below_one():
    drawn = SystemRandomness().unit(1000)
    assert ((drawn >= 0) & (drawn < 1)).all()
    assert (np.ldexp(drawn, 53) % 1 == 0).all()


def test_fixed_randomness_repeats_and_the_system_does_not():
    assert FixedRandomness(b"a").bytes(32) == FixedRandomness(b"a").bytes(32)
    twice = FixedRandomness(b"a")
    assert twice.bytes(32) != twice.bytes(32)
    assert SystemRandomness().bytes(32) != SystemRandomness().bytes(32)
