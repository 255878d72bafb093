import json
import re

import pytest
from typer.testing import CliRunner

from maskedlark.adserver.client import Client
from maskedlark.adserver.query_arguments import Between
from maskedlark.adserver.table import Table
from maskedlark.cli import app
from maskedlark.cli.query import parse_where
from maskedlark.errors import BadArguments
from maskedlark.release.messages import Request
from tests.unit.adserver.measuring import World
from tests.unit.web.service import NOW

RUN = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke


@pytest.fixture
def world(tmp_path, monkeypatch):
    world = World(tmp_path)
    # What a configuration opens is tested with the client: here it opens this world.
    monkeypatch.setattr(Client, "from_config", lambda path: world.start())
    yield world
    world.close()


@pytest.fixture
def measured(world):
    world.frozen()
    world.shares([500, -3])
    return world


def run(*arguments, code=0):
    done = RUN(app, [*arguments, "--config", "adserver.toml"])
    assert done.exit_code == code, done.output
    return done


def complains(*arguments, code=1):
    """The one line that a mistake makes."""
    done = run(*arguments, code=code)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def asked(world):
    return Request.decode(world.helpers[0].received[-1])


def test_a_table_is_printed_with_its_cost(measured):
    shown = run("query", "--group-by", "campaign", "--value", "purchase").stdout
    lines = shown.splitlines()
    assert lines[0].startswith("campaign  purchase  std. error")
    assert lines[1].startswith("autumn         500")
    assert "k = 50" in shown
    assert "This cost ε = 1 against everybody." in shown


def test_every_option_reaches_the_question(measured):
    measured.shares([1, 2], [3, 4], rows=[("autumn", 1), ("spring", 2)])
    shown = run(
        *("query", "--group-by", "campaign,place", "--value", "purchase", "--value", "count"),
        *("--where", "campaign=spring,autumn", "--where", "place=18..30", "--dataset", "monday"),
        *("--noise", "3", "--confidence", "0.5"),
    ).stdout
    request = asked(measured)
    assert request.arguments == {
        "values": ["purchase", "count"],
        "by": [["campaign", "place"]],
        "where": [
            {"key": "campaign", "among": ["spring", "autumn"]},
            {"key": "place", "min": 18, "max": 30},
        ],
    }
    assert (request.noise, len(request.datasets)) == (3.0, 1)
    assert "50 % interval" in shown


def test_a_cost_becomes_noise(measured):
    run("query", "--group-by", "campaign", "--value", "purchase", "--epsilon", "0.25")
    assert asked(measured).noise == 4.0


def test_several_tables_are_asked_at_once(measured):
    for helper in measured.helpers:
        _, columns = helper.tables[0]
        helper.tables.append(([("a", 1), ("b", 2)], columns))
    options = ("--group-by", "campaign", "--group-by", "campaign,place", "--value", "purchase")
    found = json.loads(run("query", *options, "--json").stdout)
    assert list(found) == ["tables"]
    found = found["tables"]
    assert [each["by"] for each in found] == [["campaign"], ["campaign", "place"]]
    assert found[1]["rows"][0]["purchase"] == 500


def test_one_table_is_the_same_object_of_json(measured):
    found = json.loads(run("query", "--group-by", "campaign", "--value", "purchase", "--json").stdout)
    assert [len(table["rows"]) for table in found["tables"]] == [2]


QUERY = ("query", "--group-by", "campaign", "--value", "purchase")


def spent(world, place=0):
    return len(world.helpers[place].ledger.receipts("ads.example")) - 1


def left_pending(world):
    world.helpers[1].fail = ["before"] * 3
    line = complains(*QUERY, code=4)
    (pending,) = world.client.pending()
    assert line.startswith("HelperAway: helper-1 stays away")
    assert re.search(rf"`maskedlark query --config \S+ --resume {pending.id}`", line)
    return pending.id


def test_what_is_pending_is_listed_and_finished(measured):
    assert run("query", "--pending").stdout == ""
    pending = left_pending(measured)
    shown = run("query", "--pending").stdout
    assert shown.startswith(f"{pending}  2030-03-17 17:46:50 UTC\n  sums {{")
    assert "over 1 dataset, noise 1" in shown
    (found,) = json.loads(run("query", "--pending", "--json").stdout)["pending"]
    assert (found["id"], found["asked"], found["noise"]) == (pending, "2030-03-17T17:46:50Z", 1.0)
    done = run("query", "--resume", pending)
    assert done.stdout.splitlines()[1].startswith("autumn         500")
    assert json.loads(run("query", "--resume", pending, "--json").stdout)["tables"][0]["request"] == pending
    assert run("query", "--pending").stdout == ""
    assert [spent(measured, place) for place in range(2)] == [1, 1]


def test_what_is_forgotten_stays_charged_and_says_so(measured):
    pending = left_pending(measured)
    assert "what helpers have charged for it stays charged" in run("query", "--forget", pending).stderr
    assert run("query", "--pending").stdout == ""
    assert complains("query", "--forget", "abc").startswith("UnknownRequest: no request 'abc'")


