"""Signals to end, sent to this very process."""

import signal
from contextlib import contextmanager

import pytest
import typer
from typer.testing import CliRunner

from experiments import running
from maskedlark.cli import app, signals
from maskedlark.cli.audits import canaries, mask_attacks, training, weights
from maskedlark.cli.error_handling import report_errors

ENDS = [signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def as_before():
    """Whatever goes wrong here, the tests that follow have the signals that they had."""
    before = {each: signal.getsignal(each) for each in (*ENDS, signal.SIGINT)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def heard(number, frame):
    """A handler of somebody else."""


@contextmanager
def leaving(left):
    """What somebody has started, and stops."""
    try:
        yield
    finally:
        left.append("in order")


@pytest.mark.parametrize("number", ENDS)
def test_a_signal_to_end_leaves_every_with_and_gives_its_code(number, capsys):
    signal.signal(number, heard)
    left: list[str] = []

    @report_errors
    def command():
        with signals.as_interrupts(), leaving(left):
            signal.raise_signal(number)

    with pytest.raises(typer.Exit) as ended:
        command()
    assert ended.value.exit_code == 128 + number
    assert left == ["in order"]
    assert capsys.readouterr().err == "interrupted\n"
    assert signal.getsignal(number) is heard


@pytest.mark.parametrize("number", ENDS)
def test_a_signal_that_is_ignored_stays_so(number):
    signal.signal(number, signal.SIG_IGN)
    with signals.as_interrupts():
        signal.raise_signal(number)
    assert signal.getsignal(number) is signal.SIG_IGN


def test_without_a_signal_all_is_as_before():
    for each in ENDS:
        signal.signal(each, heard)
    with signals.as_interrupts():
        assert heard not in map(signal.getsignal, ENDS)
    assert [*map(signal.getsignal, ENDS)] == [heard, heard]


def test_ctrl_c_is_left_to_who_runs_it():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt) as ended, signals.as_interrupts():
        signal.raise_signal(signal.SIGINT)
    assert signals.exit_code(ended.value) == 130
    assert signals.exit_code(signals.Terminated(signal.SIGTERM)) == 143


@pytest.mark.parametrize(
    ("command", "module", "name"),
    [
        (["audit", "masks"], mask_attacks, "run"),
        (["audit", "canaries"], canaries, "run"),
        (["audit", "training"], training, "run"),
        (["audit", "weights"], weights, "run"),
        (["experiment", "cost", "--quick"], running, "main"),
    ],
)
def test_commands_that_start_services_or_workers_end_in_order(command, module, name, monkeypatch):
    signal.signal(signal.SIGTERM, heard)
    left: list[str] = []

    def told(*_):
        with leaving(left):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(module, name, told)
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, left) == (128 + signal.SIGTERM, ["in order"])
