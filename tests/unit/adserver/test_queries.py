import json
import math
from typing import Any

import numpy as np
import pytest

from maskedlark.adserver.dataset_store import DatasetState
from maskedlark.adserver.errors import HelperAway, HelpersDiffer, NotFrozen, UnknownRequest
from maskedlark.adserver.queries import QuerySpec
from maskedlark.adserver.requests import Requests, RequestState
from maskedlark.dp import accountant
from maskedlark.dp.accountant import Charge
from maskedlark.errors import BadArguments, Expired, NoiseTooSmall
from maskedlark.functions.sums import Sums
from maskedlark.ledger import receipt, receipt_verification
from maskedlark.ledger.errors import AccountClosed, AnswerLost, BadReceipt, BudgetExhausted
from maskedlark.ledger.receipt import ReleaseReceipt
from maskedlark.parameters.document import NoMechanism
from maskedlark.release.errors import MixedDatasets, TooFewRecords, UnknownFunction
from maskedlark.release.messages import Answer, AnswerTable, Request
from maskedlark.storage.engine import open_database
from maskedlark.web.errors import AlreadyFrozen, UnknownDataset
from tests.unit.adserver.measuring import ROWS, World
from tests.unit.parameters import cases
from tests.unit.web.service import NOW


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    world.frozen()
    world.shares([500, -3])
    yield world
    world.close()


def spent(world, helper=0):
    found = [each.claimed() for each in world.helpers[helper].ledger.receipts("ads.example")]
    return [each for each in found if isinstance(each, ReleaseReceipt)]


def test_shares_add_up_to_signed_numbers(world):
    table = world.client.query(["purchase"], "campaign")
    assert [(row.group, row.numbers[0].estimate) for row in table.rows] == [
        (("autumn",), 500),
        (("spring",), -3),
    ]
    assert table.balance == spent(world)[0].balance
    assert world.client.pending() == []


def test_all_helpers_are_asked_the_very_same_bytes(world):
    world.client.query(["purchase"], ["campaign"], {"campaign": ["spring", "autumn"]})
    (one,), (two,) = (helper.received for helper in world.helpers)
    assert one == two
    request = Request.decode(one)
    digest = world.client.datasets()[0].digest
    assert (request.datasets, request.function, request.noise) == ((digest.hex(),), "sums", 1.0)
    assert request.arguments == {
        "values": ["purchase"],
        "by": [["campaign"]],
        "where": [{"key": "campaign", "among": ["spring", "autumn"]}],
    }


def test_a_question_is_durable_before_it_is_sent(world):
    durable: list[bytes] = []

    def look(answer):
        database = open_database(world.url)
        durable.extend(each.body for each in Requests(database).pending())
        database.close()
        return answer

    world.helpers[0].change["answer"] = look
    world.client.query(["purchase"], "campaign")
    assert durable == world.helpers[0].received


@pytest.mark.filterwarnings("ignore::maskedlark.adserver.errors.AnsweredBefore")
def test_every_question_has_an_id_of_its_own(world):
    first, second = (world.client.query(["purchase"], "campaign") for _ in range(2))
    assert first.request != second.request
    assert len(spent(world)) == 2


ARGUMENTS = {"values": ["purchase"], "by": [["campaign"]], "where": []}


@pytest.mark.parametrize("again", ["same process", "another process"])
def test_an_answer_is_reused_if_asked_so_and_charged_once(world, again):
    first = world.client.ask(Sums(), ARGUMENTS, noise=2.0, reuse=True)
    # Killed now, before anybody has used the answer: it is stored, and no helper is asked again.
    if again == "another process":
        world.client.close()
        world.client = world.start()
    second = world.client.ask(Sums(), ARGUMENTS, noise=2.0, reuse=True)
    assert (second.request, second.noise, second.receipts) == (first.request, first.noise, first.receipts)
    assert [each.tolist() for each in second.tables[0].columns] == [
        each.tolist() for each in first.tables[0].columns
    ]
    assert [len(helper.received) for helper in world.helpers] == [1, 1]
    assert len(spent(world)) == 1
    assert world.client.pending() == []


@pytest.mark.parametrize("other", [{"noise": 3.0}, {"noise": None}, {"noise": 2.0, "reuse": False}])
def test_another_question_is_not_answered_from_what_is_stored(world, other):
    first = world.client.ask(Sums(), ARGUMENTS, noise=2.0, reuse=True)
    second = world.client.ask(Sums(), ARGUMENTS, **{"reuse": True, **other})
    assert second.request != first.request
    assert len(spent(world)) == 2


