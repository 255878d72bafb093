"""Check messages on the wire: one form, everything else refused."""

import numpy as np
import pytest

from maskedlark.core import field
from maskedlark.errors import NotInField, UnsupportedVersion, WrongLength, WrongType
from maskedlark.wire.checks import MAX_MESSAGE, ROW_BYTES, Checks, SignedChecks, decode_relay, encode_relay
from maskedlark.wire.datasets import PARTS
from maskedlark.wire.errors import DuplicateId, OutOfRange, TrailingBytes, Truncated

HEAD = 1 + 1 + 8 + 1 + len("ads.example") + 32 + 32


def checks(count=3, place=1):
    ids = np.arange(16 * count, dtype=np.uint8).reshape(count, 16)
    numbers = np.array([[7, field.P - 1]] * count, np.int64).reshape(count, 2)
    return Checks(place, 1_900_000_000, "ads.example", b"p" * 32, b"k" * 32, ids, numbers)


def same(one, other):
    assert one.encode() == other.encode()
    assert np.array_equal(one.ids, other.ids)
    assert np.array_equal(one.numbers, other.numbers)
    assert (one.place, one.time, one.origin) == (other.place, other.time, other.origin)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_body_is_read_as_it_was_written(count):
    made = checks(count)
    same(Checks.decode(made.encode()), made)
    assert len(made.encode()) == HEAD + 32 * count


def test_a_record_costs_at_most_forty_bytes_per_helper_with_everything_around_it():
    rows = np.random.default_rng(1).integers(0, 256, (PARTS, 16), dtype=np.uint8)
    made = Checks(0, 0, "a" * 255, b"p" * 32, b"k" * 32, rows, np.zeros((PARTS, 2), np.int64))
    signed = SignedChecks(made.encode(), bytes(64), "c" * 1024, bytes(64)).encode()
    assert ROW_BYTES == 32
    assert len(encode_relay([signed])) / PARTS < 40


def test_numbers_are_field_elements():
    data = bytearray(checks().encode())
    for value in (field.P, 1 << 63, (1 << 64) - 1):
        data[-8:] = value.to_bytes(8, "little")
        with pytest.raises(NotInField):
            Checks.decode(bytes(data))


def test_a_report_is_in_a_message_once():
    made = checks()
    made.ids[2] = made.ids[0]
    with pytest.raises(DuplicateId):
        Checks.decode(made.encode())


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda data: data[:-1], WrongLength),
        (lambda data: data + b"\0", WrongLength),
        (lambda data: data[:40], Truncated),
        (lambda data: b"\1" + data[1:], UnsupportedVersion),
        (lambda data: data[:1] + b"\x10" + data[2:], OutOfRange),
        (lambda data: data[:2] + b"\xff" * 8 + data[10:], OutOfRange),
        (lambda data: data[:10] + b"\0" + data[11:], WrongLength),
        (lambda data: data[:11] + b"\xff" + data[12:], WrongType),
        (lambda data: data[:HEAD] + bytes(32 * ((1 << 14) + 1)), WrongLength),
    ],
)
def test_a_body_of_another_form_is_refused(change, error):
    with pytest.raises(error):
        Checks.decode(change(checks().encode()))


def test_a_signed_message_is_read_as_it_was_written():
    made = SignedChecks(b"body", b"s" * 64, "certificate", b"i" * 64)
    data = made.encode()
    assert SignedChecks.decode(data) == made
    with pytest.raises(TrailingBytes):
        SignedChecks.decode(data + b"\0")
    with pytest.raises(Truncated):
        SignedChecks.decode(data[:-1])
    with pytest.raises(WrongLength):
        SignedChecks.decode(SignedChecks(b"", b"s" * 64, "certificate", b"i" * 64).encode())


def test_a_relay_holds_messages_of_others():
    assert decode_relay(encode_relay([b"one", b"other"])) == [b"one", b"other"]
    with pytest.raises(WrongLength):
        decode_relay(encode_relay([b"a"] * 16))
    with pytest.raises(WrongLength):
        decode_relay(encode_relay([b"a" * (MAX_MESSAGE + 1)]))
    with pytest.raises(UnsupportedVersion):
        decode_relay(b"\1" + encode_relay([b"a"])[1:])
