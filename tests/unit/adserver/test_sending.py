import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from maskedlark.adserver import datasets as selecting
from maskedlark.adserver import freezing, sending
from maskedlark.adserver.dataset_store import Datasets, DatasetState
from maskedlark.adserver.errors import DatasetChanged, EmptyDataset, HelperAway, HelpersDiffer, Overlapping
from maskedlark.errors import WrongType
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import FrozenReceipt
from maskedlark.storage.engine import open_database
from maskedlark.web.errors import AlreadyFrozen, DatasetRefused, FreezeMismatch, UnknownDataset
from maskedlark.wire.datasets import ChunkAnswer, Frozen
from maskedlark.wire.report import HEAD_BYTES
from tests.unit.adserver.measuring import World, kill_after
from tests.unit.web.service import NOW

REPORTS, PARTS = 45, 8
CHUNKS = 6


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(selecting, "PARTS", PARTS)
    world = World(tmp_path)
    world.ids = world.receive(REPORTS, at=NOW - 10)
    world.client.select("monday", NOW - 10, NOW)
    yield world
    world.close()


def chunks_sent(helper):
    return [int(line.rsplit("/", 1)[1]) for line in helper.log if "/chunks/" in line]


def check_frozen(world, records=REPORTS):
    found = world.client.datasets()[0]
    assert (found.state, found.records) == (DatasetState.FROZEN, records)
    for helper in world.helpers:
        assert helper.frozen["monday"].digest == found.digest.hex()
        held = [each for number in range(CHUNKS) for each in helper.chunks["monday"][number][0]]
        assert held == world.ids, "every report once, in the order of the chunks"
        assert len(helper.ledger.receipts("ads.example")) == 1


def test_all_helpers_get_all_chunks_once_and_freeze_the_same(world):
    told = []
    found = world.client.send("monday", lambda *said: told.append(said))
    check_frozen(world)
    assert found == world.client.datasets()[0]
    for helper in world.helpers:
        assert sorted(chunks_sent(helper)) == list(range(CHUNKS))
        said = [(sent, total) for name, sent, total in told if name == helper.name]
        assert said[0] == (0, REPORTS)
        assert sorted(said) == said
        assert said[-1] == (REPORTS, REPORTS)


def test_a_frozen_dataset_is_not_sent_again(world):
    world.client.send("monday")
    asked = [len(helper.log) for helper in world.helpers]
    assert world.client.send("monday").state is DatasetState.FROZEN
    assert [len(helper.log) for helper in world.helpers] == asked


def test_each_helper_gets_its_own_payloads(world):
    bodies = {}
    for helper in world.helpers:
        take = helper.take

        def keep(name, number, body, helper=helper, take=take):
            bodies[helper.name, number] = body
            return take(name, number, body)

        helper.take = keep
    world.client.send("monday")
    assert all(bodies["helper-0", number] != bodies["helper-1", number] for number in range(CHUNKS))


def test_only_what_all_accepted_is_frozen_and_refusals_are_counted(world):
    world.helpers[0].refused = {world.ids[3]: "CannotOpen", world.ids[20]: "PastLifetime"}
    world.helpers[1].refused = {world.ids[3]: "CannotOpen", world.ids[44]: "CannotOpen"}
    found = world.client.send("monday")
    assert found.records == REPORTS - 3
    assert world.client.refusals("monday") == {
        "helper-0": {"CannotOpen": 1, "PastLifetime": 1},
        "helper-1": {"CannotOpen": 2},
    }
    check_frozen(world, REPORTS - 3)


def test_a_dataset_of_which_nothing_is_left_is_not_frozen_and_says_why(world):
    world.helpers[1].refused = dict.fromkeys(world.ids, "CannotOpen")
    with pytest.raises(EmptyDataset, match="helper-1 CannotOpen 45"):
        world.client.send("monday")
    assert not world.helpers[0].frozen
    world.client.abort("monday")