def test_what_was_refused_or_forgotten_is_not_reused(world):
    world.helpers[1].fail = ["after"] * 3
    with pytest.raises(HelperAway):
        world.client.ask(Sums(), ARGUMENTS, reuse=True)
    (pending,) = world.client.pending()
    world.client.forget(pending.id)
    assert world.client.ask(Sums(), ARGUMENTS, reuse=True).request != pending.id
    assert len(spent(world)) == 2


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("again", ["same call", "resume", "another process"])
def test_what_a_helper_left_pending_is_finished_and_charged_once(world, how, again):
    world.helpers[1].fail = [how] * 3
    with pytest.raises(HelperAway, match="helper-1"):
        world.client.query(["purchase"], "campaign")
    (pending,) = world.client.pending()
    assert len(spent(world, 0)) == 1
    if again == "resume":
        (table,) = world.client.resume(pending.id)
    else:
        if again == "another process":
            world.client.close()
            world.client = world.start()
        table = world.client.query(["purchase"], "campaign")
    assert table.request == pending.id
    assert [row.numbers[0].estimate for row in table.rows] == [500, -3]
    assert world.client.pending() == []
    assert [len(spent(world, place)) for place in range(2)] == [1, 1]
    assert len(world.helpers[0].received) == 1, "its answer was kept"
    assert set(world.helpers[1].received) == {pending.body}


