import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskedlark.errors import DecodeError, NotDeterministic, OutOfRange, Truncated, UnknownKey, WrongLength
from maskedlark.wire import codec
from maskedlark.wire.codec import Fields, Reader

numbers = st.integers(-(2**64), 2**64 - 1)
items = st.recursive(
    st.one_of(numbers, st.binary(max_size=300), st.text(max_size=30)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=10), inner, max_size=5)
    ),
    max_leaves=12,
)


def encode(item):
    if isinstance(item, int):
        return codec.number(item)
    if isinstance(item, bytes):
        return codec.octets(item)
    if isinstance(item, str):
        return codec.text(item)
    if isinstance(item, list):
        return codec.listed([encode(each) for each in item])
    return codec.mapped({key: encode(value) for key, value in item.items()})


def read(data):
    reader = Reader(data)
    item = reader.item(b"")
    reader.end()
    return item


def depth(item):
    inner = item if isinstance(item, list) else item.values() if isinstance(item, dict) else ()
    return 1 + max(map(depth, inner), default=0)


@given(items)
def test_encoding_equals_cbor2_and_decodes_to_the_same(item):
    data = encode(item)
    assert data == cbor2.dumps(item, canonical=True)
    if depth(item) <= codec.MAX_DEPTH:
        assert read(data) == item
    else:
        with pytest.raises(DecodeError, match="deeper"):
            read(data)


@given(st.binary(max_size=60))
def test_what_the_reader_accepts_cbor2_reads_the_same_and_writes_the_same(data):
    try:
        item = read(data)
    except DecodeError:
        return
    assert cbor2.loads(data) == item
    assert cbor2.dumps(item, canonical=True) == data


@given(numbers, st.sampled_from([1, 2, 4, 8]))
def test_numbers_that_are_longer_than_they_need_to_be_are_refused(value, size):
    short = codec.number(value)
    magnitude = value if value >= 0 else -1 - value
    if magnitude >= 1 << (8 * size) or len(short) == 1 + size:
        return
    long = bytes([(short[0] & 0xE0) | 24 + size.bit_length() - 1]) + magnitude.to_bytes(size, "big")
    assert cbor2.loads(long) == value
    with pytest.raises(NotDeterministic):
        read(long)


def test_fields_write_what_a_map_writes():
    fields = Fields("id", "name", "counts")
    written = fields.write(codec.octets(b"x"), codec.text("y"), codec.listed([codec.number(3)]))
    assert written == cbor2.dumps({"id": b"x", "name": "y", "counts": [3]}, canonical=True)
    with pytest.raises(AssertionError, match="deterministic order"):
        Fields("name", "id")


def test_size_is_bounded_before_anything_is_read():
    with pytest.raises(WrongLength, match="at most"):
        Reader(bytes(codec.MAX_BYTES + 1))
    with pytest.raises(Truncated):
        read(b"\xbb" + b"\x7f" * 8)  # a map that claims 2^62 keys takes no memory


def test_numbers_beyond_64_bits_and_floats_are_refused_whatever_came_before():
    codec.number(27)
    with pytest.raises(TypeError):
        codec.number(27.0)  # type: ignore[arg-type]
    for value in (2**64, -(2**64) - 1):
        with pytest.raises(OutOfRange):
            codec.number(value)


def test_nobody_makes_us_read_a_megabyte_to_name_its_fault():
    large = b"\x9a\x00\x0f\xff\xf0" + b"\x80" * 0xFFFF0
    with pytest.raises(UnknownKey, match="other keys"):
        Reader(large).map(Fields("id"))


def test_an_unknown_key_is_not_quoted():
    reader, wanted = Reader(codec.mapped({"converted: yes": b"\x01"})), Fields("id")
    [key] = reader.map(wanted)
    with pytest.raises(UnknownKey) as refused:
        reader.octets(key)
    assert "converted" not in str(refused.value)
