import json

import pytest

from maskedlark.errors import DecodeError, UnsupportedVersion, WrongLength
from maskedlark.randomness import FixedRandomness
from maskedlark.wire import uploads
from maskedlark.wire.errors import NotAnAnswer, Truncated
from maskedlark.wire.uploads import (
    Answer,
    Verdict,
    decode_answers,
    decode_batch,
    encode_answers,
    encode_batch,
)
from tests.property.mutating import mutate

MOST, MAX_BYTES = 8, 100
BATCH = [b"one", b"2", bytes(MAX_BYTES), b"four"]


def decoded(body):
    return decode_batch(body, MOST, MAX_BYTES)


def test_a_batch_comes_back_in_order():
    assert encode_batch([b"one", b"2"]) == b"\x02\x00\x00\x00\x03one\x00\x00\x00\x012"
    assert decoded(encode_batch(BATCH)) == BATCH
    assert decoded(encode_batch([b"x"] * MOST)) == [b"x"] * MOST


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", Truncated),
        (b"\x02", Truncated),
        (b"\x00\x00\x00\x00\x01a", UnsupportedVersion),
        (b"\x01\x00\x00\x00\x01a", UnsupportedVersion),
        (b"\x02\x00\x00\x00", Truncated),
        (b"\x02\x00\x00\x00\x02a", Truncated),
        (b"\x02\x00\x00\x00\x01ab", Truncated),
        (b"\x02\x00\x00\x00\x00", WrongLength),
        (b"\x02\x00\x00\x00\x01a\x00\x00\x00\x00", WrongLength),
        (b"\x02\x00\x00\x00\x65" + bytes(101), WrongLength),
        (b"\x02\xff\xff\xff\xff" + bytes(101), WrongLength),
        (encode_batch([b"x"] * (MOST + 1)), WrongLength),
    ],
)
def test_broken_framing_is_refused_by_name(body, error):
    with pytest.raises(error) as caught:
        decoded(body)
    assert type(caught.value) is error


def fuzz(runs: int) -> tuple[int, int]:
    rng = FixedRandomness(b"framing")
    body = encode_batch(BATCH)
    refused = accepted = 0
    for _ in range(runs):
        mutation = mutate(body, rng)
        try:
            found = decoded(mutation)
        except DecodeError:
            refused += 1
        else:
            accepted += 1
            assert encode_batch(found) == mutation
    return refused, accepted


def test_a_mutated_batch_is_refused_or_is_another_batch():
    refused, accepted = fuzz(3000)
    assert min(refused, accepted) > 300


@pytest.mark.long
def test_a_mutated_batch_is_refused_or_is_another_batch_at_length():
    fuzz(300_000)


ANSWERS = (
    Answer(outcome=Verdict.STORED),
    Answer(outcome=Verdict.REFUSED, error="WrongOrigin"),
    Answer(outcome=Verdict.DUPLICATE),
    Answer(outcome=Verdict.LATER),
)


def test_answers_come_back_in_order():
    body = encode_answers(ANSWERS)
    assert json.loads(body) == {
        "answers": [
            {"outcome": "stored"},
            {"outcome": "refused", "error": "WrongOrigin"},
            {"outcome": "duplicate"},
            {"outcome": "later"},
        ]
    }
    assert decode_answers(body, 4) == ANSWERS


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"null",
        b"[]",
        b'{"answers": {}}',
        b'{"answers": [{"outcome": "stored"}]',
        b'{"answers": [{"outcome": "stored"}], "more": 1}',
        b'{"answers": [{"outcome": "stored", "more": 1}]}',
        b'{"answers": [{"outcome": "maybe"}]}',
        b'{"answers": [{"outcome": 1}]}',
        b'{"answers": [{"outcome": "refused"}]}',
        b'{"answers": [{"outcome": "stored", "error": "No"}]}',
        b'{"answers": [{"outcome": "refused", "error": "\\u001b[2J"}]}',
        b'{"answers": [{"outcome": "refused", "error": ""}]}',
        b'{"answers": [{"outcome": "refused", "error": "' + b"a" * 65 + b'"}]}',
        b'{"answers": []}',
        b'{"answers": [{"outcome": "stored"}, {"outcome": "stored"}]}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_what_is_no_answer_to_one_report_is_refused(body):
    with pytest.raises(NotAnAnswer):
        decode_answers(body, 1)


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_the_answer_to_most_uploads_is_the_one_that_is_made_and_read_the_long_way(count, monkeypatch):
    answers = (Answer(outcome=Verdict.STORED),) * count
    body = encode_answers(answers)
    assert decode_answers(body, count) == answers
    with pytest.raises(NotAnAnswer):
        decode_answers(body, count + 1)
    monkeypatch.setattr(uploads, "_all_stored", lambda _: None)
    assert decode_answers(body, count) == answers
    assert uploads.Answers(answers=answers).model_dump_json(exclude_none=True).encode() == body
    with pytest.raises(NotAnAnswer):
        decode_answers(body, count + 1)