def test_a_crash_between_the_answer_and_its_keeping_charges_nothing_more(world, monkeypatch):
    def dead(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("maskedlark.adserver.requests.Requests.answer", dead)
        with pytest.raises(KeyboardInterrupt):
            world.client.query(["purchase"], "campaign")
    world.client.close()
    world.client = world.start()
    world.client.query(["purchase"], "campaign")
    assert [len(spent(world, place)) for place in range(2)] == [1, 1]


@pytest.mark.parametrize("how", ["before", "after"])
def test_nobody_is_asked_while_the_first_helper_is_away(world, how):
    world.helpers[0].fail = [how] * 3
    with pytest.raises(HelperAway, match="helper-0"):
        world.client.query(["purchase"], "campaign")
    (pending,) = world.client.pending()
    assert world.helpers[1].received == []
    assert world.client.query(["purchase"], "campaign").request == pending.id
    assert [len(spent(world, place)) for place in range(2)] == [1, 1]


def test_nobody_is_asked_before_the_first_helpers_receipt_holds(world):
    resigned(world, 0, function="gradient")
    with pytest.raises(BadReceipt, match="helper-0 gave a receipt of another function"):
        world.client.query(["purchase"], "campaign")
    assert len(world.client.pending()) == 1
    assert world.helpers[1].received == []


def test_a_refusal_of_the_first_helper_ends_a_question_and_is_heard_by_nobody_else(world):
    world.helpers[0].expired = {"monday"}
    with pytest.raises(Expired):
        world.client.query(["purchase"], "campaign")
    assert world.client.pending() == []
    assert world.helpers[1].received == []


def test_a_crash_before_the_others_are_asked_charges_nothing_twice(world, monkeypatch):
    def dead(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("maskedlark.adserver.queries.at_once", dead)
        with pytest.raises(KeyboardInterrupt):
            world.client.query(["purchase"], "campaign")
    world.client.close()
    world.client = world.start()
    (pending,) = world.client.pending()
    assert world.client.query(["purchase"], "campaign").request == pending.id
    assert [helper.received for helper in world.helpers] == [[pending.body]] * 2, "each was asked once"


def test_what_the_first_helper_charged_and_cannot_repeat_is_not_called_refused(world, monkeypatch):
    world.helpers[0].fail = ["after"] * 3
    with pytest.raises(HelperAway):
        world.client.query(["purchase"], "campaign")

    def lost(body):
        raise AnswerLost("it was answered and charged, but its noise was lost since")

    monkeypatch.setattr(world.helpers[0], "release", lost)
    with pytest.raises(AnswerLost, match=r"is pending: .*`--forget` lets go of it"):
        world.client.query(["purchase"], "campaign")
    assert len(world.client.pending()) == 1


def charged_and_lost(world):
    """A question that helper 0 charged, whose answers were lost on the way."""
    world.helpers[0].fail = ["after"] * 3
    with pytest.raises(HelperAway):
        world.client.query(["purchase"], "campaign")
    (pending,) = world.client.pending()
    return pending.id


@pytest.mark.parametrize(
    "refusal",
    [
        Expired("past its lifetime"),
        AccountClosed("this helper lost receipts"),
        UnknownFunction("no function here"),
        BadArguments("a request of another format"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_refusal_after_an_attempt_that_may_be_charged_leaves_the_question_pending(
    world, monkeypatch, refusal
):
    request = charged_and_lost(world)

    def no(body):
        raise refusal

    with monkeypatch.context() as patch:
        patch.setattr(world.helpers[0], "release", no)
        for _ in range(2):
            with pytest.raises(
                type(refusal), match=r"may have been charged at an earlier attempt.*`--forget` lets go"
            ):
                world.client.resume(request)
            assert [each.id for each in world.client.pending()] == [request]
    assert world.client.query(["purchase"], "campaign").request == request
    assert [len(spent(world, place)) for place in range(2)] == [1, 1]


def test_a_refusal_of_a_second_try_leaves_the_question_pending_too(world, monkeypatch):
    """The first try was charged, and its answer lost: the second is of the same call."""
    real = world.helpers[0].release

    def expires(body):
        world.helpers[0].expired = {"monday"} if spent(world) else set()
        return real(body)

    monkeypatch.setattr(world.helpers[0], "release", expires)
    world.helpers[0].fail = ["after"]
    with pytest.raises(Expired, match="may have been charged"):
        world.client.query(["purchase"], "campaign")
    assert len(world.client.pending()) == len(spent(world)) == 1


def test_a_question_that_two_processes_ask_is_refused_only_once_neither_may_be_charged(world, monkeypatch):
    """One is refused while the other is charged: what the first marks must not hide that."""
    other, helper = world.start(), world.helpers[0]
    real, asked = helper.release, list[bytes]()

    def release(body):
        asked.append(body)
        if len(asked) > 1:
            return real(body)
        helper.fail = ["after"] * 3
        with pytest.raises(HelperAway):
            other.query(["purchase"], "campaign")
        raise TooFewRecords("fewer than k records")

    monkeypatch.setattr(helper, "release", release)
    with pytest.raises(TooFewRecords, match="may have been charged"):
        world.client.query(["purchase"], "campaign")
    other.close()
    (pending,) = world.client.pending()
    assert world.client.query(["purchase"], "campaign").request == pending.id
    assert [len(spent(world, place)) for place in range(2)] == [1, 1]


def test_a_question_that_two_processes_are_refused_is_refused(world, monkeypatch):
    other, asked = world.start(), list[bytes]()

    def no(body):
        asked.append(body)
        if len(asked) == 1:
            with pytest.raises(TooFewRecords, match="may have been charged"):
                other.query(["purchase"], "campaign")
        raise TooFewRecords("fewer than k records")

    monkeypatch.setattr(world.helpers[0], "release", no)
    with pytest.raises(TooFewRecords, match=r"fewer than k records$"):
        world.client.query(["purchase"], "campaign")
    other.close()
    assert world.client.pending() == []
    assert asked == asked[:1] * 2


@pytest.mark.parametrize("first", [True, False])
def test_what_cannot_be_asked_here_any_more_is_not_called_refused(world, monkeypatch, first):
    """The function was changed: its error is our own, and no helper's."""
    request = charged_and_lost(world) if first else left_pending(world).id
    received = [len(helper.received) for helper in world.helpers]

    class Changed(Sums):
        def ask(self, document, arguments):
            raise BadArguments("takes something else now")

    with monkeypatch.context() as patch:
        patch.setitem(world.client._functions, "sums", Changed())
        with pytest.raises(BadArguments, match="takes something else now"):
            world.client.resume(request)
    assert [each.id for each in world.client.pending()] == [request]
    assert [len(helper.received) for helper in world.helpers] == received, "nobody was asked"


def test_a_helper_that_charges_and_then_refuses_its_receipts_has_refused_nothing(world, monkeypatch):
    world.client.forget(charged_and_lost(world))

    def no(*_):
        raise TooFewRecords("fewer than k records")

    monkeypatch.setattr(world.helpers[0], "receipts", no)
    with pytest.raises(BadReceipt, match=r"helper-0 .*fewer than k records.* is pending"):
        world.client.query(["purchase"], "campaign", noise=2.0)
    assert len(world.client.pending()) == 1


def test_another_question_does_not_take_a_pending_ones_place(world):
    world.helpers[1].fail = ["before"] * 3
    with pytest.raises(HelperAway):
        world.client.query(["purchase"], "campaign")
    (pending,) = world.client.pending()
    other = world.client.query(["purchase"], "campaign", noise=2.0)
    assert other.request != pending.id
    assert world.client.pending() == [pending]


def test_an_answer_can_be_seen_again_for_nothing(world):
    table = world.client.query(["purchase"], "campaign")
    asked = [len(helper.received) for helper in world.helpers]
    (again,) = world.client.resume(table.request, confidence=0.5)
    assert [len(helper.received) for helper in world.helpers] == asked
    assert again.rows[0].numbers[0].estimate == 500
    assert again.rows[0].numbers[0].high < table.rows[0].numbers[0].high


def test_an_unknown_request_is_refused(world):
    with pytest.raises(UnknownRequest, match="no request 'abc'"):
        world.client.resume("abc")


class Other(Sums):
    name = "other"


def test_a_function_without_declared_noise_is_refused_before_anybody_is_asked(world):
    with pytest.raises(NoMechanism, match="no noise for other; it does for cells, gradient, sums"):
        world.client.ask(Other(), {"values": ["count"]})
    assert not any(helper.received for helper in world.helpers)
    assert world.client.pending() == []


def test_a_question_of_a_function_that_is_not_known_here_says_so(tmp_path):
    mechanisms = cases.settings()["mechanisms"]
    world = World(tmp_path, mechanisms=mechanisms | {"other": mechanisms["sums"]})
    world.frozen()
    world.shares([500, -3])
    with pytest.raises(Exception, match="other"):
        world.client.ask(Other(), {"values": ["count"]}, noise=1.0)
    world.client.close()
    world.client = world.start()
    (pending,) = world.client.pending()
    with pytest.raises(UnknownFunction, match="asked other"):
        world.client.resume(pending.id)
    world.close()


def test_mistakes_are_found_before_anybody_is_asked(world):
    mistakes: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"values": ["nothing"]}, BadArguments, "no declared value; there are count, purchase, visit"),
        ({"values": ["count"], "by": "nothing"}, BadArguments, "no declared key; there are campaign, place"),
        ({"values": ["count"], "where": {"nothing": 1}}, BadArguments, "no declared key"),
        ({"values": ["count"], "datasets": ["nothing"]}, UnknownDataset, "there are monday"),
        ({"values": ["count"], "datasets": []}, NotFrozen, "at least one"),
        ({"values": ["count"], "noise": 0.5}, NoiseTooSmall, "below the declared 1"),
        ({"values": ["count"], "noise": 2.0, "epsilon": 1.0}, BadArguments, "not both"),
        ({"values": ["count"], "noise": math.inf}, BadArguments, "finite"),
        ({"values": ["count"], "noise": math.nan}, BadArguments, "noise=nan"),
        ({"values": ["count"], "epsilon": 1e-12}, BadArguments, "no noise"),
        ({"values": ["count"], "epsilon": 0.0}, BadArguments, "epsilon=0.0"),
        ({"values": ["count"], "epsilon": -1.0}, BadArguments, "over 0"),
        ({"values": ["count"], "epsilon": math.nan}, BadArguments, "epsilon=nan"),
        # All that is left of the budget.
        ({"values": ["count"], "epsilon": math.inf}, BadArguments, "finite"),
        ({"values": ["count"], "epsilon": "1"}, BadArguments, "epsilon='1'"),
        ({"values": ["count"], "epsilon": True}, BadArguments, "epsilon=True"),
        ({"values": ["count"], "confidence": 1.0}, BadArguments, "confidence"),
        ({"values": ["count"], "where": {"place": 1.5}}, BadArguments, "texts and whole numbers"),
        ({"values": ["count"], "where": {"place": [None]}}, BadArguments, "texts and whole numbers"),
    ]
    for wrong, error, words in mistakes:
        with pytest.raises(error, match=words):
            world.client.query(**wrong)
    assert not any(helper.received for helper in world.helpers)
    assert world.client.pending() == []


def test_what_is_not_frozen_is_not_asked(tmp_path):
    world = World(tmp_path)
    with pytest.raises(NotFrozen, match="no dataset to aggregate is frozen"):
        world.client.query(["count"])
    world.receive(5, at=NOW - 10)
    world.client.select("monday", 0, NOW)
    with pytest.raises(NotFrozen, match="monday is selected"):
        world.client.query(["count"], datasets=["monday"])
    world.close()


def test_all_frozen_datasets_are_asked_unless_some_are_named(world):
    world.frozen("tuesday", at=NOW + 100)
    digests = [each.digest.hex() for each in world.client.datasets()]
    world.client.query(["purchase"], "campaign")
    world.client.query(["purchase"], "campaign", datasets=["tuesday", "tuesday"])
    asked = [Request.decode(body).datasets for body in world.helpers[0].received]
    assert asked == [tuple(sorted(digests)), (digests[1],)]


def left_pending(world, **options):
    """A question that helper 1 left pending, and helper 0 charged."""
    world.helpers[1].fail = ["before"] * 3
    with pytest.raises(HelperAway):
        world.client.query(["purchase"], "campaign", **options)
    return world.client.pending()[-1]


def test_datasets_in_another_order_are_the_same_wish(world):
    world.frozen("tuesday", at=NOW + 100)
    pending = left_pending(world, datasets=["tuesday", "monday"])
    table = world.client.query(["purchase"], "campaign", datasets=["monday", "tuesday", "monday"])
    assert table.request == pending.id
    assert len(spent(world)) == 1


def test_a_pending_question_over_other_datasets_is_named(world, caplog):
    pending = left_pending(world)
    world.frozen("tuesday", at=NOW + 100)
    assert pending.id not in caplog.text
    world.client.query(["purchase"], "campaign", noise=2.0)
    assert pending.id not in caplog.text
    table = world.client.query(["purchase"], "campaign")
    assert table.request != pending.id
    assert f"pending over other datasets (request {pending.id})" in caplog.text
    assert world.client.resume(pending.id)[0].request == pending.id


def test_an_error_that_leaves_a_question_pending_names_it_and_the_ways_out(world):
    world.helpers[1].fail = ["before"] * 3
    with pytest.raises(HelperAway) as caught:
        world.client.query(["purchase"], "campaign")
    (pending,) = world.client.pending()
    assert f"`maskedlark query --resume {pending.id}` finishes it" in str(caught.value)
    assert "`--forget` lets go of it, and what was charged stays so" in str(caught.value)


def test_what_is_forgotten_is_not_pending_and_stays_charged(world):
    pending = left_pending(world)
    world.client.forget(pending.id)
    assert world.client.pending() == []
    table = world.client.query(["purchase"], "campaign")
    assert table.request != pending.id
    assert len(spent(world)) == 2
    assert world.client.resume(pending.id)[0].request == pending.id, "its id still finds it"
    with pytest.raises(UnknownRequest, match="was answered"):
        world.client.forget(table.request)
    with pytest.raises(UnknownRequest, match="no request 'abc'"):
        world.client.forget("abc")


def test_a_refused_question_that_is_asked_again_is_pending_until_it_is_answered(world):
    def no(body):
        raise TooFewRecords("fewer than k records")

    with pytest.MonkeyPatch.context() as patch:
        for helper in world.helpers:
            patch.setattr(helper, "release", no)
        with pytest.raises(TooFewRecords):
            world.client.query(["purchase"], "campaign")
    with world.client._database.read() as connection:
        (refused,) = connection.exec_driver_sql("SELECT id FROM requests").scalars()
    assert world.client.pending() == []
    world.helpers[1].fail = ["before"] * 3
    with pytest.raises(HelperAway):
        world.client.resume(refused)
    assert [each.id for each in world.client.pending()] == [refused]
    assert world.client.query(["purchase"], "campaign").request == refused
    assert [len(spent(world, place)) for place in range(2)] == [1, 1]


def test_a_dataset_that_has_expired_is_left_out_from_then_on(world, caplog):
    world.frozen("tuesday", at=NOW + 100)
    world.helpers[1].expired = world.helpers[0].expired = {"monday"}
    with pytest.raises(Expired, match=r"past its lifetime.* \(monday\)\. .* ask again"):
        world.client.query(["purchase"], "campaign")
    assert world.client.pending() == [], "all refused it"
    assert [each.state for each in world.client.datasets()] == [DatasetState.EXPIRED, DatasetState.FROZEN]
    world.client.query(["purchase"], "campaign")
    assert len(Request.decode(world.helpers[0].received[-1]).datasets) == 1
    assert "left out, because their reports have expired: monday" in caplog.text
    with pytest.raises(NotFrozen, match="monday is expired, not frozen: a report of it is past its lifetime"):
        world.client.query(["purchase"], datasets=["monday"])
    with pytest.raises(AlreadyFrozen):
        world.client.abort("monday")
    assert world.client.send("monday").state is DatasetState.EXPIRED


def test_an_expiry_at_one_helper_alone_is_noticed_by_resuming_too(world):
    pending = left_pending(world)
    world.helpers[1].expired = {"monday"}
    with pytest.raises(Expired, match="monday"):
        world.client.resume(pending.id)
    assert world.client.datasets()[0].state is DatasetState.EXPIRED
    assert [each.id for each in world.client.pending()] == [pending.id], "the other helper has charged it"


def test_more_datasets_than_a_question_takes_is_one_clear_error(world, monkeypatch):
    monkeypatch.setattr("maskedlark.adserver.datasets.MAX_DATASETS", 1)
    world.frozen("tuesday", at=NOW + 100)
    with pytest.raises(BadArguments, match="2 datasets, and one query is over at most 1: name fewer"):
        world.client.query(["purchase"])


@pytest.mark.filterwarnings("ignore::maskedlark.adserver.errors.AnsweredBefore")
def test_a_budget_that_is_spent_says_what_is_left_and_what_fits(world):
    for _ in range(10):
        world.client.query(["purchase"], "campaign", noise=1.3)
    with pytest.raises(
        BudgetExhausted, match=r"0\.\d+ of 8 is left .* With noise \d\.\d+ it would fit"
    ) as caught:
        world.client.query(["purchase"], "campaign", noise=1.3)
    facts: dict[str, Any] = dict(caught.value.facts())
    assert facts["left_epsilon"] < facts["wanted_epsilon"]
    assert world.client.pending() == [], "nothing was charged, so nothing is pending"
    table = world.client.query(["purchase"], "campaign", noise=facts["noise_that_fits"])
    assert table.balance.left_epsilon >= 0


def test_a_refusal_of_one_helper_leaves_the_question_pending(world):
    digest = world.client.datasets()[0].digest
    helper = world.helpers[1]
    spec = QuerySpec(Sums(), {"values": ["purchase"]}, world.document, (digest,), 1.0)
    while True:
        # Somebody else has spent at this helper alone: its budget is gone, the other's is not.
        try:
            helper.release(world.client._queries.request(spec).encode())
        except BudgetExhausted:
            break
    helper.received.clear()
    with pytest.raises(BudgetExhausted) as caught:
        world.client.query(["purchase"], "campaign")
    (pending,) = world.client.pending()
    assert pending.state == RequestState.PENDING
    said = str(caught.value)
    assert said.startswith("helper-1: this would cost")
    assert "helper-0 has charged it already. This helper counts charges that helper-0 does not" in said
    assert f"--resume {pending.id}` finishes it" in said
    assert caught.value.facts()["wanted_epsilon"] == 1.0
    world.client.forget(pending.id)
    assert world.client.pending() == []


def test_the_same_in_another_order_was_asked_before(world):
    world.shares([1, 2], [3, 4])
    world.client.query(["purchase", "count"], "campaign", where={"campaign": ["spring", "winter"]})
    asked = world.client.asked_before
    assert asked(["count", "purchase"], "campaign", where={"campaign": ["spring", "winter"]}) is not None
    assert asked(["count", "purchase"], "campaign", where={"campaign": ["winter", "spring"]}) is not None
    assert asked(["count"], "campaign", where={"campaign": ["spring", "winter"]}) is None
    assert asked(["count", "purchase"], "campaign") is None


@pytest.mark.parametrize("cost", ["noise", "epsilon"])
def test_whole_numbers_and_floats_of_any_library_ask_the_same(world, cost):
    """The command line gives floats, and people type whole numbers in Python: that was charged twice."""
    world.shares([1, 2])
    asked: Any = {cost: 2}
    first = world.client.query(["purchase"], "campaign", **asked)
    for same in (2.0, np.float64(2), np.int64(2), np.float32(2)):
        asked = {cost: same}
        assert world.client.asked_before(["purchase"], "campaign", **asked).id == first.request
        assert world.client.query(["purchase"], "campaign", **asked, reuse=True).request == first.request
    assert len(spent(world)) == 1


def test_what_was_asked_in_another_order_is_shown_under_its_own_names(world):
    """Else a stored answer is read in the order of whoever asks again: counts are shown as purchases."""
    world.shares([1, 2], [30, 40])
    first = world.client.query(["purchase", "count"], "campaign")
    again = world.client.query(["count", "purchase"], "campaign", reuse=True)
    assert again.request == first.request
    for name in ("purchase", "count"):
        assert [each[name] for each in again] == [each[name] for each in first]
    assert [each["purchase"] for each in first] != [each["count"] for each in first]
    # By position, too: columns are in the order in which they are asked for now.
    assert (first.values, again.values) == (("purchase", "count"), ("count", "purchase"))
    assert [row.numbers for row in again.rows] == [row.numbers[::-1] for row in first.rows]
    assert world.client.resume(first.request)[0] == first


def test_a_pending_query_is_finished_in_the_order_of_whoever_asks_again(world):
    world.shares([1, 2], [30, 40])
    world.helpers[1].fail = ["before"] * 3
    with pytest.raises(HelperAway):
        world.client.query(["purchase", "count"], "campaign")
    (pending,) = world.client.pending()
    again = world.client.query(["count", "purchase"], "campaign")
    assert again.request == pending.id
    assert again.values == ("count", "purchase")
    assert [row.numbers[::-1] for row in again.rows] == [
        row.numbers for row in world.client.resume(pending.id)[0].rows
    ]


@pytest.mark.parametrize("arguments", [{"values": ["count"], "where": ["campaign"]}, {"values": 3}, {}])
def test_arguments_that_are_no_query_are_refused_by_name(world, arguments):
    with pytest.raises(BadArguments):
        world.client.ask(Sums(), arguments)
    assert world.client.pending() == []


@pytest.mark.filterwarnings("ignore::maskedlark.adserver.errors.AnsweredBefore")
@pytest.mark.parametrize("before", [0, 3])
def test_epsilon_bounds_what_a_query_costs(world, before):
    for _ in range(before):
        world.client.query(["purchase"], "campaign", noise=5.0)
    world.shares([1, 2], [3, 4])
    table = world.client.query(["purchase", "count"], "campaign", epsilon=0.25)
    assert table.balance.charged_epsilon <= 0.25 + 1e-12
    assert table.noise > 1.0
    delta = world.document.budget.delta - world.document.training.adserver.delta
    charges = [Charge("laplace", 5.0, before), Charge("laplace", table.noise * 0.99, 2)]
    assert accountant.epsilon(charges, delta) > accountant.epsilon(charges[:1], delta) + 0.25, (
        "not more noise"
    )


def test_a_pending_wish_of_a_cost_is_found_though_receipts_have_changed(world):
    world.helpers[1].fail = ["before"] * 3
    for _ in range(2):
        try:
            table = world.client.query(["purchase"], "campaign", epsilon=0.25)
        except HelperAway:
            (pending,) = world.client.pending()
    assert table.request == pending.id
    assert len(spent(world)) == 1


def test_less_noise_than_the_floor_is_never_asked_for(world):
    table = world.client.query(["purchase"], "campaign", epsilon=7.5)
    assert table.noise == world.document.mechanisms["sums"].noise_floor


def replaced(**parts):
    return lambda answer: Answer(parts.get("receipt", answer.receipt), parts.get("tables", answer.tables))


def column(*numbers):
    return np.array([[number] for number in numbers], np.int64)


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ([AnswerTable([("autumn",), ("winter",)], [column(1, 2)])], "other groups than helper-0"),
        ([AnswerTable(ROWS[::-1], [column(1, 2)])], "other groups"),
        ([AnswerTable(ROWS[:1], [column(1)])], "other groups"),
        ([AnswerTable(ROWS, [column(1, 2), column(1, 2)])], "columns or keys"),
        ([AnswerTable(ROWS, [np.ones((2, 2), np.int64)])], "columns or keys"),
        ([AnswerTable([("autumn", 1), ("spring", 1)], [column(1, 2)])], "columns or keys"),
        ([AnswerTable(ROWS, [column(1, 2)])] * 2, "2 tables"),
    ],
)
def test_a_helper_that_answers_another_form_is_named_and_nothing_is_shown(world, tables, words):
    world.helpers[1].change["answer"] = replaced(tables=tables)
    with pytest.raises(HelpersDiffer, match=f"helper-1 .*{words}"):
        world.client.query(["purchase"], "campaign")
    world.helpers[1].change = {}
    table = world.client.query(["purchase"], "campaign")
    assert table.rows[0].numbers[0].estimate == 500, "a helper that was mended is asked again"
    assert len(spent(world, 1)) == 1


