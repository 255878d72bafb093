"""Whoever waits over two seconds sees what for, and how long; nobody else sees anything."""

import io
import time

import pytest
from rich.console import Console

from maskedlark.adserver import stages
from maskedlark.cli import output


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(output, "_PATIENCE_S", 0.05)


def test_nothing_is_said_of_what_is_fast(capsys, monkeypatch):
    monkeypatch.setattr(output, "_PATIENCE_S", 60.0)
    with output.said_if_slow("asking"):
        stages.at("nobody sees this")
    assert capsys.readouterr().err == ""


def test_every_stage_that_lasts_is_said_once(capsys):
    with output.said_if_slow("asking the helpers"):
        stages.at("waiting for helper-0")
        time.sleep(0.4)
        stages.at("waiting for [helper-1]")
        time.sleep(0.4)
    stages.at("and no more")
    first, second = capsys.readouterr().err.splitlines()
    assert first == "waiting for helper-0 … (0 s)"
    assert second.startswith("waiting for [helper-1] … (")


def test_on_a_terminal_one_line_counts_seconds_and_is_gone_at_the_end(monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr(output, "Console", lambda stderr: console)
    with output.said_if_slow("asking the helpers"):
        time.sleep(0.3)
        stages.at("waiting for [helper-1]")
        time.sleep(1.2)
    shown = screen.getvalue()
    assert "asking the helpers" in shown
    assert "waiting for [helper-1]" in shown
    assert "0:00:01" in shown
    assert shown.endswith("\x1b[2K"), "erased"


def test_an_error_ends_it():
    with pytest.raises(ZeroDivisionError), output.said_if_slow("asking"):
        raise ZeroDivisionError
