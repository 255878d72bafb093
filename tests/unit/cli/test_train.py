import json
import re

import pytest
from typer.testing import CliRunner

from maskedlark.adserver.client import Client
from maskedlark.cli import app
from maskedlark.features import Encoder, Scaled
from maskedlark.training import load, recalibrating
from maskedlark.training import network as networks
from maskedlark.training.evaluating import evaluation_query
from maskedlark.training.predictor import Predictor
from maskedlark.training.recalibrating import Recalibration
from maskedlark.workflow import Workflow
from tests.unit.training.cases import FEATURES, document, home, model
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

        def evaluation(self, *model, **options):
            return evaluation_query(self.home, *model, **options)

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


def test_a_schedule_goes_to_the_last_step_unless_it_says_otherwise(written):
    """Who took more steps left the schedule as it was: the others changed nothing, and cost."""
    written.write_text(RUN + STEPPING + 'scheduler = {name = "PolynomialLR"}\n')
    assert "learning rate is 0" not in INVOKE(app, ["train", str(written), "--plan"]).stdout
    written.write_text(RUN + STEPPING + 'scheduler = {name = "PolynomialLR", total_iters = 3}\n')
    done = INVOKE(app, ["train", str(written), "--plan"])
    assert "The learning rate is 0 after 3 of 4 steps: the others change nothing" in done.stdout
    found = json.loads(INVOKE(app, ["train", str(written), "--plan", "--json"]).stdout)
    assert found["trial"]["last_step"] == 3


def test_a_learning_rate_for_less_noise_is_said_before_anything_is_charged(written):
    """Who lowered ε left it as it was: a model came of it that was far worse than a constant."""
    rows = "".join(f"{','.join(['5'] * FEATURES)}\n" for _ in range(9))
    (written.parent / "people.csv").write_text(",".join(map(str, range(FEATURES))) + f"\n{rows}")
    encoder = Encoder.fit(
        {str(place): [0, 9] for place in range(FEATURES)},
        dict.fromkeys(map(str, range(FEATURES)), Scaled(0, 9)),
    )
    encoder.save(written.parent / "encoder.json")
    given = RUN.replace("noise = 0.5", "noise = 50.0") + 'table = "people.csv"\nencoder = "encoder.json"\n'
    written.write_text(given + 'optimizer = {name = "SGD", lr = 9.0}\n')
    done = INVOKE(app, ["train", str(written), "--plan"])
    assert "Noise alone would move scores by ± " in done.stdout, done.output
    written.write_text(given + 'optimizer = {name = "SGD", lr = 0.0001}\n')
    assert "Noise alone" not in INVOKE(app, ["train", str(written), "--plan"]).stdout


@pytest.mark.parametrize(
    "stepping", [STEPPING + 'scheduler = {name = "ReduceLROnPlateau"}', 'optimizer = {name = "LBFGS"}']
)
def test_what_needs_a_loss_is_refused_before_anything_is_charged(written, stepping):
    written.write_text(RUN + stepping)
    done = INVOKE(app, ["train", str(written)])
    assert done.exit_code == 1
    assert "BadRun: " in done.stderr
    assert "take no step from a gradient alone, and nobody has a loss: take others" in done.stderr


@pytest.mark.parametrize("loss", ["mse", "softmax"])
def test_what_cannot_be_recalibrated_is_refused_before_its_evaluation_is_charged(written, loss, monkeypatch):
    """The plan had advised it, and ε was spent before it was refused."""
    outputs, tag = (3, "kinds") if loss == "softmax" else (1, "visits")
    written.write_text((RUN + STEPPING).replace('"bce"', f'"{loss}"').replace("visits", tag))
    (written.parent / "model.py").write_text(BUILD.replace("Linear(5, 1)", f"Linear(5, {outputs})"))
    monkeypatch.setattr(Workflow, "ask", lambda *_, **__: pytest.fail("a helper was asked"), raising=False)
    Predictor(model(outputs), loss, tag).save(written.parent / "model.pt")
    for options in ([], ["--plan"]):
        done = INVOKE(app, ["evaluate", str(written), "--recalibrate", *options])
        assert done.exit_code == 1
        assert done.stderr.startswith("BadArguments: probabilities of binary labels are recalibrated"), (
            done.stderr
        )


def test_a_model_that_was_not_trained_yet_is_named(written):
    done = INVOKE(app, ["evaluate", str(written)])
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].endswith(
        "model.pt is not there yet: `maskedlark train` makes it, or carries on until it is made"
    )
