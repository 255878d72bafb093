"""The command that runs an ad server: what it opens, and what it says of mistakes."""

import sys

import pytest

from maskedlark.adserver import __main__ as module
from tests.unit.adserver.test_client import CONFIG


@pytest.fixture
def served(monkeypatch):
    """The apps that were served."""
    found: list[object] = []
    monkeypatch.setattr(module, "serve", lambda app, host, port: found.append((host, port)))
    return found


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["adserver", *map(str, arguments)])
    module.main()


def test_a_configuration_names_origin_and_database(served, tmp_path, monkeypatch):
    (tmp_path / "adserver.toml").write_text(CONFIG)
    made = []
    monkeypatch.setattr(module, "create_app", lambda origin, reports, clock: made.append(origin))
    run(monkeypatch, "--config", tmp_path / "adserver.toml", "--port", 8001)
    assert (served, made) == ([("127.0.0.1", 8001)], ["ads.example"])
    assert (tmp_path / "ads.db").exists()


def test_so_does_the_command_line(served, tmp_path, monkeypatch):
    run(monkeypatch, "--origin", "ads.example", "--database", f"sqlite:///{tmp_path / 'a.db'}")
    assert served == [("127.0.0.1", 0)]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--origin", "ads.example"),
        ("--database", "sqlite:///a.db"),
        ("--config", "a.toml", "--origin", "ads.example"),
    ],
)
def test_either_one_or_the_other_is_given(served, monkeypatch, capsys, arguments):
    with pytest.raises(SystemExit):
        run(monkeypatch, *arguments)
    assert "give either --config, or --origin and --database" in capsys.readouterr().err
    assert not served


def test_a_password_is_in_no_complaint(served, monkeypatch, tmp_path):
    (tmp_path / "adserver.toml").write_text(
        CONFIG.replace("sqlite:///ads.db", "postgresql://me:secret@host:port/ads")
    )
    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, "--config", tmp_path / "adserver.toml")
    assert str(caught.value).startswith("maskedlark.adserver: not the URL of a database")
    assert "secret" not in str(caught.value)
