import json
import re

import pytest
from typer.testing import CliRunner

from maskedlark.adserver.client import Client
from maskedlark.cli import app
from maskedlark.training import load, recalibrating
from maskedlark.training import network as networks
from maskedlark.training.recalibrating import Recalibration
from tests.unit.training.cases import document, home, model
from tests.unit.training.recipes import BUILD, RUN, STEPPING

INVOKE = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A run, with helpers in memory where a client would be."""

    class InMemory:
        def __init__(self):
            self.home = home(document())

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def __getattr__(self, name):
            return getattr(self.home, name)

    monkeypatch.setattr(Client, "from_config", lambda path: InMemory())
    (tmp_path / "model.py").write_text(BUILD)
    (tmp_path / "run.toml").write_text(RUN + STEPPING)
    return tmp_path / "run.toml"


def test_the_plan_alone_charges_and_writes_nothing(written):
    written.write_text('folder = "run"\n' + written.read_text())
    done = INVOKE(app, ["train", str(written), "--plan"])
    assert done.exit_code == 0, done.output
    assert "4 steps of 150 of 300 records, each once in 2 steps" in done.stdout
    assert "against the ad server and against it with all helpers but one" in done.stdout
    found = json.loads(INVOKE(app, ["train", str(written), "--plan", "--json"]).stdout)
    assert (found["plan"]["steps"], found["plan"]["noise"]) == (4, 0.5)
    made = {path.name for path in written.parent.iterdir()} - {"__pycache__"}
    assert made == {"model.py", "run.toml"}


def test_what_was_planned_can_be_changed_before_it_is_run(written):
    written.write_text('folder = "run"\n' + written.read_text())
    assert INVOKE(app, ["train", str(written), "--plan"]).exit_code == 0
    written.write_text(written.read_text().replace("steps = 4", "steps = 2"))
    done = INVOKE(app, ["train", str(written)])
    assert done.exit_code == 0, done.output
    assert "trained 2 steps" in done.stdout
    written.write_text(written.read_text().replace("steps = 2", "steps = 4"))
    assert "holds a run with other settings" in INVOKE(app, ["train", str(written)]).stderr


def test_a_recalibrated_model_is_not_undone_by_typing_the_same_again(written):
    written.write_text('folder = "run"\n' + written.read_text())
    path = written.parent / "model.pt"
    assert INVOKE(app, ["train", str(written)]).exit_code == 0
    trained = load(path, model())
    recalibrating.predictor(trained, [Recalibration(1.5, 0.25)] * len(networks.names(trained.loss))).save(
        path
    )
    saved = path.read_bytes()
    done = INVOKE(app, ["train", str(written)])
    assert "already trained 4 steps" in done.stdout, done.output
    assert "It was recalibrated since, and stays so; to have it as it was, delete the file" in done.stdout
    assert path.read_bytes() == saved
    path.unlink()
    assert "It was recalibrated" not in INVOKE(app, ["train", str(written)]).stdout
    assert load(path, model()).before is None


def test_a_run_is_trained_and_saved(written):
    done = INVOKE(app, ["train", str(written)])
    assert done.exit_code == 0, done.output
    assert "model.pt: trained 4 steps" in done.stdout
    assert "4 steps of 150" in done.stderr
    assert load(written.parent / "model.pt", model()).tag == "visits"
    found = json.loads(INVOKE(app, ["train", str(written), "--json"]).stdout)
    assert found["out"].endswith("model.pt")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("steps = 3", "BadConfig: .*adserver: Field required"),
        (RUN + STEPPING + "epsilon = 3.0", "BadArguments: give the noise, or the epsilon"),
        (RUN + 'optimizer = {name = "Adamm"}', "BadRun: optimizer 'Adamm'"),
        (RUN.replace("visits", "visit") + STEPPING, "visit"),
    ],
)
def test_a_mistake_is_one_line(written, text, said):
    written.write_text(text)
    done = INVOKE(app, ["train", str(written)])
    assert (done.exit_code, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert re.search(said, line), line


def test_a_model_that_was_not_trained_yet_is_named(written):
    done = INVOKE(app, ["evaluate", str(written)])
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].endswith(
        "model.pt is not there yet: `maskedlark train` makes it, or carries on until it is made"
    )
