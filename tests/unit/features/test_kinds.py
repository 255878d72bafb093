import hashlib
import math
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.errors import NotDeclared
from maskedlark.features import Boolean, Encoder, Hashed, OneHot, Scaled
from maskedlark.features.errors import ColumnDoesNotFit
from maskedlark.features.scaled import ScaledColumn

FINITE = st.floats(-1e12, 1e12)


def encode(cells, fitted_to, kind, **options):
    return Encoder.fit({"a": fitted_to}, {"a": kind}, **options).encode({"a": cells})


def one(fitted_to, kind, **options):
    return Encoder.fit({"a": fitted_to}, {"a": kind}, **options).columns[0]


@settings(deadline=None)
@given(st.lists(FINITE, min_size=1, max_size=30), FINITE, st.floats(1e-3, 1e12))
def test_scaled_numbers_are_the_nearest_step_and_keep_their_order(numbers, low, width):
    high = low + width
    fitted = ScaledColumn(name="a", indicator=False, low=low, high=high, fill=0)
    rows = fitted.scale(np.sort(np.array(numbers)))
    assert (np.diff(rows.astype(int)) >= 0).all()
    for number, byte in zip(sorted(numbers), rows.tolist(), strict=True):
        within = Fraction(min(max(number, low), high)) - Fraction(low)
        exact = within * 255 / (Fraction(high) - Fraction(low))
        assert abs(byte - exact) <= Fraction(1, 2) + Fraction(1, 10**9)
    assert fitted.scale(np.array([low, high, -math.inf, math.inf])).tolist() == [0, 255, 0, 255]


def test_the_range_is_between_quantiles_and_shows_no_outlier():
    cells = [*range(1000), 10**9, -(10**9)]
    fitted = one(cells, Scaled())
    assert (fitted.low, fitted.high) == (
        18,
        981,
    )  # twenty rows at or beyond each end, the outlier one of them
    fitted = one(cells, Scaled(), least=1)
    assert (fitted.low, fitted.high) == (9, 990)
    fitted = one(cells, Scaled(quantiles=(0, 1)), least=1)
    assert (fitted.low, fitted.high) == (-(10**9), 10**9)


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=40, max_size=200), st.integers(1, 20))
def test_no_end_of_a_range_stands_for_fewer_rows_than_the_floor(cells, least):
    fitted = one(cells, Scaled(quantiles=(0, 1)), least=least)
    assert sum(cell <= fitted.low for cell in cells) >= least
    assert sum(cell >= fitted.high for cell in cells) >= least


def test_a_sparse_column_still_has_a_range_and_a_constant_one_a_step():
    fitted = one([0] * 5000 + [7] * 25, Scaled())
    assert (fitted.low, fitted.high) == (0, 7)
    assert encode([0, 7, 3.5], [0] * 5000 + [7] * 25, Scaled()).tolist() == [[0], [255], [128]]
    assert encode([0, 7, -1], [0] * 5000 + [7] * 3, Scaled()).tolist() == [[0], [255], [0]]


def test_minus_zero_is_zero():
    assert str(one([-0.0, 0.0] * 20, Scaled()).low) == "0.0"


def test_declared_ends_win_and_need_no_rows():
    assert encode([5, None], [None], Scaled(low=0, high=10)).tolist() == [[128, 0], [0, 255]]
    fitted = one(range(100), Scaled(low=-50))
    assert (fitted.low, fitted.high) == (-50, 80)
    with pytest.raises(ColumnDoesNotFit, match="declare both ends"):
        one(range(100), Scaled(low=200))


def test_every_way_to_write_a_number():
    cells = [10, 10.0, "10", " 10 ", "1e1", Decimal(10), Fraction(10), np.int64(10), np.float32(10)]
    rows = encode(cells, [0], Scaled(low=0, high=51))
    assert set(rows[:, 0].tolist()) == {50}
    odd = [True, float("inf"), "-inf", 10**200]
    assert encode(odd, [0], Scaled(low=0, high=5)).tolist() == [[51], [255], [0], [255]]


@pytest.mark.parametrize("cell", ["ten", "1,5", "1_0", b"1", 1j, 10**400, object()])
def test_what_is_no_number_is_refused(cell):
    with pytest.raises(ColumnDoesNotFit, match="row 2: not a number"):
        encode([1, cell], [0], Scaled(low=0, high=5))


class NAType:
    """Like pandas' NA: it has no truth value."""

    def __bool__(self):
        raise TypeError

    def __eq__(self, other):
        return self

    def __ne__(self, other):
        return self

    def __hash__(self):
        return 7


MISSING = [None, float("nan"), np.float32("nan"), "", NAType()]


@pytest.mark.parametrize(
    ("kind", "present", "row"),
    [
        (Scaled(low=0, high=2), 1, [128]),  # the median stands in
        (OneHot(), "x", [0, 0]),
        (Hashed(3), "x", [0, 0, 0]),
        (Boolean(), True, [0]),
    ],
)
def test_every_kind_knows_what_is_missing(kind, present, row):
    seen = [present] * 40
    assert encode(MISSING, [*seen, None], kind).tolist() == [[*row, 255]] * len(MISSING)
    assert encode([present], [*seen, None], kind)[0, -1] == 0
    for indicator, fitted_to in ((True, seen), (False, [*seen, None]), (None, seen)):
        declared = type(kind)(**{**kind.__dict__, "indicator": indicator})
        rows = encode(MISSING, fitted_to, declared)
        if indicator:
            assert rows.tolist() == [[*row, 255]] * len(MISSING)
        elif isinstance(kind, OneHot):
            assert rows.tolist() == [[0, 255]] * len(MISSING)  # other, so that one byte is always on
        else:
            assert rows.tolist() == [row] * len(MISSING)


