"""The ad server relays check messages: every helper's to every other, once, and carries on after a crash."""

from dataclasses import replace

import numpy as np
import pytest

from maskedlark.adserver import checking, freezing
from maskedlark.adserver import datasets as selecting
from maskedlark.adserver.dataset_store import Datasets, DatasetState
from maskedlark.adserver.errors import DatasetChanged, EmptyDataset, HelpersDiffer
from maskedlark.adserver.remote_helper import RemoteHelper
from maskedlark.ledger.errors import BadReceipt
from maskedlark.release.errors import BadChecks
from maskedlark.web.errors import AlreadyFrozen, ChunkUnchecked
from maskedlark.wire.datasets import CheckAnswer, pack
from tests.unit.adserver.measuring import World, kill_after
from tests.unit.web.service import NOW

REPORTS, PARTS = 20, 8
CHUNKS, FORGED = 3, (3, 11)
REQUESTS = 2 + 2 + 2 * 2 * CHUNKS + 2 * CHUNKS + 2
"""The key and its relay, two openings, chunks and messages, relays, and two requests to freeze."""


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(selecting, "PARTS", PARTS)
    world = World(tmp_path, checks="bits")
    world.ids = world.receive(REPORTS, at=NOW - 10)
    world.helpers[0].forged = {world.ids[place] for place in FORGED}
    world.client.select("monday", NOW - 10, NOW)
    yield world
    world.close()


def about_checks(helper):
    return [line for line in helper.log if "check" in line]


def check_frozen(world):
    found = world.client.datasets()[0]
    assert (found.state, found.records) == (DatasetState.FROZEN, REPORTS - len(FORGED))
    assert {helper.frozen["monday"].digest for helper in world.helpers} == {found.digest.hex()}
    wanted = {helper.name: {"NotValid": len(FORGED)} for helper in world.helpers}
    assert world.client.refusals("monday") == wanted


def test_the_key_comes_first_and_only_what_is_valid_is_frozen(world):
    world.client.send("monday")
    check_frozen(world)
    first, second = world.helpers
    key = f"POST /v2/check-keys/{world.document.digest.hex()}"
    assert first.log[0] == key
    assert second.log[0] == f"{key}/message"
    for helper in world.helpers:
        chunks = [f"/v2/datasets/monday/chunks/{number}/checks" for number in range(CHUNKS)]
        asked = about_checks(helper)[1:]
        assert sorted(asked[:CHUNKS]) == [f"GET {each}" for each in chunks]
        assert sorted(asked[CHUNKS:]) == [f"POST {each}" for each in chunks]


def test_what_a_helper_refused_is_not_called_invalid(world):
    world.helpers[1].refused = {world.ids[3]: "CannotOpen", world.ids[5]: "PastLifetime"}
    found = world.client.send("monday")
    assert found.records == REPORTS - 3
    assert world.client.refusals("monday") == {
        "helper-0": {"NotValid": 1},
        "helper-1": {"CannotOpen": 1, "PastLifetime": 1, "NotValid": 1},
    }


@pytest.mark.parametrize("requests", range(0, REQUESTS, 4))
def test_killed_anywhere_it_carries_on(world, requests):
    kill_after(world, requests)
    world.client.send("monday")
    check_frozen(world)


def test_a_chunk_is_checked_once_and_messages_go_with_the_frozen_dataset(world):
    kill_after(world, REQUESTS - 1)
    before = [len(about_checks(helper)) for helper in world.helpers]
    world.client.send("monday")
    # The key alone comes again, whenever sending begins.
    assert [len(about_checks(helper)) for helper in world.helpers] == [count + 1 for count in before]
    assert {each.message for each in world.client._datasets.checks("monday", 0).values()} == {None}


def test_what_another_client_froze_before_its_verdicts_were_seen_is_finished(world, monkeypatch):
    """Found by two clients that sent one dataset at once: no helper checked it again, and it stayed so."""
    kill_after(world, REQUESTS - 1)
    without_verdicts(world)
    assert world.client._datasets.unchecked("monday") == [*range(CHUNKS)]
    check = RemoteHelper.check

    def of_a_frozen_one(helper, *asked):
        if world.helpers[helper.place].frozen:
            raise AlreadyFrozen("dataset 'monday' is frozen: its chunks are checked no more")
        return check(helper, *asked)

    monkeypatch.setattr(RemoteHelper, "check", of_a_frozen_one)
    assert [bool(helper.frozen) for helper in world.helpers] == [True, False]
    world.client.send("monday")
    check_frozen(world)


