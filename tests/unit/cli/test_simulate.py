"""What `maskedlark simulate` says once services run, and how it ends. The rest is in tests/integration."""

import shlex
import signal
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from maskedlark import cli
from maskedlark.cli.simulate import hints
from maskedlark.simulate import simulation
from tests.unit.parameters.cases import make, settings

FOLDER = Path("my play; $HOME")
RUN = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke


def running(ended=list):
    """A simulation as the command sees it."""
    here, values = (
        SimpleNamespace(address="http://127.0.0.1:8000"),
        [{"name": "spent here", "low": 0, "high": 9}],
    )
    models = settings()["models"][:1]
    declared = make(keys=["the ad"], values=values, models=models, decoys=[], fake_rate=0.0)
    cluster = SimpleNamespace(helpers=(), ended=ended, adserver=here, service=here)
    given = {"folder": FOLDER, "config": FOLDER / "adserver.toml", "encoder": "some"}
    return SimpleNamespace(frozen={}, cluster=cluster, document=declared, **given)


def test_what_to_type_next_is_typed_as_it_stands():
    said = "\n".join(hints(cast(Any, running()), FOLDER)).splitlines()
    lines = [shlex.split(each) for each in said if each.startswith("  maskedlark")]
    asked = ["maskedlark", "query", "--config", f"{FOLDER}/adserver.toml", "--group-by", "the ad"]
    assert lines == [
        [*asked, "--value", "spent here", "--explain"],
        [*asked, "--value", "spent here"],
        ["maskedlark", "fit", f"{FOLDER}/run.toml", "--explain"],
        ["maskedlark", "fit", f"{FOLDER}/run.toml"],
        ["maskedlark", "evaluate", f"{FOLDER}/run.toml", "--plan"],
        ["maskedlark", "evaluate", f"{FOLDER}/run.toml"],
        ["maskedlark", "train", f"{FOLDER}/train.toml", "--plan"],
        ["maskedlark", "train", f"{FOLDER}/train.toml"],
        ["maskedlark", "evaluate", f"{FOLDER}/train.toml", "--recalibrate"],
    ]


def ended(tmp_path, monkeypatch, how):
    """The exit code and the last line of a command whose services do this."""
    table = tmp_path / "people.csv"
    table.write_text("x\n1\n")
    monkeypatch.setattr(simulation, "start", lambda *_, **__: nullcontext(running(how)))
    done = RUN(cli.app, ["simulate", str(table)])
    return done.exit_code, done.stderr.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_ends_with_the_code_of_the_signal_that_stopped_it(tmp_path, monkeypatch, number):
    def told():
        signal.raise_signal(number)
        return ["nothing"]  # Where a signal is not heard, this does not run for ever.

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for each in before:
        signal.signal(each, signal.default_int_handler)
    try:
        found = ended(tmp_path, monkeypatch, told)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert found == (128 + number, "stopped; the same command carries on from here")


def test_a_service_that_ends_by_itself_is_away(tmp_path, monkeypatch):
    code, line = ended(tmp_path, monkeypatch, lambda: ["helper-0"])
    assert code == 4
    assert line.startswith("ServiceAway: helper-0 has ended")
