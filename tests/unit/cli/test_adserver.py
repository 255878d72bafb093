import os
import stat
import threading

import pytest
from typer.testing import CliRunner

import maskedlark.cli
from maskedlark.adserver import config
from maskedlark.adserver.report_store import Reports
from maskedlark.adserver.retention import DAY_S
from maskedlark.cli import adserver
from maskedlark.cli.adserver import app
from maskedlark.clock import FixedClock, SystemClock
from maskedlark.randomness import SystemRandomness
from maskedlark.storage.engine import open_database
from maskedlark.web import key_file, serving
from maskedlark.web.errors import BadConfig
from maskedlark.web.parameters import ParameterClient
from tests.unit.adserver.measuring import CONFIG
from tests.unit.adserver.stored import arrivals
from tests.unit.parameters.cases import SERVICE_KEY

RUN = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke
COMMANDS = ["init", "serve"]
SERVICE = ["--parameter-service", "https://p.example", "--service-key", SERVICE_KEY.verifying.public.hex()]


def run(*arguments, code=0):
    done = RUN(app, [str(each) for each in arguments])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def public(key):
    return key.verifying.public.hex()


def one_line(done, word):
    assert done.stderr.count("\n") == 1, done.stderr
    assert word in done.stderr


@pytest.fixture
def served(monkeypatch):
    """Where it would have listened."""
    found: list[tuple[str, int]] = []
    monkeypatch.setattr(
        serving, "serve", lambda _, settings, **_more: found.append((settings.host, settings.port))
    )
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_an_example(command):
    shown = RUN(maskedlark.cli.app, ["adserver", command, "--help"])
    assert shown.exit_code == 0
    assert f"Example: maskedlark adserver {command} " in " ".join(shown.output.split())


def test_the_commands_are_these():
    assert [getattr(command.callback, "__name__", None) for command in app.registered_commands] == COMMANDS


def test_a_configuration_names_everything(served, begun, tmp_path, monkeypatch):
    path = tmp_path / "adserver.toml"
    path.write_text(CONFIG + "[limits]\nuploads = 3\n[serving]\nport = 9\n")
    made = []
    monkeypatch.setattr(adserver, "create_app", lambda origin, *rest: made.append((origin, rest[3].uploads)))
    run("serve", "--config", path)
    run("serve", "--config", path, "--host", "::1", "--port", 8001, "--log-level", "warning")
    assert served == [("127.0.0.1", 9), ("::1", 8001)]
    assert made == [("ads.example", 3)] * 2
    assert begun == [("adserver", "INFO"), ("adserver", "WARNING")]
    assert stat.S_IMODE((tmp_path / "ads.db").stat().st_mode) == 0o600
    assert os.umask(0o077) == 0o077


def test_while_it_runs_old_reports_go(tmp_path, monkeypatch):
    (tmp_path / "adserver.toml").write_text(f"keep_days = 10\n{CONFIG}")
    database = open_database(f"sqlite:///{tmp_path / 'ads.db'}")
    now = SystemClock().now()
    for days in (20, 5):
        Reports(database, FixedClock(now - days * DAY_S)).store(arrivals(30, bytes([days])))
    reports, gone = Reports(database, SystemClock()), threading.Event()

    def serve(*_, **_more):
        while reports.count() > 30 and not gone.wait(0.05):
            pass

    monkeypatch.setattr(serving, "serve", serve)
    monkeypatch.setattr(ParameterClient, "time", lambda self, nonce: SystemClock().now())
    run("serve", "--config", tmp_path / "adserver.toml")
    assert reports.count() == 30
    database.close()