def test_an_answer_that_cannot_be_written_is_not_lost(measured, monkeypatch):
    def full(table):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Table, "__str__", full)
        done = run(*QUERY, code=1)
    request, line = done.stderr.splitlines()
    assert line.endswith("No space left on device")
    shown = run("query", "--resume", request.removeprefix("request ")).stdout
    assert "autumn         500" in shown
    assert request.removeprefix("request ") in shown
    assert spent(measured) == 1


@pytest.mark.parametrize(
    "options", [(), ("--pending", "--value", "count"), ("--resume", "x", "--forget", "x")]
)
def test_one_thing_is_done_at_a_time(measured, options):
    assert "--pending, --resume" in run("query", *options, code=2).stderr


def test_an_empty_answer_says_why(measured):
    measured.shares([], rows=[])
    shown = run(*QUERY, "--where", "place=1..3").stdout
    assert "No group has k = 50 records" in shown
    assert "A filter matches whole entries" in shown


def test_explaining_asks_nothing(measured):
    options = ("query", "--group-by", "campaign", "--value", "purchase", "--explain")
    assert (
        "It would cost ε = 1 against the ad server and against it with all helpers but one; it would leave 7 "
        "of a source's budget. Nothing was spent."
    ) in run(*options).stdout
    assert json.loads(run(*options, "--json").stdout)["left_epsilon"] == 7.0
    assert not measured.helpers[0].received


def test_an_epsilon_that_is_larger_than_the_noise_allows_is_said_to_be(measured):
    options = ("query", "--group-by", "campaign", "--value", "purchase", "--explain", "--epsilon")
    said = "(noise is at its declared floor: no larger ε is possible)"
    assert (
        f"It would cost ε = 1 against the ad server and against it with all helpers but one {said}; it"
        in (run(*options, "6").stdout)
    )
    assert said not in run(*options, "0.5").stdout


def test_what_would_be_refused_exits_as_the_question_would_and_says_what_fits(measured):
    values = ["--value", "purchase", "--value", "visit", "--value", "count"]
    groupings = ["--group-by", "campaign", "--group-by", "place", "--group-by", "campaign,place"]
    shown = run("query", *values, *groupings, "--explain", code=3).stdout
    fits = re.search(
        r"ε = 9 against .*, which is more than is left: 8 of 8 is left of a source's budget; "
        r"epsilon = (\S+) fits, or noise (\S+?)\. Nothing was spent\.",
        shown,
    )
    assert fits, shown
    for option, figure in zip(("--epsilon", "--noise"), fits.groups(), strict=True):
        run("query", *values, *groupings, option, figure, "--explain")
    found = json.loads(run("query", *values, *groupings, "--explain", "--json", code=3).stdout)
    assert found["exceeded"] == {"of": "a source's budget", "left_epsilon": 8.0, "most_epsilon": 8.0}
    assert not found["fits"]
    assert not measured.helpers[0].received


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--value", "nothing"],
            "BadArguments: 'nothing' is no declared value; there are count, purchase, visit",
        ),
        (
            ["--value", "count", "--group-by", "x"],
            "BadArguments: 'x' is no declared key; there are campaign, place",
        ),
        (["--value", "count", "--dataset", "x"], "UnknownDataset: no dataset 'x' here; there are monday"),
        (["--value", "count", "--where", "x"], "BadArguments: 'x' is no filter: write key=a,b or key=18..30"),
        (["--value", "count", "--where", "x=1"], "BadArguments: 'x' is no declared key"),
        (["--value", "count", "--noise", "0.1"], "NoiseTooSmall: noise 0.1 is below the declared 1"),
        (
            ["--value", "count", "--noise", "2", "--epsilon", "1"],
            "BadArguments: give the noise or what it may",
        ),
        (["--value", "count", "--value", "count"], "BadArguments: a value is named twice"),
    ],
)
def test_a_mistake_is_one_clear_line(measured, options, words):
    assert complains("query", *options).startswith(words)
    assert not measured.helpers[0].received


def test_a_budget_that_is_spent_is_one_clear_line(measured):
    options = ("query", "--group-by", "campaign", "--value", "purchase", "--noise", "1.3", "--again")
    for _ in range(10):
        run(*options)
    line = complains(*options, code=3)
    assert line.startswith("BudgetExhausted: helper-0: this would cost ε = 0.7692 against the ad server and ")
    assert "; 0.3077 of 8 is left of a source's budget" in line
    assert "noise 3.25" in line


def test_a_question_asked_before_is_not_charged_again_unless_told_to(measured):
    options = ("query", "--group-by", "campaign", "--value", "purchase")
    first = run(*options)
    request, sent = first.stderr.split()[1], len(measured.helpers[0].received)
    line = complains(*options)
    assert line.startswith("AskedBefore: the same was asked and answered 20")
    assert f"--resume {request}` shows that answer again and costs nothing; with --again another is" in line
    assert len(measured.helpers[0].received) == sent, "no helper was asked"
    assert run("query", "--resume", request).stdout == first.stdout
    assert f"--resume {request}" in run(*options, "--explain").stderr
    assert run(*options, "--again").stderr.split()[1] != request
    run("query", "--group-by", "campaign", "--value", "purchase", "--noise", "2")