def test_a_masked_array_is_missing_where_it_is_masked():
    cells = np.ma.array([1, 2, 3], mask=[False, True, False])
    assert encode(cells, [None, 1], Scaled(low=1, high=3))[:, 1].tolist() == [0, 255, 0]


def test_rare_categories_stay_out_of_the_public_list():
    cells = ["common"] * 50 + ["just"] * 20 + ["rare"] * 19 + ["one"]
    assert one(cells, OneHot()).categories == ("common", "just")
    assert one(cells, OneHot(least=1)).categories == ("common", "just", "rare", "one")
    assert one(cells, OneHot(most=1)).categories == ("common",)
    assert one(cells, OneHot(), least=21).categories == ("common",)
    assert encode(["rare", "never seen", "just"], cells, OneHot()).tolist() == [
        [0, 0, 255],
        [0, 0, 255],
        [0, 255, 0],
    ]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c", None, 1, 1.0, "1", True, 2.5]), min_size=1, max_size=60))
def test_exactly_one_byte_is_on(cells):
    rows = encode(cells, cells, OneHot(least=3))
    assert (rows.astype(int).sum(axis=1) == 255).all()


def test_a_category_is_the_same_in_every_form():
    cells = [3, 3.0, "3", np.int64(3), np.float64(3), np.str_("3")]
    for kind in (OneHot(least=1), Hashed(50)):
        assert len({row.tobytes() for row in encode(cells, [3], kind)}) == 1
        assert len({row.tobytes() for row in encode([True, "true"], [True], kind)}) == 1
        assert len({row.tobytes() for row in encode([0.5, "0.5"], [0.5], kind)}) == 1


def test_a_hash_is_blake2_of_name_and_text_under_the_salt():
    fitted = one(["x"], Hashed(1000, salt="pepper"))
    data = b"\x00\x00\x00\x01a" + "São".encode()
    digest = hashlib.blake2b(data, digest_size=8, key=b"pepper", person=b"maskedlark hash1").digest()
    assert fitted.bucket("São") == int.from_bytes(digest, "big") % 1000
    assert [one(["x"], Hashed(1000)).bucket(text) for text in ("Oslo", "Roma", "")] == PINNED
    assert fitted.bucket("Oslo") != PINNED[0]
    assert fitted.bucket("\udcff") in range(1000)


PINNED = [749, 553, 442]
"""Of salt "maskedlark", column "a", 1,000 buckets: what saved encoders count on."""


def test_a_hash_does_not_depend_on_the_process():
    code = (
        "from maskedlark.features.kinds import HashedColumn as H; "
        "print(H(name='a', indicator=False, buckets=99, salt='s').bucket('x'))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_hashes_fill_their_buckets_evenly():
    """Chi-square over 16 buckets of 16,000 texts; fixed, and one salt in 10^6 would fail."""
    fitted = one(["x"], Hashed(16))
    counts = np.bincount([fitted.bucket(f"agent {i}") for i in range(16_000)], minlength=16)
    assert ((counts - 1000) ** 2 / 1000).sum() < 56.5


def test_every_way_to_say_yes_and_no():
    yes, no = (
        [True, 1, 1.0, "true", "TRUE", " Yes", "y", "T", "1"],
        [False, 0, 0.0, "false", "No", "n", "f", "0"],
    )
    assert encode(yes, [True], Boolean()).tolist() == [[255]] * len(yes)
    assert encode(no, [True], Boolean()).tolist() == [[0]] * len(no)
    for cell in ("maybe", 2, -1, 0.5, b"1", object()):
        with pytest.raises(ColumnDoesNotFit, match="neither yes nor no"):
            encode([cell], [True], Boolean())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Scaled(low=1, high=1), "low < high"),
        (lambda: Scaled(low=math.nan), "range's ends"),
        (lambda: Scaled(high=math.inf), "range's ends"),
        (lambda: Scaled(low="0"), "range's ends"),  # type: ignore[arg-type]
        (lambda: Scaled(quantiles=(0.9, 0.1)), "quantiles"),
        (lambda: Scaled(quantiles=(-0.1, 1)), "quantiles"),
        (lambda: OneHot(0), "most categories"),
        (lambda: OneHot(least=0), "least rows"),
        (lambda: Hashed(0), "number of buckets"),
        (lambda: Hashed(1 << 13), "number of buckets"),
        (lambda: Hashed(2.0), "number of buckets"),  # type: ignore[arg-type]
        (lambda: Hashed(2, salt="s" * 65), "salt"),
        (lambda: Hashed(2, salt=b"s"), "salt"),  # type: ignore[arg-type]
        (lambda: Boolean(indicator=1), "indicator"),  # type: ignore[arg-type]
    ],
)
def test_declarations_that_make_no_sense_are_refused(make, reason):
    with pytest.raises(NotDeclared, match=reason):
        make()
