from dataclasses import replace

import numpy as np
import pytest

from maskedlark.core.candidates import Sample
from maskedlark.core.declared import Bytes, Measure, Model, Value
from maskedlark.core.labels import LabelSpace
from maskedlark.errors import NotDeclared
from maskedlark.wire import columns
from maskedlark.wire.payload import MAX_SIZE, PayloadLayout

SMALL = Model("small", (Bytes(3),))
LARGE = Model("large", (Bytes(9),), (LabelSpace.integers(-300, 300),), Sample(4))
MEASURE = Measure(("city",), (Value("euros", 0, 9), Value("visits", 0, 1)))


@pytest.mark.parametrize(
    ("declared", "place", "size"),
    [
        ((SMALL,), 0, 16 + 1 + 3 + 2 * 8),
        ((SMALL,), 1, 16 + 1 + 3 + 16),
        ((SMALL, LARGE), 0, 16 + 1 + 9 + 4 * 2 + 4 * 8),
        ((SMALL, LARGE), 2, 16 + 1 + 9 + 4 * 2 + 16),
        ((MEASURE,), 0, 16 + 65 + 3 * 8),
        ((MEASURE,), 1, 16 + 65 + 16),
        ((Measure((), ()),), 0, 16 + 8),
        # Two masks, of which with their sum three are checked; 1 + 4 + 1 bits.
        ((replace(SMALL, checked=True),), 0, 16 + 1 + 3 + (2 + 3 + 2) * 8),
        ((replace(SMALL, checked=True),), 1, 16 + 1 + 3 + 16),
        ((replace(MEASURE, checked=True),), 0, 16 + 65 + (6 + 6 + 2) * 8),
        ((replace(MEASURE, checked=True),), 1, 16 + 65 + 16),
    ],
)
def test_a_payload_is_as_large_as_the_largest_record(declared, place, size):
    assert PayloadLayout(declared, place).size == size


def test_a_record_that_is_too_large_is_refused_before_any_is_sealed():
    too_large = Model("tag", (Bytes(1),), (LabelSpace.integers(0, 65_535),))
    with pytest.raises(NotDeclared, match="fewer candidates"):
        PayloadLayout((too_large,), 0).size  # noqa: B018
    assert PayloadLayout((too_large,), 1).size < MAX_SIZE


def test_a_smaller_record_is_followed_by_zeros():
    layout = PayloadLayout((SMALL, LARGE), 0)
    salted, secret = np.full((2, 20), 7, np.uint8), np.full((2, 16), 9, np.uint8)
    rows = layout.rows(0, salted, secret)
    assert rows.shape == (2, layout.size)
    assert set(rows[:, :20].ravel().tolist()) == {7}
    assert set(rows[:, 20:36].ravel().tolist()) == {9}
    assert not rows[:, 36:].any()


def test_a_payload_prints_none_of_its_secrets():
    layout = PayloadLayout((SMALL,), 1)
    shown = bytes(16) + b"\0abc"
    data = shown + b"secret secret se"
    payload = layout.decode(data, columns.digest(shown, layout.purpose))
    assert payload.columns == b"abc"
    assert payload.candidates == ((0, 1),)
    assert payload.secret == b"secret secret se"
    assert "secret s" not in repr(payload)
    assert repr(payload) == "Payload(16 secret bytes)"
