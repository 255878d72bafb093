import json

import pytest

from maskedlark import errors
from maskedlark.errors import BadSignature, KTooSmall, MaskedLarkError, NotMersenne, Truncated
from maskedlark.features.errors import ColumnDoesNotFit
from maskedlark.web import errors as web_errors
from maskedlark.web import problem
from maskedlark.web.errors import CorruptCache, ServiceAway, StrangeAnswer


def below(cls):
    return [cls, *(each for sub in cls.__subclasses__() for each in below(sub))]


OURS = [cls for cls in below(MaskedLarkError) if cls.__module__ in (errors.__name__, web_errors.__name__)]
CROSSING = [cls for cls in OURS if any(parent in problem.STATUS for parent in cls.__mro__)]


@pytest.mark.parametrize("cls", CROSSING)
def test_an_error_crosses_and_comes_back_as_itself(cls):
    found = problem.of(cls("what to do"))
    assert 400 <= found.status < 600
    assert found.type.startswith("/problems/")
    assert found.title.endswith(".")
    back = problem.error_of(found.status, found.encode())
    assert type(back) is cls
    assert str(back) == "what to do"


def test_every_type_is_another():
    assert len({problem.slug(cls) for cls in CROSSING}) == len(CROSSING)
    assert [problem.slug(cls) for cls in (BadSignature, KTooSmall)] == ["bad-signature", "k-too-small"]


def test_what_has_no_status_crosses_as_a_bare_500():
    for error in (MaskedLarkError("secret"), NotMersenne("secret"), CorruptCache("/home/somebody")):
        assert problem.of(error) is problem.UNEXPECTED
    assert json.loads(problem.UNEXPECTED.encode()).keys() == {"type", "title", "status"}


def test_errors_with_messages_of_several_parts_come_back_too():
    error = ColumnDoesNotFit("age", 3, "make it a number")
    back = problem.error_of(422, problem.of(error).encode())
    assert (type(back), str(back)) == (ColumnDoesNotFit, str(error))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"[" * 100_000,
        b'{"type": 7}',
        b'{"type": "/problems/masked-lark-error"}',
        b'{"type":"/problems/x"}',
    ],
)
def test_an_answer_that_is_no_problem_of_ours(body):
    assert type(problem.error_of(404, body)) is StrangeAnswer
    assert type(problem.error_of(502, body)) is ServiceAway


def test_another_s_words_are_cut_and_cleaned():
    hostile = json.dumps({"type": "/problems/truncated", "detail": "a\x1b[2J\nb" + "x" * 10_000})
    back = problem.error_of(400, hostile.encode())
    assert type(back) is Truncated
    assert str(back).startswith("a [2J b")
    assert len(str(back)) == problem.MOST_DETAIL
