import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from unittest.mock import Mock

import httpx
import pytest

import maskedlark.cli
from maskedlark.cli import helper as cli_helper
from maskedlark.cli.helper import app
from maskedlark.clock import FixedClock, SystemClock
from maskedlark.helper import config, recovery
from maskedlark.helper.anchor import FileAnchor
from maskedlark.helper.recovery import Recovered
from maskedlark.ledger.rows import ChainHead
from maskedlark.randomness import SystemRandomness
from maskedlark.web import key_file, serving
from maskedlark.web.errors import BadConfig
from maskedlark.wire import keys
from tests.unit.cli.helper_folder import RUN, one_line
from tests.unit.parameters.cases import DOCUMENT_KEY, SERVICE_KEY
from tests.unit.web.service import away

COMMANDS = ["init", "rotate", "publish", "serve", "accept-ledger", "backup", "restore", "recover"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_an_example(command):
    shown = RUN(maskedlark.cli.app, ["helper", command, "--help"])
    assert shown.exit_code == 0
    assert f"Example: maskedlark helper {command} " in " ".join(shown.output.split())


def test_the_commands_are_these():
    assert [
        command.name or getattr(command.callback, "__name__", None) for command in app.registered_commands
    ] == COMMANDS


def test_init_makes_settings_that_only_have_to_be_filled_in(world, tmp_path):
    found = config.read(world.toml)
    assert (found.name, found.address) == ("helper-0", "https://h.example")
    assert found.policy.trusted_helpers == (world.public.public.hex(),)
    assert found.keys_folder == tmp_path / "h" / "state" / "keys"
    assert stat.S_IMODE((tmp_path / "identity.key").stat().st_mode) == 0o600


def test_settings_that_are_not_filled_in_say_what_to_write(tmp_path):
    done = RUN(app, ["init", str(tmp_path), "--name", "helper-0", "--address", "https://h.example"])
    assert (done.exit_code, done.stdout) == (0, "")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["helper.toml"]
    with pytest.raises(BadConfig, match=r"parameter_service: Field required.*service_key: Field required"):
        config.read(tmp_path / "helper.toml")


def test_init_with_all_that_is_needed_leaves_nothing_to_fill_in(tmp_path):
    key = SERVICE_KEY.verifying.public.hex()
    said = ["--parameter-service", "https://parameters.example", "--service-key", key, "--trust", key]
    said += ["--origin", f"ads.example={DOCUMENT_KEY.verifying.public.hex()}"]
    address = ["--name", "helper-0", "--address", "https://h.example"]
    done = RUN(app, ["init", str(tmp_path / "h"), *address, *said])
    assert done.exit_code == 0, done.output
    found = config.read(tmp_path / "h" / "helper.toml")
    assert (found.parameter_service, found.service_key) == ("https://parameters.example", key)
    assert found.policy.trusted_helpers == (key,)
    assert found.pinned == {"ads.example": DOCUMENT_KEY.verifying}


def test_init_overwrites_nothing(world, tmp_path):
    before = world.toml.read_bytes()
    again = ["--name", "helper-1", "--address", "https://h.example"]
    one_line(world.run("init", tmp_path / "h", *again, code=1), "exists already")
    one_line(world.run("init", tmp_path / "i", *again, *world.identity, code=1), "never overwritten")
    assert world.toml.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "address", "word"),
    [("é", "https://h.example", "name: "), ("helper-0", "h.example", "address: not an address")],
)
def test_init_refuses_what_no_helper_could_run_with(tmp_path, name, address, word):
    arguments = ["--name", name, "--address", address, "--identity", str(tmp_path / "new.key")]
    done = RUN(app, ["init", str(tmp_path / "h"), *arguments])
    assert done.exit_code == 1
    one_line(done, word)
    assert list(tmp_path.iterdir()) == []


def test_rotate_makes_keys_and_publishes_them(world):
    assert "sequence 1" in world.run("rotate", *world.config, *world.identity).output
    at = {"helper": "helper-0", "published_at": "http://parameters.test"}
    assert json.loads(world.run("publish", *world.config, "--json").stdout) == at
    assert world.published().address == "https://h.example"
    world.run("rotate", *world.config, *world.identity)
    assert (world.published().sequence, len(world.published().keys)) == (2, 2)
    assert stat.S_IMODE(world.keys.stat().st_mode) == 0o600


def test_keys_can_be_published_later_and_without_the_identity(world):
    world.run(
        "rotate", *world.config, *world.identity, "--no-publish", "--valid-days", 3, "--overlap-days", 2
    )
    (world.folder / "identity.key").unlink()
    for _ in range(2):
        world.run("publish", *world.config)
    (key,) = world.published().keys
    assert world.published().sequence == 1
    assert 5 * 86_400 <= key.not_after - key.not_before < 6 * 86_400


