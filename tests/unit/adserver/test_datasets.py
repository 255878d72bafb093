import pytest

from maskedlark.adserver import datasets as module
from maskedlark.adserver.dataset_store import DatasetState
from maskedlark.adserver.errors import EmptyDataset, NameTaken, NotOver, Overlapping, TooLarge
from maskedlark.adserver.report_store import Reports, Selection
from maskedlark.adserver.retention import DAY_S, Retention
from maskedlark.core.purpose import Purpose
from maskedlark.errors import WrongType
from maskedlark.storage.engine import open_database
from maskedlark.web.errors import UnknownDataset
from tests.unit.adserver.measuring import World
from tests.unit.parameters.cases import make
from tests.unit.web.service import NOW


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.close()


def test_a_dataset_is_what_was_received_in_a_time(world):
    world.receive(5, b"one", NOW - 10)
    world.receive(7, b"two", NOW - 5)
    found = world.client.select("monday", NOW - 10, NOW - 5)
    assert (found.reports, found.state) == (5, DatasetState.SELECTED)
    assert found.selection == Selection(Purpose.AGGREGATE, world.document.digest, NOW - 10, NOW - 5)
    assert world.client.select("tuesday", NOW - 5, NOW).reports == 7


def test_without_a_time_it_follows_the_one_before_and_ends_now(world):
    world.receive(5, b"one", NOW - 10)
    world.receive(7, b"two", NOW - 5)
    world.client.select("monday", 0, NOW - 5)
    found = world.client.select("tuesday")
    assert (found.selection.start, found.selection.end, found.reports) == (NOW - 5, NOW, 7)


def test_a_second_that_is_not_over_is_not_selected(world):
    world.receive(5, at=NOW)
    with pytest.raises(NotOver, match="earlier end"):
        world.client.select("monday", NOW, NOW + 1)
    world.clock.seconds = NOW + 1
    assert world.client.select("monday", NOW, NOW + 1).reports == 5


def test_overlapping_datasets_are_refused_and_the_other_is_named(world):
    world.receive(5, b"one", NOW - 10)
    world.receive(5, b"two", NOW - 3)
    world.client.select("monday", NOW - 20, NOW - 5)
    with pytest.raises(
        Overlapping, match=r"monday holds .* 2030-03-17 17:46:20 until 2030-03-17 17:46:35 UTC"
    ):
        world.client.select("tuesday", NOW - 10, NOW)
    for start, end in ((NOW - 5, NOW - 1), (NOW - 5, NOW + 100), (NOW - 5, NOW - 5)):
        with pytest.raises(NameTaken, match="monday already"):
            world.client.select("monday", start, end)


def test_a_selected_dataset_stays_as_it_is_though_a_clock_steps_back(world):
    world.receive(5, b"one", NOW - 10)
    world.client.select("monday", 0, NOW)
    late = world.receive(3, b"late", NOW - 10)
    world.client.send("monday")
    assert world.client.datasets()[0].records == 5
    world.clock.seconds = NOW + 10
    assert world.client.select("tuesday").reports == 3
    world.client.send("tuesday")
    assert world.helpers[0].chunks["tuesday"][0][0] == late


@pytest.mark.parametrize("times", [(NOW - 5, NOW), (NOW - 5, NOW - 5), (NOW - 5, NOW - 8)])
def test_nothing_is_no_dataset(world, times):
    world.receive(5, at=NOW - 10)
    with pytest.raises(EmptyDataset):
        world.client.select("monday", *times)


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 65, ".x", "ü"])
def test_names_are_plain(world, name):
    world.receive(5, at=NOW - 10)
    with pytest.raises(WrongType, match="no name"):
        world.client.select(name, NOW - 20, NOW)


def test_other_purposes_are_left_out(world):
    world.receive(5, at=NOW - 10)
    with pytest.raises(EmptyDataset):
        world.client.select("monday", 0, NOW, Purpose.TRAIN)


def test_a_dataset_has_so_many_chunks_at_most(world, monkeypatch):
    monkeypatch.setattr(module, "PARTS", 2)
    monkeypatch.setattr(module, "MAX_CHUNKS", 2)
    world.receive(5, at=NOW - 10)
    with pytest.raises(TooLarge, match="3 chunks"):
        world.client.select("monday", 0, NOW)


def test_a_dataset_of_more_than_a_release_may_be_over_is_not_selected(tmp_path):
    world = World(tmp_path, max_records=4)
    world.receive(1, at=NOW - 10)
    world.receive(4, seed=b"later", at=NOW - 5)
    with pytest.raises(TooLarge, match=r"5 reports, .* at most 4 .*: select a shorter time"):
        world.client.select("monday", 0, NOW)
    assert world.client.select("tuesday", NOW - 6, NOW).reports == 4


def test_of_several_models_one_has_too_many_only_where_all_together_have():
    assert module.max_reports(make(max_records=10), Purpose.AGGREGATE) == 10
    models = len(make().models)
    assert module.max_reports(make(max_records=10), Purpose.TRAIN) == 10 * models


def test_large_payloads_make_small_chunks():
    models = [
        {
            "tag": "basket",
            "columns": [{"kind": "bytes", "count": 6000}],
            "labels": [{"kind": "binary"}],
            "gradient_bound": 2.0,
        }
    ]
    document = make(models=models, decoys=[], fake_rate=0.0)
    small = module._parts(document, Purpose.AGGREGATE)
    large = module._parts(document, Purpose.TRAIN)
    assert small == 2048
    assert large * document.layout(Purpose.TRAIN).part_size(0) < module.CHUNK_BYTES
    assert 500 < large < 2048


def test_an_unknown_dataset_is_named_with_those_that_there_are(world):
    world.receive(5, at=NOW - 10)
    world.client.select("monday", 0, NOW)
    for call in (world.client.send, world.client.abort, world.client.refusals):
        with pytest.raises(UnknownDataset, match="there are monday"):
            call("tuesday")


@pytest.fixture
def retention(world):
    database = open_database(world.url)
    yield Retention(database, 10 * DAY_S)
    database.close()


def test_a_dataset_begins_behind_what_is_being_deleted(world, retention):
    world.receive(5, b"old", NOW - 20 * DAY_S)
    world.receive(7, b"new", NOW - 5)
    retention.forget(NOW)
    with pytest.raises(EmptyDataset, match=r"reports from before .* are deleted"):
        world.client.select("gone", 0, NOW - 15 * DAY_S)
    found = world.client.select("monday", 0, NOW)
    assert (found.reports, found.selection.start) == (7, NOW - 10 * DAY_S)


def test_deleting_that_begins_while_a_dataset_is_selected_is_noticed(world, retention, monkeypatch):
    world.receive(5, b"old", NOW - 20 * DAY_S)
    world.receive(7, b"new", NOW - 5)
    marks = Reports.chunks

    def meanwhile(self, selection, every):
        found = marks(self, selection, every)
        retention.forget(NOW)
        return found

    monkeypatch.setattr(Reports, "chunks", meanwhile)
    found = world.client.select("monday", 0, NOW)
    assert (found.reports, found.selection.start) == (7, NOW - 10 * DAY_S)
