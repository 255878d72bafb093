"""The shipped table is the exact function, rounded, entry by entry."""

from maskedlark.exact import tables
from tests.twins import exact as twin


def test_exponential_is_rounded_to_the_nearest() -> None:
    assert list(tables.exponential()) == [twin.exp_table(t) for t in range(4096)]


def test_sigmoid_is_its_quotient() -> None:
    assert list(tables.sigmoid()) == [twin.sig_table(t) for t in range(-4095, 4096)]