def resigned(world, place=1, key=None, **changes):
    """The receipt with something changed, signed again by the helper, or by somebody else."""
    signer = world.helpers[place].signer

    def change(answer):
        said = json.loads(answer.receipt.receipt) | changes
        made = ReleaseReceipt.model_validate_json(json.dumps(said))
        return Answer(receipt.sign(made, key or signer.key, signer.certificate), answer.tables)

    world.helpers[place].change["answer"] = change


RELEASED = {"mechanism": "laplace", "noise": 1.0, "columns": 1}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"request": "ab" * 16}, "another request"),
        ({"request_digest": "ab" * 32}, "another request"),
        ({"function": "gradient"}, "another function"),
        ({"tag": "clicks"}, "another tag"),
        ({"datasets": ["ab" * 32]}, "another datasets"),
        ({"charge": RELEASED | {"noise": 0.5}}, "another noise"),
        ({"charge": RELEASED | {"mechanism": "gaussian"}}, "another mechanism"),
        ({"charge": RELEASED | {"columns": 2}}, "another number of columns"),
        ({"origin": "other.example"}, "another origin or document"),
        ({"parameters": "ab" * 32}, "another origin or document"),
        ({"helper": "helper-0"}, "not helper-1's"),
        ({"number": 1, "previous": None}, "two histories"),
        ({"previous": "ab" * 32}, "does not follow"),
        ({"number": 9}, "lacks receipts"),
        ({"number": 1 << 40}, "that is no chain"),
        ({"time": NOW + (1 << 32)}, "outside its time"),
    ],
)
def test_a_receipt_of_something_else_shows_nothing(world, changes, words):
    resigned(world, **changes)
    with pytest.raises(BadReceipt, match=words) as caught:
        world.client.query(["purchase"], "campaign")
    assert "helper-1" in str(caught.value)
    assert len(world.client.pending()) == 1