def side_by_side(world, monkeypatch, chunk):
    """What the threads of two helpers have read of a chunk, or raised, while one of them reads it."""
    document = world.client.documents()[0]
    (dataset,) = world.client.datasets()
    one = sending.Sending(world.client._datasets, world.client._reports, dataset, document, [])
    (start, *_) = world.client._datasets.chunks("monday")
    begun, may_end = threading.Event(), threading.Event()

    def slow(*place):
        begun.set()
        may_end.wait(60)
        return chunk(*place)

    monkeypatch.setattr(world.client._reports, "chunk", slow)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(one._read_once, 0, start)
        begun.wait(60)
        second = threads.submit(one._read_once, 0, start)
        may_end.set()
        return one, start, [each.exception() or each.result() for each in (first, second)]


def test_a_chunk_is_read_once_for_helpers_that_are_equally_far(world, monkeypatch):
    read, chunk = [], world.client._reports.chunk

    def counted(*place):
        read.append(place)
        return chunk(*place)

    _, _, (first, second) = side_by_side(world, monkeypatch, counted)
    assert len(first) == PARTS
    assert first == second
    assert len(read) == 1


def test_a_chunk_that_could_not_be_read_for_one_helper_is_read_again_for_the_other(world, monkeypatch):
    """Each has its own error, or none; and nothing is kept of one that failed."""
    chunk, errors = world.client._reports.chunk, [OSError("the disk was away")]

    def fails_once(*place):
        if errors:
            raise errors.pop()
        return chunk(*place)

    one, start, (first, second) = side_by_side(world, monkeypatch, fails_once)
    assert isinstance(first, OSError)
    assert len(second) == PARTS
    assert one._read_once(0, start) == second


def test_few_chunks_are_kept(world):
    document, (dataset,) = world.client.documents()[0], world.client.datasets()
    one = sending.Sending(world.client._datasets, world.client._reports, dataset, document, [])
    (start, *_) = world.client._datasets.chunks("monday")
    for number in range(3 * sending.IN_FLIGHT):
        one._read_once(number, start)
    assert len(one._read) == 2 * sending.IN_FLIGHT


@pytest.mark.parametrize("how", ["before", "after"])
def test_a_helper_that_is_away_for_a_while_is_tried_again(world, how):
    world.helpers[1].fail = [None, how, how]  # fewer than attempts, whoever gets them
    world.client.send("monday")
    check_frozen(world)
    assert world.slept
    assert set(world.slept) <= {0.5, 1.0}


def test_a_helper_that_stays_away_is_named_and_what_was_sent_stays(world):
    world.helpers[1].fail = [None, None, *["before"] * 100]
    with pytest.raises(HelperAway, match=r"helper-1 stays away .* carries on"):
        world.client.send("monday")
    assert sorted(chunks_sent(world.helpers[0])) == list(range(CHUNKS)), "the others go on"
    assert not world.helpers[0].frozen
    (there,) = world.helpers[1].chunks["monday"]
    world.helpers[1].fail, world.helpers[1].log, world.helpers[0].log = [], [], []
    world.client.send("monday")
    check_frozen(world)
    assert sorted(chunks_sent(world.helpers[1])) == [each for each in range(CHUNKS) if each != there]
    assert chunks_sent(world.helpers[0]) == []


@pytest.mark.parametrize("requests", range(2 + 2 * CHUNKS + 2))
def test_killed_anywhere_it_carries_on(world, requests):
    kill_after(world, requests)
    world.client.send("monday")
    check_frozen(world)


@pytest.mark.parametrize("requests", [0, 1, 2, 7, 2 + 2 * CHUNKS])
def test_killed_anywhere_it_can_be_aborted_while_nothing_is_frozen(world, requests):
    kill_after(world, requests)
    world.client.abort("monday")
    assert world.client.datasets()[0].state is DatasetState.ABORTED
    assert not any(helper.opened for helper in world.helpers)
    with pytest.raises(UnknownDataset, match="aborted"):
        world.client.send("monday")
    world.client.select("monday", NOW - 10, NOW)
    world.client.send("monday")
    check_frozen(world)


def test_what_one_helper_has_frozen_cannot_be_taken_back_anywhere(world):
    kill_after(world, 2 + 2 * CHUNKS + 1)
    assert [bool(helper.frozen) for helper in world.helpers] == [True, False]
    with pytest.raises(AlreadyFrozen, match="helper-0"):
        world.client.abort("monday")
    assert world.helpers[1].opened
    world.client.send("monday")
    check_frozen(world)
    with pytest.raises(AlreadyFrozen, match="stays for good"):
        world.client.abort("monday")


