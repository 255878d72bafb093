import json

import pytest

from maskedlark import errors
from maskedlark.audit.prototype import NotMersenne
from maskedlark.errors import BadSignature, MaskedLarkError
from maskedlark.features.errors import ColumnDoesNotFit
from maskedlark.ledger.errors import BudgetExhausted, DeltaExhausted, SlotTaken
from maskedlark.parameters.policy import KTooSmall
from maskedlark.release import errors as privacy_errors
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web import errors as web_errors
from maskedlark.web import problem
from maskedlark.web.errors import CorruptCache, ServiceAway, StrangeAnswer
from maskedlark.wire import errors as wire_errors
from maskedlark.wire.errors import Truncated


def below(cls):
    return [cls, *(each for sub in cls.__subclasses__() for each in below(sub))]


ROOMS = {room.__name__ for room in (errors, privacy_errors, web_errors, wire_errors)}
OURS = [cls for cls in below(MaskedLarkError) if cls.__module__ in ROOMS]
CROSSING = [cls for cls in OURS if any(parent in problem.STATUS for parent in cls.__mro__)]


MADE = {
    BudgetExhausted: lambda: BudgetExhausted(1.0, 2.0, None),
    DeltaExhausted: lambda: DeltaExhausted(1.0, 2.0),
    SlotTaken: lambda: SlotTaken(40),
}
"""Those that are made of numbers."""


@pytest.mark.parametrize("cls", CROSSING)
def test_an_error_crosses_and_comes_back_as_itself(cls):
    found = problem.of(MADE[cls]() if cls in MADE else cls("what to do"))
    assert 400 <= found.status < 600
    assert found.type.startswith("/problems/")
    assert found.title.endswith(".")
    back = problem.error_of(found.status, found.encode())
    assert type(back) is cls
    assert str(back) == found.detail
    assert back.facts() == found.facts
    assert problem.of(back) == found


def test_every_type_is_another():
    everywhere = [cls for cls in below(MaskedLarkError) if cls.__module__.startswith("maskedlark.")]
    crossing = {cls for cls in everywhere if any(parent in problem.STATUS for parent in cls.__mro__)}
    assert crossing > set(CROSSING)
    assert len({problem.slug(cls) for cls in crossing}) == len(crossing)
    assert [problem.slug(cls) for cls in (BadSignature, KTooSmall)] == ["bad-signature", "k-too-small"]


def test_what_has_no_status_crosses_as_a_bare_500():
    for error in (MaskedLarkError("secret"), NotMersenne("secret"), CorruptCache("/home/somebody")):
        assert problem.of(error) is problem.UNEXPECTED
    assert json.loads(problem.UNEXPECTED.encode()).keys() == {"type", "title", "status"}


def test_refused_requests_have_their_statuses():
    found = {cls.__name__: problem.of(cls("x")).status for cls in below(web_errors.RequestRefused)}
    assert found.pop("NotForUs") == 421
    assert set(found.values()) == {401}


def test_another_s_storage_is_away_not_ours():
    found = problem.of(StorageUnavailable("try again later"))
    assert (found.status, found.type) == (503, "/problems/storage-unavailable")
    back = problem.error_of(503, found.encode())
    assert (type(back), str(back)) == (ServiceAway, "try again later")


def test_a_room_registers_its_own():
    class FullMoon(MaskedLarkError):
        """Only while the moon is full."""

    class Eclipse(FullMoon):
        """A full moon that cannot be seen."""

    assert problem.of(FullMoon("x")) is problem.UNEXPECTED
    try:
        problem.register({FullMoon: 418})
        problem.register({FullMoon: 418})
        found = problem.of(Eclipse("wait"))
        assert (found.status, found.type) == (418, "/problems/eclipse")
        assert type(problem.error_of(418, found.encode())) is Eclipse
        with pytest.raises(AssertionError, match="another status"):
            problem.register({FullMoon: 419})
        same_name = type("BadSignature", (MaskedLarkError,), {})
        with pytest.raises(AssertionError, match="bad-signature"):
            problem.register({same_name: 418})
    finally:
        problem.STATUS.pop(FullMoon)