def test_a_receipt_that_somebody_else_signed_shows_nothing(world):
    resigned(world, key=world.helpers[0].signer.key)
    with pytest.raises(BadReceipt, match=r"helper-1 .*does not verify"):
        world.client.query(["purchase"], "campaign")


@pytest.mark.filterwarnings("ignore::maskedlark.adserver.errors.AnsweredBefore")
def test_an_old_receipt_shows_nothing(world):
    world.client.query(["purchase"], "campaign")
    old = world.helpers[1].ledger.receipts("ads.example")[-1]
    world.helpers[1].change["answer"] = replaced(receipt=old)
    with pytest.raises(BadReceipt, match="helper-1 gave a receipt of another request"):
        world.client.query(["purchase"], "campaign")


def test_a_receipt_of_freezing_is_none_of_an_answer(world):
    frozen = world.helpers[1].ledger.receipts("ads.example")[0]
    world.helpers[1].change["answer"] = replaced(receipt=frozen)
    with pytest.raises(BadReceipt, match="something else"):
        world.client.query(["purchase"], "campaign")


def test_receipts_that_others_got_are_fetched_and_kept(world):
    digest = world.client.datasets()[0].digest
    spec = QuerySpec(Sums(), {"values": ["purchase"]}, world.document, (digest,), 5.0)
    for _ in range(5):
        for helper in world.helpers:
            helper.release(world.client._queries.request(spec).encode())
    world.client.query(["purchase"], "campaign")
    for helper in world.helpers:
        kept = world.client.receipts(helper.name)
        assert kept == helper.ledger.receipts("ads.example")
        assert len(kept) == 7
        found = receipt_verification.verify(kept, "ads.example", helper.name, [world.document])
        assert found.spent()[world.document.digest.hex()].epsilon == pytest.approx(2.0)