def test_a_helper_that_only_says_that_it_is_frozen_is_named_before_anything_is(world, monkeypatch):
    def lie(*_):
        raise AlreadyFrozen("dataset 'monday' is frozen: its chunks are checked no more")

    with monkeypatch.context() as patched:
        patched.setattr(RemoteHelper, "check", lie)
        with pytest.raises(HelpersDiffer, match=r"helper-\d says that monday is frozen, and that it is open"):
            world.client.send("monday")
    assert not any(helper.frozen for helper in world.helpers)
    world.client.send("monday")
    check_frozen(world)


def without_verdicts(world):
    with world.client._database.write() as connection:
        connection.exec_driver_sql("UPDATE dataset_answers SET valid = NULL, invalid = NULL")


def test_a_second_client_that_stores_the_same_answers_takes_no_verdict_away(world, monkeypatch):
    first, second = (world.client._sending(world.client.datasets()[0]) for _ in range(2))
    first.run()
    checking.check(first)
    # It asked before anything was there.
    monkeypatch.setattr(Datasets, "answered", lambda *_: set())
    second.run()
    freezing.freeze(first, world.client._receipts)
    check_frozen(world)


def test_what_has_no_verdict_is_not_frozen(world):
    sending = world.client._sending(world.client.datasets()[0])
    sending.run()
    checking.check(sending)
    world.client._datasets.forget("monday", "helper-1", {1})
    with pytest.raises(DatasetChanged, match="monday was sent to a helper again by another client"):
        freezing.freeze(sending, world.client._receipts)
    assert not any(helper.frozen for helper in world.helpers)
    world.client.send("monday")
    check_frozen(world)


def test_a_helper_that_lost_chunks_checks_them_again(world):
    kill_after(world, REQUESTS - 2)
    helper = world.helpers[1]
    assert not any(each.frozen for each in world.helpers)
    del helper.chunks["monday"][1], helper.checked["monday"][1], helper.invalid["monday"][1]
    world.client.send("monday")
    check_frozen(world)


def test_a_helper_that_lost_its_verdicts_alone_checks_again(world, monkeypatch):
    """One restored from between both said `ChunkUnchecked` for good, and the other had frozen."""
    kill_after(world, REQUESTS - 1)
    freeze, second = RemoteHelper.freeze, world.helpers[1]

    def of_what_was_checked(helper, name, *asked):
        if len(world.helpers[helper.place].checked[name]) < CHUNKS:
            raise ChunkUnchecked("chunk 0 was not checked by all helpers")
        return freeze(helper, name, *asked)

    monkeypatch.setattr(RemoteHelper, "freeze", of_what_was_checked)
    assert [bool(helper.frozen) for helper in world.helpers] == [True, False]
    second.checked["monday"].clear()
    second.invalid["monday"].clear()
    with pytest.raises(ChunkUnchecked):
        world.client.send("monday")
    world.client.send("monday")
    check_frozen(world)


def test_a_helper_that_finds_other_reports_valid_is_named_before_anything_is_frozen(world):
    everything = CheckAnswer(valid=pack(np.ones(PARTS, np.bool_)), invalid=0).encode()
    world.helpers[1].change["check"] = lambda _: everything
    with pytest.raises(HelpersDiffer, match=r"helper-1 finds other reports of chunk \d of monday valid"):
        world.client.send("monday")
    assert not any(helper.frozen for helper in world.helpers)
    del world.helpers[1].change["check"]
    world.client.send("monday")
    check_frozen(world)


def test_a_message_of_other_reports_than_were_accepted_is_not_stored(world):
    world.helpers[1].change["checks"] = lambda made: replace(made, ids=made.ids[1:], numbers=made.numbers[1:])
    with pytest.raises(HelpersDiffer, match="helper-1 gave a check message of other reports"):
        world.client.send("monday")


def test_a_message_of_another_document_is_not_stored(world):
    world.helpers[1].change["checks"] = lambda made: replace(made, parameters=bytes(32))
    with pytest.raises(BadChecks, match="helper-1 is for another document"):
        world.client.send("monday")


def test_a_receipt_that_says_another_number_is_not_taken(world):
    freeze = world.helpers[1].made

    def made(name, request):
        world.helpers[1].invalid[name][0] += 1
        return freeze(name, request)

    world.helpers[1].made = made
    with pytest.raises(BadReceipt, match="helper-1 gave a receipt of another dataset"):
        world.client.send("monday")


def test_another_client_that_aborts_meanwhile_is_told(world):
    sending = world.client._sending(world.client.datasets()[0])
    sending.run()
    world.client.abort("monday")
    with pytest.raises(DatasetChanged, match="monday was frozen or aborted by another client"):
        checking.check(sending)


def test_where_nothing_is_valid_it_says_so(world):
    world.helpers[0].forged = set(world.ids)
    with pytest.raises(EmptyDataset, match="helper-0 NotValid 20; helper-1 NotValid 20"):
        world.client.send("monday")
    assert not any(helper.frozen for helper in world.helpers)