class Short(errors.NotDeclared):
    """Facts as a test wants them."""

    def __init__(self, said):
        super().__init__("what to do")
        self._said = said

    def facts(self):
        return self._said


def test_facts_stand_beside_the_rest_and_come_back():
    said = {
        "left_epsilon": 0.25,
        "refused": {"cannot-open": 3},
        "steps": [1, 2],
        "closed": True,
        "noise": None,
    }
    found = problem.of(Short(said))
    document = json.loads(found.encode())
    assert document.keys() == {"type", "title", "status", "detail", *said}
    assert document["detail"] == "what to do"
    back = problem.error_of(422, found.encode())
    assert type(back) is Short
    assert back.facts() == said


@pytest.mark.parametrize(
    "name", ["type", "title", "status", "detail", "instance", "A", "", "a b", "ab", "ü" * 3]
)
def test_a_fact_cannot_take_another_s_name(name):
    with pytest.raises(AssertionError, match="facts are named"):
        problem.of(Short({name: 1}))


def test_a_fact_that_is_not_json_is_a_mistake_of_ours():
    with pytest.raises(ValueError, match="JSON"):
        problem.of(Short({"epsilon": float("nan")})).encode()


def claimed(**members):
    return problem.error_of(400, json.dumps({"type": "/problems/truncated"} | members).encode()).facts()


def test_facts_of_another_are_cut_and_cleaned():
    assert claimed(instance="/a", title="x", status=1, detail="y") == {}
    assert claimed(**{"_private": 1, "__class__": 1, "ab": 1, "a-b-c": 1, "x" * 65: 1, "": 1}) == {}
    assert claimed(text="a\x1b[2J\nb") == {"text": "a [2J b"}
    assert len(claimed(text="x" * 10_000)["text"]) == problem.MAX_DETAIL
    assert claimed(many=2**63, few=-(2**63), fits=2**63 - 1) == {"many": None, "few": None, "fits": 2**63 - 1}
    assert claimed(nan=float("nan"), infinite=float("inf")) == {"nan": None, "infinite": None}
    assert claimed(deep=[[["x"]]], deeper=[[[["x"]]]]) == {"deep": [[["x"]]], "deeper": [[[None]]]}
    nested = {"a": {"b": {"c": {"d": 1}}}}
    assert claimed(nested=nested) == {"nested": {"a": {"b": {"c": None}}}}
    assert claimed(names={"a\n": {"b": 1}}) == {"names": {"a ": {"b": 1}}}
    assert len(claimed(**{f"fact_{i}": i for i in range(100)})) == problem.MAX_FACTS
    assert claimed(text="x" * problem.MAX_PROBLEM) == {}


def test_facts_come_also_with_a_problem_that_is_not_known_here():
    body = json.dumps({"type": "/problems/x", "detail": "come\non monday", "weekday": 1}).encode()
    back = problem.error_of(409, body)
    assert type(back) is StrangeAnswer
    assert str(back).endswith("409 without a problem that is known here: come on monday")
    assert back.facts() == {"weekday": 1}


def test_a_document_that_is_too_long_says_nothing():
    body = json.dumps({"type": "/problems/truncated", "padding": "x" * problem.MAX_PROBLEM}).encode()
    assert type(problem.error_of(400, body)) is StrangeAnswer


def test_errors_with_messages_of_several_parts_come_back_too():
    error = ColumnDoesNotFit("age", "line 3", "make it a number")
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
    assert len(str(back)) == problem.MAX_DETAIL


def test_a_problem_with_a_key_twice_is_a_strange_answer():
    body = b'{"type":"/problems/bad-signature","type":"/problems/bad-signature","detail":"no"}'
    assert type(problem.error_of(403, body)) is StrangeAnswer
