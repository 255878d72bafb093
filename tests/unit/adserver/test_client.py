import traceback
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pytest

import maskedlark.adserver
from maskedlark.adserver import Between, Client
from maskedlark.adserver import config as settings
from maskedlark.adserver.errors import AnsweredBefore, HelperAway
from maskedlark.adserver.report_store import Reports
from maskedlark.adserver.table import tables
from maskedlark.clock import FixedClock
from maskedlark.core.purpose import Purpose
from maskedlark.dp.mechanisms import Sensitivity
from maskedlark.errors import BadArguments, BadSignature
from maskedlark.functions.function import Column, Function, Query, TableSchema
from maskedlark.randomness import FixedRandomness
from maskedlark.release.messages import Request
from maskedlark.storage.engine import open_database
from maskedlark.storage.errors import UnusedDatabase
from maskedlark.web import key_file
from maskedlark.web.errors import BadConfig, BadKeyFile, ClockDisagrees, CorruptCache, StrangeAnswer
from tests.unit.adserver.measuring import CONFIG, World
from tests.unit.parameters import cases
from tests.unit.parameters.cases import HELPER_KEYS
from tests.unit.web.service import NOW


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    world.frozen()
    world.shares([500, -3])
    yield world
    world.close()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "adserver.toml"
    path.write_text(CONFIG)
    return path


def test_a_configuration_is_read_with_its_paths_beside_it(path):
    found = settings.read(path)
    assert found.origin == "ads.example"
    assert Path(found.key) == path.parent / "request.key"
    assert Path(found.cache) == path.parent / "cache"
    assert found.database == f"sqlite:///{path.parent / 'ads.db'}"


def test_a_client_opens_what_its_configuration_names(path):
    key_file.create(path.parent / "request.key", FixedRandomness(b"key"))
    used(path.parent / "ads.db")
    with Client.from_config(path) as client:
        assert client.origin == "ads.example"
        assert client.datasets() == []
        assert client.pending() == []


def used(path):
    """A database that an ad server has opened."""
    database = open_database(f"sqlite:///{path}")
    Reports(database, FixedClock(NOW))
    database.close()


def test_a_database_of_no_ad_server_is_refused_and_not_made(path):
    key_file.create(path.parent / "request.key", FixedRandomness(b"key"))
    with pytest.raises(UnusedDatabase, match=r"no database .*ads\.db: check the path"):
        Client.from_config(path)
    assert not (path.parent / "ads.db").exists()
    open_database(f"sqlite:///{path.parent / 'ads.db'}").close()
    with pytest.raises(UnusedDatabase, match="no ad server has used this database"):
        Client.from_config(path)


@pytest.mark.parametrize("setting", ["service_key", "origin_key"])
def test_a_key_that_is_anothers_names_the_settings(world, path, setting, monkeypatch):
    key_file.create(path.parent / "request.key", FixedRandomness(b"key"))
    wrong = HELPER_KEYS[0].verifying.public.hex()
    lines = [f'{setting} = "{wrong}"' if line.startswith(setting) else line for line in CONFIG.splitlines()]
    monkeypatch.setattr(httpx, "Client", partial(httpx.Client, transport=world.transport))
    for cache, error in (("another", BadSignature), ("cache", CorruptCache)):
        path.write_text("\n".join(lines).replace('"cache"', f'"{cache}"'))
        with (
            Client.from_config(path) as client,
            pytest.raises(error, match="check service_key and origin_key"),
        ):
            client.select("tuesday")


def test_nothing_is_selected_by_a_clock_that_the_parameter_service_contradicts(world):
    """It would end a time that is to come: no report could be selected until then."""
    world.client._clock = FixedClock(world.clock.now() + 29 * 86_400)
    with pytest.raises(ClockDisagrees, match="the clock says"):
        world.client.select("tuesday")
    world.client._clock = world.clock
    world.frozen("tuesday", at=NOW + 100)
    assert [each.name for each in world.client.datasets()] == ["monday", "tuesday"]


def test_a_url_with_a_port_that_is_none_is_not_shown(path):
    key_file.create(path.parent / "request.key", FixedRandomness(b"key"))
    path.write_text(CONFIG.replace("sqlite:///ads.db", "postgresql://me:secret@host:port/ads"))
    with pytest.raises(BadConfig, match="database: not the URL of a database") as caught:
        Client.from_config(path)
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_other_databases_stay_as_they_are(path):
    path.write_text(CONFIG.replace("sqlite:///ads.db", "postgresql://me:secret@host/ads"))
    found = settings.read(path)
    assert found.database == "postgresql://me:secret@host/ads"
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('origin = "ads.example"', "", "origin: Field required"),
        (
            'cache = "cache"',
            'cache = "cache"\ncolour = "red"',
            "colour is not known; there are origin, database,",
        ),
        ('cache = "cache"', "cache = 5", "cache: Input should be a valid string"),
        ("origin_key = ", 'origin_key = "ab"\n#', "origin_key: String should match"),
        ('origin = "ads.example"', "origin = [", "no TOML"),
    ],
)
def test_a_mistake_in_a_configuration_is_one_clear_error(path, old, new, words):
    path.write_text(CONFIG.replace(old, new))
    with pytest.raises(BadConfig, match=words):
        settings.read(path)