def test_a_helper_that_lost_its_keys_goes_on_behind_what_it_published(world):
    for _ in range(2):
        world.run("rotate", *world.config, *world.identity)
    shutil.rmtree(world.keys.parent)
    world.run("rotate", *world.config, *world.identity)
    assert (world.published().sequence, len(world.published().keys)) == (3, 1)


def test_refusals_of_a_rotation_are_one_line(world, tmp_path):
    key_file.create(tmp_path / "other.key", SystemRandomness())
    other = ["--identity", tmp_path / "other.key"]
    one_line(world.run("rotate", *world.config, "--identity", tmp_path / "none.key", code=1), "No such file")
    world.run("rotate", *world.config, *world.identity)
    one_line(world.run("rotate", *world.config, *other, "--no-publish", code=1), "another identity")
    one_line(world.run("rotate", *world.config, *other, code=1), "BadSignature")
    before = world.keys.read_bytes()
    world.transport.app = away
    one_line(world.run("rotate", *world.config, *world.identity, code=4), "ServiceAway")
    assert world.keys.read_bytes() == before
    one_line(world.run("publish", *world.config, code=4), "ServiceAway")


def test_serve_needs_no_identity(world, monkeypatch):
    world.run("rotate", *world.config, *world.identity)
    (world.folder / "identity.key").unlink()
    seen = []
    monkeypatch.setattr(
        serving, "serve", lambda _, settings, **_more: seen.append((settings.host, settings.port))
    )
    world.run("serve", *world.config)
    world.run("serve", *world.config, "--host", "::1", "--port", "8001")
    world.toml.write_text(world.toml.read_text() + 'host = "0.0.0.0"\nport = 9\n')
    world.run("serve", *world.config)
    world.run("serve", *world.config, "--port", "0")
    assert seen == [("127.0.0.1", 0), ("::1", 8001), ("0.0.0.0", 9), ("0.0.0.0", 0)]


def test_what_keeps_a_helper_from_starting_is_one_line(world, monkeypatch):
    monkeypatch.setattr(serving, "serve", lambda *_, **_more: pytest.fail("it must not start"))
    one_line(world.run("serve", *world.config, code=1), "maskedlark helper rotate")
    world.run("rotate", *world.config, *world.identity)
    world.keys.chmod(0o644)
    one_line(world.run("serve", *world.config, code=1), "open to others")
    world.keys.chmod(0o600)
    good = world.toml.read_text()
    for line, word in (("colour = 1", "colour is not known"), ('functions = ["none.such"]', "no module")):
        world.toml.write_text(f"{line}\n{good}")
        one_line(world.run("serve", *world.config, code=1), word)
    world.toml.write_text(good)
    FileAnchor(config.read(world.toml).anchor_folder).write("ads.example", ChainHead(3, bytes(32)))
    one_line(world.run("serve", *world.config, code=1), "LedgerBehind: the ledger lacks receipt 3")


def test_it_says_where_it_listens_answers_and_stops(world):
    world.run("rotate", *world.config, *world.identity)
    command = [sys.executable, "-m", "maskedlark", "helper", "serve", "--config", str(world.toml)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as running:
        try:
            assert running.stdout is not None
            said = running.stdout.readline()
            assert said.startswith("listening on http://127.0.0.1:")
            address = said.removeprefix("listening on ").strip()
            found = httpx.get(f"{address}/v2/keys", trust_env=False).content
            assert keys.verify(found, "helper-0", world.public) == world.published()
        finally:
            running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0


@pytest.mark.parametrize("off", [29 * 86_400, -29 * 86_400])
def test_keys_are_not_made_nor_a_ledger_recovered_by_a_clock_that_is_wrong(world, monkeypatch, off):
    world.run("rotate", *world.config, *world.identity)
    before = world.keys.read_bytes()
    monkeypatch.setattr(cli_helper, "SystemClock", lambda: FixedClock(SystemClock().now() + off))
    for words in (["rotate", *world.config, *world.identity], ["recover", *world.config]):
        one_line(world.run(*words, code=4), "ClockDisagrees: the clock says")
    assert world.keys.read_bytes() == before
    world.transport.app = away  # With nobody to ask, the operator's clock counts.
    world.run("rotate", *world.config, *world.identity, "--no-publish")
    assert world.keys.read_bytes() != before


def test_a_ledger_is_recovered_by_a_clock_that_nothing_confirms_only_if_the_operator_does(world, monkeypatch):
    world.run("rotate", *world.config, *world.identity)
    world.transport.app = away
    recovering = Mock(return_value=Recovered())
    monkeypatch.setattr(recovery, "recover", recovering)
    for typed, code in (("n\n", 1), ("y\n", 0)):
        done = RUN(app, ["recover", *map(str, world.config)], input=typed)
        assert "Nothing confirms this clock. Is it 20" in done.output
        assert (done.exit_code, recovering.call_count) == (code, 1 - code)
