"""An answer's bytes: one form, and an error's name for everything else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskedlark.core import field
from maskedlark.errors import DecodeError, NotInField, UnsupportedVersion, WrongLength, WrongType
from maskedlark.ledger import receipt
from maskedlark.release import messages
from maskedlark.release.messages import Answer, AnswerTable
from maskedlark.wire.binary import number, vector
from maskedlark.wire.errors import OutOfRange, TrailingBytes, Truncated
from tests.unit.ledger.ledgers import Signs

TABLES = [
    AnswerTable([("spring", 7), ("", -5)], [np.array([[1], [field.P - 1]]), np.array([[1, 2], [3, 4]])]),
    AnswerTable([()], [np.array([[5, 6, 7]])]),
    AnswerTable([], [np.zeros((0, 4), np.int64)]),
]
RECEIPT = receipt.SignedReceipt(receipt="{}", signature="0b" * 64, certificate=Signs().certificate)
HEAD = b"\2" + vector(RECEIPT.encode(), 4)


def table(rows=0, keys=0, columns=1, rest=b"\0\0\0\1"):
    return HEAD + number(rows, 4) + number(keys, 1) + number(columns, 2) + rest


def test_an_answer_comes_back():
    answer = Answer(RECEIPT, TABLES)
    decoded = messages.decode_answer(answer.encode())
    assert decoded.encode() == answer.encode()
    assert decoded.receipt == RECEIPT
    assert [each.rows for each in decoded.tables] == [each.rows for each in TABLES]
    for one, other in zip(decoded.tables, TABLES, strict=True):
        assert [each.tolist() for each in one.columns] == [each.tolist() for each in other.columns]


BAD = {
    "nothing": (b"", Truncated),
    "another version": (b"\1" + HEAD[1:], UnsupportedVersion),
    "no receipt": (b"\2\0\0\0\0", WrongLength),
    "half a receipt": (HEAD[:50], Truncated),
    "no table": (HEAD, WrongLength),
    "half a shape": (table()[:-5], Truncated),
    "no columns": (table(columns=0), WrongLength),
    "too many columns": (table(columns=1025), OutOfRange),
    "too many rows": (table(rows=(1 << 20) + 1), OutOfRange),
    "too many keys": (table(rows=1, keys=33), OutOfRange),
    "keys without rows": (table(keys=1), WrongLength),
    "a column without numbers": (table(rest=bytes(4)), WrongLength),
    "a column of four thousand million": (table(rows=1, rest=b"\xff" * 4), Truncated),
    "rows that do not follow": (table(rows=1 << 20, rest=b"\xff" * 4), Truncated),
    "a number of p": (table(rows=1, rest=number(1, 4) + field.P.to_bytes(8, "little")), NotInField),
    "a key that is not UTF-8": (table(rows=1, keys=1, rest=b"\1\xff" + number(1, 4) + bytes(8)), WrongType),
    "a long key": (table(rows=1, keys=1, rest=b"\x41" + b"x" * 65 + number(1, 4) + bytes(8)), WrongLength),
    "a key of 64 bits": (
        table(rows=1, keys=1, rest=b"\xff\x80" + bytes(7) + number(1, 4) + bytes(8)),
        OutOfRange,
    ),
    "more tables than a question has": (HEAD + table()[len(HEAD) :] * 65, TrailingBytes),
}


@pytest.mark.parametrize(("data", "error"), BAD.values(), ids=BAD)
def test_what_is_no_answer_has_its_own_error(data, error):
    messages.decode_answer(table())
    with pytest.raises(error) as raised:
        messages.decode_answer(data)
    assert type(raised.value) is error


def test_an_answer_that_is_too_large_is_not_read(monkeypatch):
    monkeypatch.setattr(messages, "MAX_ANSWER", 10)
    monkeypatch.setattr(receipt, "decode", lambda _: pytest.fail("it was read"))
    with pytest.raises(WrongLength, match="at most"):
        messages.decode_answer(table())


@given(st.binary(max_size=60))
def test_any_bytes_are_one_table_or_none(data):
    try:
        answer = messages.decode_answer(HEAD + data)
    except DecodeError:
        return
    assert answer.encode() == HEAD + data
