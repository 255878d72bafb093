"""Weights on the wire: one form, of one network, bounded."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.errors import DecodeError, WrongLength, WrongType
from maskedlark.exact.errors import WeightsDoNotFit
from maskedlark.exact.losses import BinaryCrossEntropy
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import Relu, Sigmoid
from maskedlark.exact.quantise import Quantised
from maskedlark.functions import weights

NETWORK = Network(
    (
        Layer(Linear("w0", "b0", 4, 3)),
        Layer(Linear("w1", None, 3, 2), Relu()),
        Layer(Linear("w2", "b2", 2, 1), Sigmoid()),
    ),
    (BinaryCrossEntropy(),),
)
FIXED = Sigmoid().fixed_exponent or 0


def some(bits=8, top=100):
    values = (np.arange(NETWORK.size) * 37 % (2 * top) - top).astype(np.int16)
    return Quantised(values, (6, 10, 7, 5, 9), (6, FIXED), bits)


@settings(max_examples=60)
@given(st.sampled_from([8, 16]), st.data())
def test_weights_come_back_as_they_were(bits, data):
    top = (1 << (bits - 1)) - 1
    values = data.draw(st.lists(st.integers(-top, top), min_size=NETWORK.size, max_size=NETWORK.size))
    exponents = data.draw(st.tuples(*[st.integers(0, 24)] * 5))
    sent = Quantised(np.array(values, np.int16), exponents, (data.draw(st.integers(0, 24)), FIXED), bits)
    encoded = weights.encode(sent)
    found = weights.decode(NETWORK, encoded)
    assert len(encoded) == weights.size(NETWORK, bits)
    assert found.values.tolist() == values
    assert found.values.dtype == np.int16
    assert (found.exponents, found.activations, found.bits) == (sent.exponents, sent.activations, bits)
    assert weights.encode(found) == encoded


def test_the_form_is_as_documented():
    encoded = weights.encode(some())
    assert encoded[:6] == bytes([1, 8, 0, 5, 0, 2])
    assert encoded[6:13] == bytes([6, 10, 7, 5, 9, 6, FIXED])
    assert encoded[13:] == some().values.astype(np.int8).tobytes()
    wide = weights.encode(some(16, 3000))
    assert int.from_bytes(wide[13:15], "little", signed=True) == some(16, 3000).values[0]


SENT = weights.encode(some())


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", WrongLength),
        (SENT[:5], WrongLength),
        (SENT[:-1], WrongLength),
        (SENT + b"\0", WrongLength),
        (bytes([0]) + SENT[1:], WrongType),
        (bytes([2]) + SENT[1:], WrongType),
        (SENT[:1] + bytes([7]) + SENT[2:], WrongType),
        (SENT[:1] + bytes([16]) + SENT[2:], WrongLength),
        (SENT[:3] + bytes([4]) + SENT[4:], WrongLength),
        (SENT[:3] + bytes([6]) + SENT[4:], WrongLength),
        (SENT[:5] + bytes([1]) + SENT[6:], WrongLength),
        (SENT[:5] + bytes([3]) + SENT[6:], WrongLength),
        (SENT[:6] + bytes([25]) + SENT[7:], WeightsDoNotFit),
        (SENT[:12] + bytes([FIXED ^ 1]) + SENT[13:], WeightsDoNotFit),
        (SENT[:-1] + bytes([0x80]), WeightsDoNotFit),
    ],
)
def test_anything_else_is_refused(data, error):
    with pytest.raises(error):
        weights.decode(NETWORK, data)


def test_the_least_16_bit_number_has_no_opposite_and_is_refused():
    data = weights.encode(some(16))
    with pytest.raises(WeightsDoNotFit):
        weights.decode(NETWORK, data[:-2] + b"\x00\x80")


@settings(max_examples=200)
@given(st.binary(max_size=80))
def test_noise_is_never_taken_for_weights_without_their_form(data):
    try:
        found = weights.decode(NETWORK, data)
    except (DecodeError, WeightsDoNotFit):
        return
    assert weights.encode(found) == data
