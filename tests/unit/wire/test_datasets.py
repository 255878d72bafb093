"""What crosses while a dataset is sent: strict, and bounded before anything is made of it."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from maskedlark.core.purpose import Purpose
from maskedlark.errors import DecodeError, UnsupportedVersion, WrongLength, WrongType
from maskedlark.wire import datasets
from maskedlark.wire.datasets import (
    MAX_CHUNKS,
    MAX_PARTS,
    ChunkAnswer,
    FreezeRequest,
    Frozen,
    NewDataset,
    State,
    pack,
)
from maskedlark.wire.errors import Truncated

DIGEST = "0b" * 32
MESSAGES = [NewDataset, ChunkAnswer, State, Frozen]


@pytest.mark.parametrize(
    "made",
    [
        FreezeRequest(accepted=()),
        FreezeRequest(accepted=("80",), digest=DIGEST),
        FreezeRequest(accepted=("ff80", "01", "00" * (MAX_PARTS // 8))),
        FreezeRequest(accepted=(pack(np.ones(1, np.bool_)),) * MAX_CHUNKS, digest=DIGEST),
    ],
    ids=["nothing", "one", "the longest", "the most"],
)
def test_a_freeze_comes_back_as_it_was(made):
    assert FreezeRequest.decode(made.encode()) == made


BAD = {
    "empty": (b"", Truncated),
    "no head": (b"\2", Truncated),
    "another version": (b"\1\0", UnsupportedVersion),
    "JSON": (b'{"accepted":[' + b'"",' * 1000 + b'""]}', UnsupportedVersion),
    "half a digest": (b"\2\40" + bytes(31), Truncated),
    "a short digest": (b"\2\37" + bytes(31), WrongLength),
    "half a length": (b"\2\0\1", Truncated),
    "an empty bitmap": (b"\2\0\0\0", WrongLength),
    "a long bitmap": (b"\2\0\10\1" + bytes(2049), WrongLength),
    "half a bitmap": (b"\2\0\0\2a", Truncated),
    "too many": (b"\2\0" + b"\0\1\200" * (MAX_CHUNKS + 1), WrongLength),
}


@pytest.mark.parametrize(("data", "error"), BAD.values(), ids=BAD)
def test_what_is_no_freeze_has_its_own_error(data, error):
    with pytest.raises(error) as raised:
        FreezeRequest.decode(data)
    assert type(raised.value) is error
    assert len(str(raised.value)) < 100


@given(st.binary(max_size=80))
def test_any_bytes_are_one_freeze_or_none(data):
    try:
        found = FreezeRequest.decode(data)
    except DecodeError:
        return
    assert found.encode() == data


def flood(kind: str) -> bytes:
    """Megabytes in which everything is wrong."""
    if kind == "keys":
        return b"{" + b",".join(b'"%x":0' % number for number in range(200_000)) + b"}"
    return b'{"chunks":[' + b"0.5," * 1_000_000 + b"0],"


@pytest.mark.parametrize("kind", ["keys", "list"])
@pytest.mark.parametrize("message", MESSAGES)
def test_more_than_a_message_can_hold_is_refused_before_it_is_parsed(monkeypatch, message, kind):
    monkeypatch.setattr(message, "model_validate_json", lambda _: pytest.fail("it was parsed"))
    with pytest.raises(WrongType, match="commas"):
        message.decode(flood(kind))


def test_a_list_is_left_at_its_first_fault(monkeypatch):
    counts: list[int] = []

    def count(error: ValidationError) -> str:
        counts.append(error.error_count())
        return "wrong"

    monkeypatch.setattr("maskedlark.wire.message.faults", count)
    with pytest.raises(WrongType):
        State.decode(b'{"chunks":[' + b"-1," * 60_000 + b"0]}")
    assert counts == [len(State.model_fields) - 2]  # Every other one is missing, but for two that may be.


@pytest.mark.parametrize("message", MESSAGES)
def test_a_few_faults_are_said_and_no_name_of_theirs(message):
    theirs = b",".join(b'"theirs-%d\\u001b":0' % number for number in range(60))
    with pytest.raises(WrongType) as raised:
        message.decode(b"{" + theirs + b"}")
    assert "theirs" not in str(raised.value)
    assert len(str(raised.value)) < 300


def test_a_full_state_is_read():
    made = State(
        name="monday",
        attempt="0a" * 16,
        parameters=DIGEST,
        purpose="train",
        state="open",
        chunks=tuple(range(MAX_CHUNKS)),
        received=1,
        accepted=1,
        refused=dict.fromkeys((f"E{number}" for number in range(100)), 1),
    )
    assert State.decode(made.encode()) == made


def _members(count: int = 5) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    ids, hashes = rng.integers(0, 256, (count, 16), np.uint8), rng.integers(0, 256, (count, 32), np.uint8)
    return [ids, rng.integers(480_000, 480_100, count).astype(np.uint32), hashes]


def _digest(ids: np.ndarray, hours: np.ndarray, hashes: np.ndarray) -> bytes:
    numbers = hours.astype(">u4").view(np.uint8).reshape(-1, 4)
    heads = np.concatenate([ids, numbers, hashes], axis=1)
    return datasets.digest("ads.example", bytes(32), Purpose.TRAIN, heads)


@pytest.mark.parametrize("parts", [1, 3, MAX_PARTS])
def test_a_chunk_is_a_version_and_parts_of_one_size(parts):
    rows = np.arange(parts * 7, dtype=np.uint64).astype(np.uint8).reshape(parts, 7)
    body = datasets.encode_chunk(rows)
    assert body == b"\2" + rows.tobytes()
    assert datasets.decode_chunk(body, 7) == rows.tobytes()


NO_CHUNKS = {
    "nothing": (b"", Truncated),
    "no parts": (b"\2", WrongLength),
    "version 1": (b"\1" + bytes(7), UnsupportedVersion),
    "half a part": (b"\2" + bytes(10), WrongLength),
    "a part cut short": (b"\2" + bytes(6), WrongLength),
    "too many": (b"\2" + bytes(7 * (MAX_PARTS + 1)), WrongLength),
}


@pytest.mark.parametrize(("body", "error"), NO_CHUNKS.values(), ids=NO_CHUNKS)
def test_parts_of_another_size_or_number_are_no_chunk(body, error):
    with pytest.raises(error):
        datasets.decode_chunk(body, 7)


def test_a_digest_is_of_ids_hours_and_columns_in_any_order():
    given = _members()
    expected = hashlib.sha256(b"maskedlark v2 dataset")
    for part in (b"ads.example", bytes(32), b"train"):
        expected.update(len(part).to_bytes(4, "big") + part)
    rows = zip(*given, strict=True)
    for each in sorted(i.tobytes() + int(hour).to_bytes(4, "big") + h.tobytes() for i, hour, h in rows):
        expected.update(each)
    assert _digest(*given) == expected.digest()
    turned = [each[::-1] for each in given]
    assert _digest(*turned) == expected.digest()
    for place in range(3):
        other = _members()
        other[place][2] += 1
        assert _digest(*other) != expected.digest()