def test_what_is_missing_is_named(path):
    with pytest.raises(BadConfig, match=r"nowhere.toml cannot be read"):
        Client.from_config(path.parent / "nowhere.toml")
    with pytest.raises(BadKeyFile, match=r"request.key cannot be read"):
        Client.from_config(path)
    key_file.create(path.parent / "request.key", FixedRandomness(b"key"))
    path.write_text(CONFIG.replace("sqlite:///ads.db", "nonsense"))
    with pytest.raises(BadConfig, match="database: not the URL of a database"):
        Client.from_config(path)


def test_the_room_shows_what_it_is_for():
    assert {maskedlark.adserver.Client, maskedlark.adserver.Between} == {Client, Between}
    with pytest.raises(AttributeError, match="Nothing"):
        _ = maskedlark.adserver.Nothing


def arguments(world):
    return Request.decode(world.helpers[0].received[-1]).arguments


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ({"campaign": "spring"}, {"key": "campaign", "among": ["spring"]}),
        ({"place": 7}, {"key": "place", "among": [7]}),
        ({"place": [7, "x"]}, {"key": "place", "among": [7, "x"]}),
        ({"place": np.int64(7)}, {"key": "place", "among": [7]}),
        ({"place": np.array([7, 8])}, {"key": "place", "among": [7, 8]}),
        ({"place": Between(1, 5)}, {"key": "place", "min": 1, "max": 5}),
        ({"place": Between(min=1)}, {"key": "place", "min": 1}),
        ({"place": Between(max=5)}, {"key": "place", "max": 5}),
    ],
)
def test_filters_are_plain_python(world, where, wanted):
    world.client.query("purchase", "campaign", where)
    assert arguments(world)["where"] == [wanted]
    assert arguments(world)["values"] == ["purchase"]


def test_a_filter_without_ends_is_refused(world):
    with pytest.raises(BadArguments, match="a min, a max, or both"):
        world.client.query(["purchase"], where={"place": Between()})


def test_a_query_of_nothing_is_refused_in_plain_words(world):
    with pytest.raises(BadArguments, match="values: at least 1 item, not 0"):
        world.client.query([])


def test_several_groupings_give_as_many_tables(world):
    for helper in world.helpers:
        _, columns = helper.tables[0]
        helper.tables.append(([()], [[column[0]] for column in columns]))
    found = world.client.query(["purchase"], [["campaign"], []])
    assert isinstance(found, list)
    assert arguments(world)["by"] == [["campaign"], []]
    assert [(table.by, len(table)) for table in found] == [(("campaign",), 2), ((), 1)]
    assert found[1].rows[0].numbers[0].estimate == 500


def test_several_keys_are_one_grouping(world):
    world.shares([500, -3], rows=[("autumn", 7), ("spring", 8)])
    table = world.client.query(["purchase"], ["campaign", "place"])
    assert arguments(world)["by"] == [["campaign", "place"]]
    assert [row["place"] for row in table] == [7, 8]


def test_no_group_at_all_is_an_empty_table(world):
    world.shares([], rows=[])
    assert len(world.client.query(["purchase"], "campaign")) == 0


def receipts(world):
    return [len(helper.ledger.receipts("ads.example")) for helper in world.helpers]


def test_explaining_spends_nothing_and_says_what_a_query_then_costs(world):
    before = receipts(world)
    found = world.client.explain(["purchase"], "campaign", noise=4.0)
    assert receipts(world) == before
    assert world.client.pending() == []
    table = world.client.query(["purchase"], "campaign", noise=4.0)
    assert found.charged_epsilon == pytest.approx(table.balance.charged_epsilon)
    assert found.left_epsilon == pytest.approx(table.balance.left_epsilon)
    assert found.columns[0].error == table.rows[0].numbers[0].error
    assert found.fits
    text = str(found)
    assert "Over 100 records (k = 50), with laplace noise of 4 from each of 2 helpers" in text
    assert "purchase by campaign: std. error 400,000.0" in text
    assert "; it would leave 7.75 of a source's budget. Nothing was spent." in text


def test_a_query_again_is_charged_again_unless_its_answer_is_to_be_shown_again(world):
    first = world.client.query(["purchase"], "campaign", noise=4.0)
    before = receipts(world)
    again = world.client.query(["purchase"], "campaign", noise=4.0, reuse=True)
    assert (again.request, again.rows) == (first.request, first.rows)
    assert receipts(world) == before
    # Warnings are errors here: it comes before anything is charged.
    with pytest.raises(AnsweredBefore):
        world.client.query(["purchase"], "campaign", noise=4.0)
    assert receipts(world) == before
    with pytest.warns(AnsweredBefore, match=f"as request {first.request}: this asks for another") as caught:
        assert world.client.query(["purchase"], "campaign", noise=4.0).request != first.request
    assert [each.filename for each in caught] == [__file__]
    assert receipts(world) == [each + 1 for each in before]


