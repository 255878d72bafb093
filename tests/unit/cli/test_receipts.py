import json
from contextlib import closing, nullcontext

import httpx
import pytest
from typer.testing import CliRunner

from maskedlark.adserver.client import Client
from maskedlark.cli import app
from maskedlark.ledger import receipt
from maskedlark.ledger.receipt import ReleaseReceipt
from maskedlark.web import remote
from tests.unit.adserver.measuring import World
from tests.unit.ledger.ledgers import Signs
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS, SERVICE_KEY
from tests.unit.web.service import NOW

pytestmark = pytest.mark.filterwarnings("ignore::maskedlark.adserver.errors.AnsweredBefore")


RUN = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke
KEYS = (
    *("--service-key", SERVICE_KEY.verifying.public.hex()),
    *("--origin-key", DOCUMENT_KEY.verifying.public.hex()),
)
SERVICE = ("--service", "http://parameters.test")


class _Httpx:
    """httpx with another Client."""

    def __init__(self, make):
        self.Client = make

    def __getattr__(self, name):
        return getattr(httpx, name)


@pytest.fixture
def world(tmp_path, monkeypatch):
    world = World(tmp_path)
    world.frozen()
    world.shares([500, -3])
    for noise in (4.0, 2.0, 4.0):
        world.client.query(["purchase"], "campaign", noise=noise)
    reach(world, monkeypatch)
    yield world
    world.close()


def reach(world, monkeypatch):
    make = lambda **_: httpx.Client(transport=world.router)  # noqa: E731
    monkeypatch.setattr(remote, "httpx", _Httpx(make))
    monkeypatch.setattr(Client, "from_config", lambda path: nullcontext(world.client))


def run(*arguments, helper="helper-0", keys=KEYS, code=0):
    done = RUN(app, ["receipts", *map(str, arguments), "--helper", helper, *keys])
    assert done.exit_code == code, done.output
    return done


def complains(*arguments, **options):
    """The one line that a mistake makes."""
    done = run(*arguments, code=1, **options)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


@pytest.fixture
def files(world, tmp_path):
    out, chain = tmp_path / "receipts.jsonl", tmp_path / "chain.json"
    shown = run("fetch", "ads.example", *SERVICE, "--out", out, "--save-chain", chain).stdout
    assert shown == "4 receipts of helper-0 for ads.example, not verified\n"
    return out, chain


def verify(files, **options):
    return run("verify", "ads.example", "--file", files[0], "--chain", files[1], **options)


def refuses(files, **options):
    return complains("verify", "ads.example", "--file", files[0], "--chain", files[1], **options)


COST = [
    "4 receipts of helper-0 for ads.example verified: 1 dataset frozen, 3 queries answered, "
    "0 training sessions opened",
    "version 1: a source has cost at most ε = 1 at δ = 0, of ε = 8 at δ = 1e-06; "
    "ε = 1 if all helpers but one joined the ad server",
]


def test_a_stranger_verifies_what_a_helper_shows(world):
    assert run("verify", "ads.example", *SERVICE).stdout.splitlines() == COST


def test_what_was_verified_for_programs(world):
    assert json.loads(run("verify", "ads.example", *SERVICE, "--json").stdout) == {
        "origin": "ads.example",
        "helper": "helper-0",
        "receipts": 4,
        "datasets_frozen": 1,
        "reports_not_valid": 0,
        "queries_answered": 3,
        "training_sessions": [],
        "receipts_lost": 0,
        "spent": [
            {
                "version": 1,
                "epsilon": 1.0,
                "delta": 0.0,
                "coalition_epsilon": 1.0,
                "local_epsilon": 0.0,
                "budget_epsilon": 8.0,
                "budget_delta": 1e-06,
            }
        ],
    }


@pytest.mark.parametrize(("forged", "words"), [(1, "1 report was"), (2, "2 reports were")])
def test_reports_that_are_not_valid_are_counted_by_dataset_and_by_receipts(
    tmp_path, monkeypatch, forged, words
):
    with closing(World(tmp_path, checks="bits")) as world:
        reach(world, monkeypatch)
        ids = world.receive(60, at=NOW - 10)
        world.helpers[1].forged = set(ids[:forged])
        for helper in world.helpers:
            helper.ledger.pin(world.document, bytes(32))
        world.client.select("monday", NOW - 10, NOW)
        config = ("--config", "adserver.toml")
        refused = [f"helper-{place} refused {forged} (NotValid)" for place in range(2)]
        sent = RUN(app, ["datasets", "send", "monday", *config]).stdout.splitlines()
        assert sent == [f"monday: {60 - forged} of 60 reports frozen at every helper", *refused]
        listed = RUN(app, ["datasets", "list", *config]).stdout.splitlines()
        assert listed[0] == f"monday  frozen  {60 - forged} of 60 reports to aggregate"
        assert [line.strip() for line in listed[2:]] == refused
        for name in ("helper-0", "helper-1"):
            shown = run("verify", "ads.example", *SERVICE, helper=name).stdout.splitlines()
            assert shown[1] == f"{words} left out as not valid"
            fields = json.loads(run("verify", "ads.example", *SERVICE, "--json", helper=name).stdout)
            assert fields["reports_not_valid"] == forged


