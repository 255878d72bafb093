"""The fast reader of reports against its slow twin: the same public parts, and the same refusals."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.core.purpose import Purpose
from maskedlark.errors import DecodeError
from maskedlark.randomness import FixedRandomness
from maskedlark.wire import forms, report
from maskedlark.wire.hpke import KEY_ID_BYTES, OVERHEAD
from maskedlark.wire.payload import SIZE_STEP
from maskedlark.wire.report import PublicPart, Report
from tests.property.mutating import mutate

HOURS = st.sampled_from([0, 23, 24, 255, 256, 480_000, 480_001, (1 << 32) - 1])
ORIGINS = st.sampled_from(["a", "ads.example", "ads.examplf", "b" * 24, "x" * 253])
DIGESTS = st.sampled_from([bytes(32), bytes(range(32))])


@st.composite
def reports(draw) -> bytes:
    """Reports of few forms, so that many of a batch have the same one, or one of the same length."""
    rng = FixedRandomness(draw(st.binary(min_size=4, max_size=4)))
    public = PublicPart(
        rng.bytes(16),
        draw(HOURS),
        draw(ORIGINS),
        draw(st.sampled_from(Purpose)),
        draw(DIGESTS),
        rng.bytes(32),
    )
    size = draw(st.sampled_from([1, 2, 5])) * SIZE_STEP + OVERHEAD
    helpers, first = draw(st.integers(2, 4)), draw(st.sampled_from([0, 0, 0, 7]))
    payloads = [(bytes([first + place]) * KEY_ID_BYTES, rng.bytes(size)) for place in range(helpers)]
    return Report(public.encode(), tuple(payloads)).encode()


def slowly(data: bytes) -> PublicPart | str:
    try:
        return forms.strict(data)
    except DecodeError as error:
        return f"{type(error).__name__}: {error}"


def fast(batch: list[bytes]) -> list[PublicPart | str]:
    found = forms.public_parts(batch)
    return [f"{type(each).__name__}: {each}" if isinstance(each, DecodeError) else each for each in found]


@given(st.lists(reports(), min_size=1, max_size=12), st.integers(0, 1 << 30), st.integers(0, 12))
@settings(max_examples=150, deadline=None)
def test_they_agree_on_reports_and_on_mutations_among_them(batch, seed, mutated):
    rng = FixedRandomness(b"%d" % seed)
    batch = [*batch, *(mutate(each, rng) for each in batch[:mutated]), *batch]
    assert fast(batch) == [slowly(each) for each in batch]


def test_they_agree_on_every_byte_of_one_report_changed():
    rng = FixedRandomness(b"one")
    public = PublicPart(rng.bytes(16), 480_000, "ads.example", Purpose.TRAIN, bytes(32), rng.bytes(32))
    payloads = [(bytes([place]) * KEY_ID_BYTES, rng.bytes(SIZE_STEP + OVERHEAD)) for place in range(3)]
    good = Report(public.encode(), tuple(payloads)).encode()
    changed = [
        good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :] for at in range(len(good)) for bit in (1, 64)
    ]
    batch = [good, *changed]
    assert fast(batch) == [slowly(each) for each in batch]


def test_two_payloads_for_one_key_are_refused_among_good_ones():
    rng = FixedRandomness(b"two")
    public = PublicPart(
        rng.bytes(16), 480_000, "ads.example", Purpose.TRAIN, bytes(32), rng.bytes(32)
    ).encode()
    sealed = rng.bytes(SIZE_STEP + OVERHEAD)
    good = Report(public, ((bytes(KEY_ID_BYTES), sealed), (b"1" * KEY_ID_BYTES, sealed))).encode()
    bad = Report(public, ((bytes(KEY_ID_BYTES), sealed),) * 2).encode()
    assert len(good) == len(bad)
    first, second, third = fast([good, bad, good])
    assert isinstance(first, PublicPart)
    assert first == third
    assert str(second).startswith("DuplicateKey")


@pytest.mark.parametrize("bodies", [1, 50])
def test_most_of_an_upload_is_never_read_strictly(monkeypatch, bodies):
    read: list[bytes] = []
    decode = report.decode

    def counting(data):
        read.append(data)
        return decode(data)

    monkeypatch.setattr(report, "decode", counting)
    rng = FixedRandomness(b"many")
    batch = []
    for turn in range(2 * bodies):
        public = PublicPart(rng.bytes(16), 480_000 + turn % 2, "a", Purpose.TRAIN, bytes(32), rng.bytes(32))
        payloads = [(bytes([place]) * KEY_ID_BYTES, rng.bytes(SIZE_STEP + OVERHEAD)) for place in range(2)]
        batch.append(Report(public.encode(), tuple(payloads)).encode())
    forms.public_parts(batch)
    assert len(read) == 2  # one for each hour