def test_an_abort_that_got_through_halfway_is_repeated(world):
    while not all(helper.opened for helper in world.helpers):  # One may have had all of the requests.
        kill_after(world, 6)
    world.helpers[0].fail = [None, "after"]
    world.helpers[1].fail = [None, *["before"] * 3]
    with pytest.raises(HelperAway, match="helper-1"):
        world.client.abort("monday")
    assert [bool(helper.opened) for helper in world.helpers] == [False, True]
    assert world.client.datasets()[0].state is DatasetState.SELECTED
    world.client.abort("monday")
    assert world.client.datasets()[0].state is DatasetState.ABORTED
    assert not world.helpers[1].opened


def test_a_helper_that_lost_chunks_gets_them_again(world):
    world.helpers[1].fail = [*[None] * 4, *["before"] * 100]
    with pytest.raises(HelperAway):
        world.client.send("monday")
    world.helpers[1].fail = []
    world.helpers[1].chunks["monday"].clear()
    world.client.send("monday")
    check_frozen(world)


def test_a_database_that_lacks_answers_to_a_frozen_dataset_is_an_old_copy(world):
    kill_after(world, 2 + 2 * CHUNKS + 1)
    database = world.client._database
    with database.write() as connection:
        connection.exec_driver_sql("DELETE FROM dataset_answers WHERE helper = 'helper-0' AND number = 2")
    with pytest.raises(HelpersDiffer, match="newest copy"):
        world.client.send("monday")


def test_another_dataset_under_the_name_is_noticed(world):
    world.receive(5, b"other", NOW + 20)
    world.clock.seconds = NOW + 30
    world.client.select("tuesday")
    world.client.send("tuesday")
    helper = world.helpers[1]
    helper.opened["monday"] = helper.opened["tuesday"].model_copy(update={"purpose": "train"})
    helper.chunks["monday"] = {}
    with pytest.raises(HelpersDiffer, match="helper-1 has another dataset"):
        world.client.send("monday")


@pytest.mark.parametrize(
    "answer",
    [
        ChunkAnswer(parts=8, accepted="ff", refused={"CannotOpen": 1}),
        ChunkAnswer(parts=8, accepted="fe", refused={}),
        ChunkAnswer(parts=7, accepted="fe", refused={}),
        ChunkAnswer(parts=8, accepted="ffff", refused={}),
        ChunkAnswer(parts=4, accepted="ff", refused={}),
    ],
)
def test_an_answer_that_is_none_to_its_chunk_is_refused(world, answer):
    world.helpers[1].change["chunk"] = lambda data: answer.encode()
    with pytest.raises(HelpersDiffer, match="helper-1"):
        world.client.send("monday")


def test_an_answer_that_is_no_message_of_ours_is_one_error(world):
    world.helpers[0].change["chunk"] = lambda data: b"<html>"
    with pytest.raises(WrongType, match=r"helper-0: .*JSON"):
        world.client.send("monday")


def changed(**values):
    return lambda data: Frozen.decode(data).model_copy(update=values).encode()


@pytest.mark.parametrize("values", [{"digest": "ab" * 32}, {"records": 44}])
def test_another_digest_or_size_is_refused(world, values):
    world.helpers[1].change["freeze"] = changed(**values)
    with pytest.raises(HelpersDiffer, match="helper-1 froze monday with another digest"):
        world.client.send("monday")
    assert world.client.datasets()[0].state is DatasetState.SELECTED
    world.helpers[1].change = {}
    world.client.send("monday")
    check_frozen(world)


def lie(helper, place):
    """The helper takes one report for another: its digest is another than everybody else's."""
    take = helper.take

    def changed(name, number, body):
        found = take(name, number, body)
        helper.heads[place] = bytes(HEAD_BYTES)
        return found

    helper.take = changed


@pytest.mark.parametrize("place", [0, 1])
def test_a_helper_that_finds_another_dataset_freezes_nothing(world, place):
    lie(world.helpers[place], world.ids[7])
    with pytest.raises(FreezeMismatch, match=f"helper-{place}"):
        world.client.send("monday")
    assert not world.helpers[place].frozen
    assert world.client.datasets()[0].state is DatasetState.SELECTED
    if place == 0:
        assert not world.helpers[1].frozen, "refused before anybody freezes"
        world.client.abort("monday")


