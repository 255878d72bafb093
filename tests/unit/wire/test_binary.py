import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskedlark.errors import UnsupportedVersion, WrongLength, WrongType
from maskedlark.wire import binary
from maskedlark.wire.binary import Reader
from maskedlark.wire.errors import OutOfRange, TrailingBytes, Truncated


@given(st.lists(st.tuples(st.integers(1, 8), st.binary(max_size=9)), max_size=6))
def test_numbers_and_vectors_come_back_in_order(items):
    message = b"".join(binary.number(len(data), width) + binary.vector(data, width) for width, data in items)
    reader = Reader(message, "a message")
    for width, data in items:
        assert reader.number(width) == len(data)
        assert reader.vector(width, 0, 9) == data
    assert reader.left == 0
    reader.end()


def test_numbers_are_big_endian_and_as_wide_as_said():
    assert binary.number(258, 3) == b"\0\1\2"
    assert binary.vector(b"ab", 2) == b"\0\2ab"
    for value, width in ((256, 1), (-1, 4), (1 << 32, 4)):
        with pytest.raises(OutOfRange):
            binary.number(value, width)


@given(st.lists(st.binary(min_size=1, max_size=9), max_size=6))
def test_vectors_come_back_to_the_end(items):
    message = binary.vectors(items, 2)
    assert message == b"".join(binary.vector(item, 2) for item in items)
    assert Reader(message, "a message").vectors(2, 6, 9) == items
    for data in (message + b"\0\0", message + b"\0\x0a" + bytes(10), binary.vectors([b"x"] * 7, 2)):
        with pytest.raises(WrongLength):
            Reader(data, "a message").vectors(2, 6, 9)


def test_every_message_begins_with_the_version():
    assert Reader.message(b"\2ab", "a message").octets(2) == b"ab"
    for data, error in ((b"", Truncated), (b"\1ab", UnsupportedVersion), (b"\3ab", UnsupportedVersion)):
        with pytest.raises(error, match="a message"):
            Reader.message(data, "a message")


def test_a_reader_refuses_by_name():
    cases = [
        (b"a", lambda reader: reader.octets(2), Truncated),
        (b"\0", lambda reader: reader.number(2), Truncated),
        (b"\7", lambda reader: reader.number(1, 6), OutOfRange),
        (b"\2a", lambda reader: reader.vector(1, 0, 2), Truncated),
        (b"\2ab", lambda reader: reader.vector(1, 3, 4), WrongLength),
        (b"\2ab", lambda reader: reader.vector(1, 0, 1), WrongLength),
        (b"\0", lambda reader: reader.text(1, 5), WrongLength),
        (b"\1\xff", lambda reader: reader.text(1, 5), WrongType),
        (b"a", lambda reader: reader.end(), TrailingBytes),
        (b"\xff" * 4, lambda reader: reader.vector(4, 0, 1 << 40), Truncated),
    ]
    for data, read, error in cases:
        with pytest.raises(error) as raised:
            read(Reader(data, "the message"))
        assert type(raised.value) is error