def test_more_receipts_than_wanted_are_not_read(world, tmp_path):
    words = "StrangeAnswer: helper-0 shows more than 3 receipts: if it has so many, give a larger --most"
    assert complains("verify", "ads.example", *SERVICE, "--most", 3) == words
    out = tmp_path / "receipts.jsonl"
    assert complains("fetch", "ads.example", *SERVICE, "--out", out, "--most", 3) == words
    assert not out.exists()
    run("verify", "ads.example", *SERVICE, "--most", 4)


def test_a_stranger_verifies_files_without_a_network(files, world):
    world.router.handle_request = None
    assert verify(files).stdout.splitlines() == COST


def test_what_was_fetched_for_programs(world, tmp_path):
    out = tmp_path / "fetched.jsonl"
    said = {"origin": "ads.example", "helper": "helper-0", "receipts": 4, "out": str(out)}
    assert json.loads(run("fetch", "ads.example", *SERVICE, "--out", out, "--json").stdout) == said


def test_every_helper_has_a_chain_of_its_own(world, files):
    assert "helper-1" in run("verify", "ads.example", *SERVICE, helper="helper-1").stdout
    assert refuses(files, helper="helper-1").endswith("does not verify")


def lines(files, change):
    kept = files[0].read_bytes().splitlines()
    files[0].write_bytes(b"".join(each + b"\n" for each in change(kept)))


def resigned(data, **changes):
    """A receipt that its helper signs, but that says something else."""
    signed = receipt.decode(data)
    made = ReleaseReceipt.model_validate_json(json.dumps(json.loads(signed.receipt) | changes))
    return receipt.sign(made, Signs(0).key, Signs(0).certificate).encode()


RELEASED = {"mechanism": "laplace", "noise": 40.0, "columns": 1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda kept: [*kept[:1], *kept[2:]], "BadReceipt: receipt 3 does not follow the 1 before it"),
        (lambda kept: kept[1:], "BadReceipt: receipt 2 does not follow the 0 before it"),
        (lambda kept: [kept[0], kept[2], kept[1]], "BadReceipt: receipt 3 does not follow"),
        (lambda kept: [*kept[:3], kept[3][:-9]], "BadReceipt: line 4 of"),
        (lambda kept: [kept[0].replace(b"60", b"61"), *kept[1:]], "Bad"),
        (
            lambda kept: [*kept[:3], resigned(kept[3], charge=RELEASED)],
            "BadReceipt: receipt 4 says another cost",
        ),
        (
            lambda kept: [*kept[:3], resigned(kept[3], datasets=["ab" * 32])],
            "BadReceipt: receipt 4 is over",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(files, change, words):
    lines(files, change)
    assert refuses(files).startswith(words)


def test_other_pinned_keys_verify_nothing(files):
    other = HELPER_KEYS[0].verifying.public.hex()
    words = "check --service-key and --origin-key"
    assert words in complains("verify", "ads.example", *SERVICE, keys=(*KEYS[:3], other))
    assert words in refuses(files, keys=(*KEYS[:3], other))
    assert refuses(files, keys=(*KEYS[:3], other)).startswith("BadSignature: ")
    assert refuses(files, keys=(KEYS[0], other, *KEYS[2:])).startswith("BadSignature: ")
    assert refuses(files, keys=(*KEYS[:3], "abc")).startswith("BadKeyFile: 'abc' is no public key")


def test_mistakes_are_one_clear_line(world, tmp_path):
    missing = tmp_path / "nowhere"
    assert refuses((missing, missing)) == f"{missing}: No such file or directory"
    words = "UnknownHelper: no document names a helper 'nobody'; they name helper-0, helper-1"
    assert complains("verify", "ads.example", *SERVICE, helper="nobody") == words
    assert complains("verify", "other.example", *SERVICE).startswith("UnknownOrigin: ")


@pytest.mark.parametrize(
    "options", [(), ("--file", "x"), ("--chain", "x"), (*SERVICE, "--file", "x", "--chain", "y")]
)
def test_either_a_service_or_files_are_read(world, options):
    done = run("verify", "ads.example", *options, code=2)
    assert "--service" in done.stderr


@pytest.mark.parametrize(
    "page", [b"<html>", b'{"receipts":[]}', b'{"receipts":[],"more":true}', b'{"receipts":[{}],"more":false}']
)
def test_a_page_that_is_none_is_one_clear_line(world, page):
    world.helpers[0].receipts = lambda origin, after: page
    assert complains("verify", "ads.example", *SERVICE).startswith("StrangeAnswer: a page of receipts")


def test_what_the_ad_server_keeps_is_what_a_helper_is_recovered_with(files, world, tmp_path):
    done = RUN(app, [
        "receipts", "kept", "--config", "adserver.toml", "--helper", "helper-0",
        "--out", str(tmp_path / "kept"),
    ])  # fmt: skip
    assert done.output == "4 receipts of helper-0\n"
    assert (tmp_path / "kept").read_bytes() == files[0].read_bytes()