def test_receipts_without_end_are_not_read_without_end(world):
    one, asked = world.helpers[1], []
    real = one.ledger.receipts("ads.example")[0]

    def endless(origin, after):
        asked.append(after)
        said = json.loads(real.encode())
        said["receipt"] = json.dumps(json.loads(said["receipt"]) | {"number": after + 1})
        return json.dumps({"receipts": [said], "more": True}).encode()

    one.receipts = endless
    resigned(world, number=9)
    with pytest.raises(BadReceipt, match="helper-1"):
        world.client.query(["purchase"], "campaign")
    assert len(asked) == 8


def test_an_answer_that_is_no_message_of_ours_is_named(world):
    class Nonsense:
        def encode(self):
            return b"\x01\x02\x03"

    world.helpers[1].change["answer"] = lambda answer: Nonsense()
    with pytest.raises(BadReceipt, match="helper-1 answered with something that does not hold"):
        world.client.query(["purchase"], "campaign")


def test_datasets_of_two_documents_are_not_mixed(tmp_path):
    world = World(tmp_path)
    world.frozen()
    first = world.document
    world.document = world.service.publish_chain(2)[1]
    for helper in world.helpers:
        helper.document = world.document
    world.frozen("tuesday", at=NOW + 100)
    world.shares([1, 2])
    with pytest.raises(MixedDatasets, match="ask for each apart"):
        world.client.query(["purchase"], "campaign", datasets=["monday", "tuesday"])
    world.client.query(["purchase"], "campaign")
    (asked,) = world.helpers[0].received
    older, newer = world.client.datasets()
    assert older.selection.parameters == first.digest
    assert newer.digest is not None
    assert Request.decode(asked).datasets == (newer.digest.hex(),)
    world.close()


def test_helpers_are_asked_with_one_id_for_each_query(world):
    ids = []

    def note(request):
        if request.url.path == "/v2/releases":
            ids.append((request.url.host, request.headers.get("x-request-id")))

    world.client._connections.http.event_hooks = {"request": [note]}
    for noise in (5.0, 6.0):
        world.client.query(["purchase"], "campaign", noise=noise)
    (_, first), (_, second), (_, third), (_, fourth) = ids
    assert [host for host, _ in ids] == ["helper-0.test", "helper-1.test"] * 2
    assert None is not first == second != third == fourth