def test_to_finish_a_query_that_was_answered_before_is_no_other_answer(world):
    world.client.query(["purchase"], "campaign")
    world.helpers[1].fail = ["after"] * 3
    with pytest.warns(AnsweredBefore), pytest.raises(HelperAway):
        world.client.query(["purchase"], "campaign")
    (pending,) = world.client.pending()
    assert world.client.query(["purchase"], "campaign").request == pending.id


def test_explaining_finds_the_same_mistakes(world):
    with pytest.raises(BadArguments, match="no declared value"):
        world.client.explain(["nothing"])


def test_an_explanation_of_another_form_is_refused(world):
    world.helpers[1].explain = lambda body: b'{"cost": 5}'
    with pytest.raises(StrangeAnswer, match="helper-1"):
        world.client.explain(["purchase"])


@pytest.fixture
def generous(tmp_path):
    mechanisms = {
        "sums": {"kind": "laplace", "noise_floor": 0.25},
        "gradient": {"kind": "gaussian", "noise_floor": 0.5},
        "cells": {"kind": "gaussian", "noise_floor": 0.5},
    }
    world = World(tmp_path, mechanisms=mechanisms)
    world.frozen()
    world.shares([500, -3])
    yield world
    world.close()


@pytest.mark.filterwarnings("ignore::maskedlark.adserver.errors.AnsweredBefore")
def test_what_does_not_fit_names_the_noise_that_does(generous):
    for _ in range(3):
        generous.client.query(["purchase"], "campaign", noise=0.5)
    found = generous.client.explain(["purchase"], "campaign")
    assert (found.charged_epsilon, found.left_epsilon) == (4.0, -2.0)
    assert not found.fits
    assert found.noise_that_fits == 0.5
    assert "more than is left: 2 of 8 is left of a source's budget; epsilon = 2 fits, or noise 0.5" in str(
        found
    )
    generous.client.query(["purchase"], "campaign", noise=0.5)
    assert "0 of 8 is left of a source's budget; nothing more of use fits" in str(
        generous.client.explain(["purchase"], "campaign")
    )


class Doubled(Function):
    """A function of somebody else's: no file of this package knows it."""

    name = "doubled"
    purpose = Purpose.AGGREGATE

    def ask(self, document, arguments):
        if arguments:
            raise BadArguments("doubled takes no arguments")
        return DoubledQuery()


class DoubledQuery(Query):
    schemas = (TableSchema(("campaign",), (Column("doubled", Sensitivity(2, 2.0, 2), 2, width=2),)),)

    def over(self, records, device="cpu"):
        raise AssertionError("only helpers compute")


def test_a_function_of_somebody_elses_is_asked_like_any_other(tmp_path):
    mechanisms = cases.settings()["mechanisms"]
    world = World(tmp_path, mechanisms=mechanisms | {"doubled": mechanisms["sums"]})
    world.frozen()
    for sign, helper in zip((1, -1), world.helpers, strict=True):
        helper.function = Doubled()
        helper.tables = [([("autumn",)], [[[5 + sign * 1000, 7 - sign * 1000]]])]
    with pytest.raises(BadArguments, match="takes no arguments"):
        world.client.ask(Doubled(), {"more": 1})
    answered = world.client.ask(Doubled(), {}, noise=3.0)
    (combined,) = answered.tables
    assert combined.rows == [("autumn",)]
    assert combined.columns[0].tolist() == [[10, 14]]
    (table,) = tables(answered, 0.9)
    assert table.values == ("doubled[0]", "doubled[1]")
    assert {each.function for each in answered.receipts.values()} == {"doubled"}
    world.close()


@pytest.mark.filterwarnings("ignore::maskedlark.adserver.errors.AnsweredBefore")
def test_the_whole_way_on_either_database(tmp_path, database_url):
    world = World(tmp_path, database_url)
    world.frozen()
    world.shares([500, -3])
    assert world.client.query(["purchase"], "campaign").rows[0].numbers[0].estimate == 500
    world.helpers[1].fail = ["after"] * 3
    with pytest.raises(HelperAway):
        world.client.query(["purchase"], "campaign")
    world.client.close()
    world.client = world.start()
    (pending,) = world.client.pending()
    assert world.client.resume(pending.id)[0].rows[1].numbers[0].estimate == -3
    assert receipts(world) == [3, 3]
    world.close()


def test_an_answer_that_noise_would_drown_is_announced(world):
    usual, drowned = (world.client.explain(["purchase"], "campaign", noise=each) for each in (4.0, 4e6))
    assert "Nothing will come of it" not in str(usual)
    assert (
        str(drowned).splitlines()[-1].startswith("Nothing will come of it: noise is larger than any answer")
    )