def test_init_makes_settings_that_serve(served, tmp_path):
    done = run("init", tmp_path / "ads", "--origin", "ads.example", *SERVICE)
    found = config.read(tmp_path / "ads" / "adserver.toml")
    assert found.key == tmp_path / "ads" / "request.key"
    request, document = (key_file.read(found.key.with_stem(name)) for name in ("request", "document"))
    assert done.stdout == f"document key {public(document)}\nrequest key {public(request)}\n"
    assert "document.key signs documents, and nothing here needs it: move it off this machine" in done.stderr
    assert (found.origin, found.origin_key, found.keep_days) == ("ads.example", public(document), 180)
    run("serve", "--config", tmp_path / "ads" / "adserver.toml")
    assert served == [("127.0.0.1", 0)]
    assert (tmp_path / "ads" / "reports.sqlite").exists()


def test_init_takes_keys_that_were_made_before(tmp_path):
    first = run("init", tmp_path / "one", "--origin", "ads.example", *SERVICE).stdout
    made = config.read(tmp_path / "one" / "adserver.toml")
    keys = ["--key", made.key, "--origin-key", made.origin_key]
    done = run("init", tmp_path / "two", "--origin", "ads.example", *SERVICE, *keys)
    assert (done.stdout, "document.key" in done.stderr) == (first, False)
    assert config.read(tmp_path / "two" / "adserver.toml").key == made.key
    assert [each.name for each in (tmp_path / "two").iterdir()] == ["adserver.toml"]


def test_init_refuses_one_key_for_both(tmp_path):
    key = tmp_path / "some.key"
    both = ["--key", key, "--origin-key", public(key_file.create(key, SystemRandomness()))]
    done = run("init", tmp_path / "ads", "--origin", "ads.example", *both, code=1)
    one_line(done, "some.key is the document key: leave --key out, and a request key is made")
    assert not (tmp_path / "ads").exists()


def test_settings_that_are_not_filled_in_say_what_to_write(tmp_path):
    run("init", tmp_path / "ads", "--origin", "ads.example")
    with pytest.raises(BadConfig, match=r"parameter_service: Field required\. Write .*service_key: Field"):
        config.read(tmp_path / "ads" / "adserver.toml")


def test_init_overwrites_nothing(tmp_path):
    run("init", tmp_path, "--origin", "ads.example")
    before = (tmp_path / "adserver.toml").read_bytes()
    one_line(run("init", tmp_path, "--origin", "other.example", code=1), "exists already")
    (tmp_path / "adserver.toml").rename(tmp_path / "aside.toml")
    one_line(run("init", tmp_path, "--origin", "other.example", code=1), "never overwritten")
    assert (tmp_path / "aside.toml").read_bytes() == before
    assert not (tmp_path / "adserver.toml").exists()


@pytest.mark.parametrize(
    ("said", "word"),
    [
        (["--origin", "Ads Example"], "--origin: "),
        (["--origin", "ads.example", "--parameter-service", "p.example"], "--parameter-service: not an"),
        (["--origin", "ads.example", "--service-key", "12"], "--service-key: "),
        (["--origin", "ads.example", "--origin-key", "12"], "--origin-key: "),
    ],
)
def test_init_refuses_what_no_ad_server_could_run_with(tmp_path, said, word):
    one_line(run("init", tmp_path / "ads", *said, code=1), word)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("colour = 1", "colour is not known; there are origin, database, key,"),
        (
            "limits = {upload = 1}",
            "limits.upload is not known; did you mean 'uploads'? [limits] has uploads, body_bytes,",
        ),
        ("keep_days = 0", "keep_days: "),
    ],
)
def test_what_keeps_it_from_starting_is_one_line(served, tmp_path, line, word):
    (tmp_path / "adserver.toml").write_text(f"{line}\n{CONFIG}")
    one_line(run("serve", "--config", tmp_path / "adserver.toml", code=1), word)
    assert not served
    assert not (tmp_path / "ads.db").exists()


def test_a_password_is_in_no_complaint(served, tmp_path):
    path = tmp_path / "adserver.toml"
    path.write_text(CONFIG.replace("sqlite:///ads.db", "postgresql://me:secret@host:port/ads"))
    done = run("serve", "--config", path, code=1)
    one_line(done, "database: not the URL of a database")
    assert "secret" not in done.output