def test_a_configuration_that_is_not_there_is_one_clear_line(tmp_path):
    done = RUN(app, ["query", "--value", "count", "--config", str(tmp_path / "adserver.toml")])
    assert done.exit_code == 1
    assert done.stderr.startswith("BadConfig: ")
    assert len(done.stderr.splitlines()) == 1


def test_filters_are_read_as_they_are_written():
    assert parse_where(["a=x,y", "b=18..30", "c=18..", "d=..-5", "e=5,007,-3"]) == {
        "a": ["x", "y"],
        "b": Between(18, 30),
        "c": Between(18, None),
        "d": Between(None, -5),
        "e": ["5", "007", "-3", 5, -3],
    }


@pytest.mark.parametrize("text", ["a", "a=", "=b", "a=x..y", "a=1..2..3"])
def test_a_filter_of_another_form_is_refused(text):
    with pytest.raises(BadArguments, match="write key="):
        parse_where([text])


def test_two_filters_on_a_key_are_refused():
    with pytest.raises(BadArguments, match="two filters on a"):
        parse_where(["a=1", "a=2"])


def test_a_dataset_is_selected_sent_listed_and_kept(world):
    ids = world.receive(20, at=NOW - 10)
    world.helpers[1].refused = {ids[0]: "CannotOpen"}
    shown = run("datasets", "select", "monday", "--start", "2020-01-01", "--end", str(NOW)).stdout
    assert (
        shown == "monday: 20 reports to aggregate, from 2020-01-01 00:00:00 until 2030-03-17 17:46:40 UTC\n"
    )
    shown = run("datasets", "send", "monday").stdout
    assert shown.splitlines() == [
        "monday: 19 of 20 reports frozen at every helper",
        "helper-1 refused 1 (CannotOpen)",
    ]
    lines = run("datasets", "list").stdout.splitlines()
    assert lines == [
        "monday  frozen  19 of 20 reports to aggregate",
        "  from 2020-01-01 00:00:00 until 2030-03-17 17:46:40 UTC",
        "  helper-1 refused 1 (CannotOpen)",
    ]
    assert max(map(len, lines)) <= 80
    assert complains("datasets", "abort", "monday").startswith("AlreadyFrozen: monday is frozen")


def test_datasets_for_programs(world):
    world.receive(20, at=NOW - 10)
    found = json.loads(run("datasets", "select", "monday", "--start", "2020-01-01", "--json").stdout)
    assert (found["name"], found["state"], found["reports"]) == ("monday", "selected", 20)
    assert (found["start"], found["end"]) == ("2020-01-01T00:00:00Z", "2030-03-17T17:46:40Z")
    sent = json.loads(run("datasets", "send", "monday", "--json").stdout)
    assert (sent["state"], sent["records"], sent["digest"]) == (
        "frozen",
        20,
        world.helpers[0].frozen["monday"].digest,
    )
    assert json.loads(run("datasets", "list", "--json").stdout) == {"datasets": [sent]}
    assert complains("datasets", "select", "tuesday", "--start", found["start"]).startswith(
        "Overlapping: monday"
    )


def test_a_dataset_is_given_up(world):
    world.receive(20, at=NOW - 10)
    run("datasets", "select", "monday")
    world.helpers[1].fail = [None, None, *["before"] * 3]
    complains("datasets", "send", "monday", code=4)
    assert "--give-up" in complains("datasets", "abort", "monday")
    shown = run("datasets", "abort", "monday", "--give-up").stdout
    assert shown == "monday: given up; its reports stay taken at helper-0, and answer nothing\n"
    assert run("datasets", "list").stdout.startswith("monday  lost  20 reports")


def test_a_dataset_is_aborted(world):
    world.receive(20, at=NOW - 10)
    run("datasets", "select", "monday")
    assert run("datasets", "abort", "monday").stdout == "monday: aborted\n"
    assert "aborted" in run("datasets", "list").stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["select", "monday", "--start", "yesterday"], "NotDeclared: 'yesterday' is no time"),
        (["select", "monday", "--parameters", "abc"], "NotDeclared: 'abc' is no digest"),
        (["select", "monday"], "EmptyDataset: no report to aggregate"),
        (["select", "a b"], "WrongType: 'a b' is no name of a dataset"),
        (["select", "monday", "--end", "2999-01-01"], "NotOver: 2999-01-01 00:00:00 UTC, the end of monday"),
        (["send", "monday"], "UnknownDataset: no dataset 'monday' here; there are none"),
        (["abort", "monday"], "UnknownDataset: no dataset 'monday' here"),
    ],
)
def test_a_mistake_with_datasets_is_one_clear_line(world, options, words):
    assert complains("datasets", *options).startswith(words)
