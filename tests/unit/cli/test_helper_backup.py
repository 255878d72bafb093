"""Backup, restore and recover, as an operator types them: what they say, and in one line."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from maskedlark.cli.helper import app
from maskedlark.clock import SystemClock
from maskedlark.helper import config
from maskedlark.helper.service import open_service
from maskedlark.randomness import SystemRandomness
from tests.unit.cli.helper_folder import one_line

RUN = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke


@pytest.fixture
def copied(world):
    """A helper that answered nothing yet, and its backup."""
    world.run("rotate", *world.config, *world.identity)
    with open_service(config.read(world.toml), SystemClock(), SystemRandomness()):
        said = world.run("backup", *world.config, "--to", world.folder / "copy").stdout
        again = world.run("backup", *world.config, "--to", world.folder / "another", "--json").stdout
    assert said.startswith("2 files, ")
    found = json.loads(again)
    assert (found["files"], found["folder"]) == (2, str(world.folder / "another"))
    return world


def lose(world) -> None:
    shutil.rmtree(world.folder / "h" / "state" / "database")


def test_a_backup_is_put_back_and_recovered(copied):
    one_line(copied.run("restore", *copied.config, "--from", copied.folder / "copy", code=1), "is there")
    lose(copied)
    done = copied.run("restore", *copied.config, "--from", copied.folder / "copy")
    assert done.stdout.startswith("2 files of ")
    one_line(done, "maskedlark helper recover")
    one_line(copied.run("serve", *copied.config, code=1), "LedgerBehind: this ledger was put back")
    one_line(copied.run("recover", *copied.config, code=1), "ReceiptsMissing: there is no anchor")
    asked = [*map(str, copied.config), "--anchor-lost"]
    refused = RUN(app, ["recover", *asked], input="n\n")
    assert (refused.exit_code, "all origins" in refused.output) == (1, True)
    done = RUN(app, ["recover", *asked, "--json"], input="y\n")
    nothing = {"put_back": {}, "datasets_lost": {}, "closed": {}, "aborted": 0, "refused_before_hour": None}
    assert json.loads(done.stdout.splitlines()[-1]) == nothing  # Above it is what was typed.
    done = RUN(app, ["recover", *asked], input="y\n")
    assert done.stdout.splitlines()[-1] == "nothing was lost"
    with open_service(config.read(copied.toml), SystemClock(), SystemRandomness()):
        pass


def test_what_cannot_be_backed_up_or_put_back_is_one_line(copied):
    again = copied.run("backup", *copied.config, "--to", copied.folder / "copy", code=1)
    one_line(again, "there already: name a new folder")
    one_line(copied.run("backup", *copied.config, "--to", copied.folder / "no" / "copy", code=1), "No such")
    one_line(copied.run("restore", *copied.config, "--from", copied.folder, code=1), "is no backup")
    lose(copied)
    one_line(
        copied.run("backup", *copied.config, "--to", copied.folder / "other", code=1), "there is no folder"
    )
    assert not (copied.folder / "other").exists()


def test_receipts_that_are_none_say_where(copied):
    (copied.folder / "bad.jsonl").write_text("nonsense\n")
    done = copied.run("recover", *copied.config, "--receipts", copied.folder / "bad.jsonl", code=1)
    one_line(done, "BadReceipt: line 1 of ")


def test_without_keys_the_way_on_is_said(copied):
    shutil.rmtree(copied.keys.parent)
    one_line(copied.run("recover", *copied.config, code=1), "maskedlark helper rotate")