def test_what_only_some_have_frozen_can_be_given_up(world):
    lie(world.helpers[1], world.ids[7])
    for _ in range(2):
        with pytest.raises(FreezeMismatch, match="helper-1"):
            world.client.send("monday")
    with pytest.raises(AlreadyFrozen, match=r"helper-0 has frozen .* --give-up"):
        world.client.abort("monday")
    assert world.client.abort("monday", give_up=True) == ["helper-0"]
    assert world.client.datasets()[0].state is DatasetState.LOST
    assert not world.helpers[1].opened
    with pytest.raises(UnknownDataset, match="given up"):
        world.client.send("monday")
    with pytest.raises(Overlapping, match="monday"):
        world.client.select("again", NOW - 10, NOW)
    world.receive(5, b"later", NOW)
    world.clock.seconds = NOW + 5
    world.client.select("tuesday")
    world.client.send("tuesday")


def test_giving_up_what_nobody_has_frozen_takes_it_back(world):
    kill_after(world, 6)
    assert world.client.abort("monday", give_up=True) == []
    assert world.client.datasets()[0].state is DatasetState.ABORTED


def test_a_helper_that_is_away_keeps_nobody_from_giving_up(world):
    kill_after(world, 2 + 2 * CHUNKS + 1)
    world.helpers[1].fail = ["before"] * 100
    assert world.client.abort("monday", give_up=True) == ["helper-0", "helper-1"]
    assert world.client.datasets()[0].state is DatasetState.LOST


def test_what_another_client_took_back_meanwhile_is_not_called_frozen(world, monkeypatch):
    enter = freezing._enter

    def slow(*given):
        enter(*given)
        other = open_database(world.url)
        Datasets(other).mark("monday", DatasetState.ABORTED)
        other.close()

    monkeypatch.setattr(freezing, "_enter", slow)
    with pytest.raises(DatasetChanged, match="monday is aborted"):
        world.client.send("monday")


def test_a_receipt_that_does_not_hold_is_refused(world):
    spoil = world.helpers[1].signer
    other = world.helpers[0].signer
    spoil.key, key = other.key, spoil.key
    with pytest.raises(BadReceipt, match="helper-1"):
        world.client.send("monday")
    spoil.key = key
    assert world.client.datasets()[0].state is DatasetState.SELECTED


def test_a_receipt_of_another_dataset_is_refused(world):
    world.client.send("monday")
    old = world.helpers[1].frozen["monday"].receipt
    world.receive(5, b"later", NOW)
    world.clock.seconds = NOW + 5
    world.client.select("tuesday")
    world.helpers[1].change["freeze"] = changed(receipt=old)
    with pytest.raises(BadReceipt, match="helper-1 gave a receipt of another dataset"):
        world.client.send("tuesday")


def test_a_receipt_is_kept_in_its_place(world):
    world.client.send("monday")
    kept = world.client.receipts("helper-0")
    assert [each.claimed().number for each in kept] == [1]
    assert isinstance(kept[0].claimed(), FrozenReceipt)


def test_reports_that_vanish_are_noticed(world):
    database = world.client._database
    with database.write() as connection:
        connection.exec_driver_sql("DELETE FROM reports WHERE id = ?", (world.ids[-1],))
    with pytest.raises(DatasetRefused, match="chunk 5 of monday lost reports"):
        world.client.send("monday")


def test_nobody_has_more_than_so_many_chunks_in_flight(world):
    flying, most, lock = [0], [0], threading.Lock()
    barrier = threading.Barrier(sending.IN_FLIGHT)
    handle = world.router.handle_request

    def slow(request):
        if request.url.host != "helper-1.test" or b"/chunks/" not in request.url.raw_path:
            return handle(request)
        with lock:
            flying[0] += 1
            most[0] = max(most[0], flying[0])
            together = flying[0] <= sending.IN_FLIGHT and not barrier.broken
        if together and most[0] <= sending.IN_FLIGHT and int(request.url.path.rsplit("/", 1)[1]) < 4:
            barrier.wait(30)  # Four at once, or this never ends.
        with lock:
            flying[0] -= 1
        return handle(request)

    world.router.handle_request = slow
    world.client.send("monday")
    assert most[0] == sending.IN_FLIGHT
