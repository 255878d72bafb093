"""`maskedlark fit`, `predict` and `evaluate`, with helpers in memory where a client would be."""

import csv
import gzip
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from maskedlark.adserver.client import Client
from maskedlark.adserver.errors import HelperAway
from maskedlark.cli import app, output
from maskedlark.features import Encoder, Scaled
from maskedlark.features.csv_file import read_csv
from maskedlark.fitting import load
from maskedlark.workflow import LocalHelper
from tests.unit.training.cases import FEATURES, TAG, document, home, table

INVOKE = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke
NAMES = [f"column {place}" for place in range(FEATURES)]
RUN = """
adserver = "adserver.toml"
tag = "visits"
table = "people.csv"
encoder = "encoder.json"
noise = 0.5
out = "model.json"
"""
NOISES = {name: {"kind": "gaussian", "noise_floor": 0.01} for name in ("moments", "gradient", "cells")}
SUMS = {"sums": {"kind": "laplace", "noise_floor": 1.0}}
BUDGET = {"epsilon": 100.0, "delta": 1e-3}
CEILINGS = {"adserver": BUDGET, "coalition": BUDGET}


def run(*words, code=0):
    done = INVOKE(app, [*map(str, words)])
    assert done.exit_code == code, done.output
    return done


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A recipe, its encoder, and a table of features that nothing but the helpers' labels belong to."""
    rows = table()[0]
    columns = dict(zip(NAMES, rows.T, strict=True))
    encoder = Encoder.fit(columns, dict.fromkeys(NAMES, Scaled(0, 255)))
    encoder.save(tmp_path / "encoder.json")
    with (tmp_path / "people.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[*NAMES, "clicked"], *([*row, "secret"] for row in rows.tolist())])
    models = [
        {
            "tag": TAG,
            "columns": [{"kind": "bytes", "count": FEATURES}],
            "labels": [{"kind": "binary"}],
            "gradient_bound": 1.0,
            "encoder": encoder.digest.hex(),
        }
    ]
    made = home(document(mechanisms=NOISES | SUMS, models=models, budget=BUDGET, training=CEILINGS))
    monkeypatch.setattr(Client, "from_config", lambda path: Open(made))
    (tmp_path / "run.toml").write_text(RUN)
    return tmp_path / "run.toml"


class Open:
    """A client that outlives the command."""

    def __init__(self, client):
        self.client = client

    def __enter__(self):
        return self.client

    def __exit__(self, *_):
        pass


def charged():
    """Releases that the first helper has charged."""
    with Client.from_config("") as client:
        claimed = [each.claimed() for each in client.receipts("helper-0")]
    return [each.function for each in claimed if each.kind == "release"]


def test_a_plan_spends_and_writes_nothing(written):
    said = run("fit", written, "--explain").stdout
    assert "against the ad server and against it with all helpers but one" in said
    assert re.search(r"AUC 0\.\d+ ± 0\.\d+", said)
    plan = json.loads(run("fit", written, "--explain", "--json").stdout)["plan"]
    assert (plan["noise"], plan["rows"], plan["records"]) == (0.5, 300, 300)
    assert plan["epsilon"] == plan["coalition_epsilon"] > 0
    assert charged() == []
    assert not (written.parent / "model.json").exists()


def test_a_fit_is_saved_and_charged_once_however_often_it_is_run(written):
    path = written.parent / "model.json"
    lines = run("fit", written).stdout.splitlines()
    assert re.fullmatch(rf"{path}: charged ε = [\d.]+ against everybody", lines[0])
    assert re.match(
        r"left of a source's budget: ε = [\d.]+ of [\d.]+ against the ad server alone, [\d.]+ of [\d.]+ "
        r"against it with all helpers but one; of what training may cost: ε = ",
        lines[1],
    )
    assert lines[-1].startswith("300 rows here, 300 records at the helpers, of which 300 are expected")
    first = path.read_bytes()
    path.unlink()
    again = run("fit", written).stdout.splitlines()
    assert "already fitted: nothing was charged (it was ε = " in again[0]
    assert again[1:] == lines[1:]
    assert path.read_bytes() == first
    assert charged() == ["moments"]


def test_programs_read_one_object(written):
    found = json.loads(run("fit", written, "--json").stdout)
    assert found["charged"] is True
    assert (found["rows"], found["records"], found["noise"]) == (300, 300, 0.5)
    assert found["balance"]["charged_epsilon"] == found["balance"]["spent_epsilon"] > 0
    intercept, *others = found["coefficients"]
    assert intercept["name"] == "intercept"
    strengths = [abs(each["value"]) for each in others]
    assert strengths == sorted(strengths, reverse=True)
    assert all(each["low"] < each["value"] < each["high"] for each in found["coefficients"])
    assert json.loads(run("fit", written, "--json").stdout) == found | {"charged": False}


def test_another_setting_is_another_release(written):
    run("fit", written)
    written.write_text(RUN.replace("noise = 0.5", "noise = 0.6"))
    assert json.loads(run("fit", written, "--json").stdout)["charged"] is True
    assert charged() == ["moments"] * 2


def test_a_ridge_is_chosen_after_the_release_and_costs_nothing(written):
    run("fit", written)
    first = (written.parent / "model.json").read_bytes()
    written.write_text(RUN + "ridge = 100.0\n")
    assert json.loads(run("fit", written, "--json").stdout)["charged"] is False
    assert (written.parent / "model.json").read_bytes() != first
    assert charged() == ["moments"]


def test_a_fit_without_a_solution_says_so(written):
    written.write_text(RUN.replace("noise = 0.5", "noise = 30.0") + "ridge = 1e-9\n")
    done = run("fit", written)
    assert "no solution was found: " in done.stderr
    assert "no interval" in done.stdout
    found = json.loads(run("fit", written, "--json").stdout)
    assert all(each["low"] is each["high"] is None for each in found["coefficients"])


def test_what_is_fitted_predicts_and_is_evaluated(written):
    run("fit", written)
    folder, (rows, labels) = written.parent, table()
    found = run("predict", folder / "model.json", folder / "people.csv", "--out", folder / "scores.csv")
    assert found.stdout == f"{folder / 'scores.csv'}: 300 rows predicted\n"
    scores = read_csv(folder / "scores.csv")
    assert [*scores] == [*NAMES, "clicked", "predicted"]
    predicted = np.array(scores["predicted"].cells(), float)
    assert np.array_equal(predicted, load(folder / "model.json").predict_proba(rows)[:, 1])
    run("predict", folder / "model.json", folder / "people.csv", "--out", folder / "scores.csv.gz")
    assert gzip.decompress((folder / "scores.csv.gz").read_bytes()) == (folder / "scores.csv").read_bytes()
    done = run("predict", folder / "model.json", folder / "people.csv", "--out", folder / "s.parquet", code=1)
    assert done.stderr.endswith(
        "s.parquet: predictions are written as CSV; name it .csv, or .csv.gz to compress it\n"
    )
    assert not (folder / "s.parquet").exists()
    measured = json.loads(run("evaluate", written, "--noise", "0.1", "--json").stdout)["labels"][0]
    right = float(((predicted >= 0.5) == labels).mean())
    # Noise hardly counts here; buckets, and scores that 16-bit weights carry over an edge, do.
    assert abs(measured["accuracy"]["value"] - right) < measured["accuracy"]["coarse"] + 0.02
    assert charged() == ["moments", "cells"]
    done = run("evaluate", written, "--part", "held_out", code=1)
    assert done.stderr == "BadArguments: a fit takes all records and holds none out: leave --part out\n"


def test_an_evaluation_says_its_price_first_and_is_charged_once(written):
    run("fit", written)
    plan = run("evaluate", written, "--plan").stdout
    assert re.search(r"ε = 0\.\d+ against the ad server and against it with all helpers but one", plan)
    assert re.search(r"expect AUC ± [\d.]+, log-loss ± [\d.]+, accuracy ± [\d.]+\. Nothing was spent", plan)
    figures = json.loads(run("evaluate", written, "--plan", "--json").stdout)["plan"]
    assert 0.4 < figures["epsilon"] <= 0.5, "unless said"
    dearer = json.loads(run("evaluate", written, "--plan", "--epsilon", "2", "--json").stdout)["plan"]
    assert 1.5 < dearer["epsilon"] <= 2
    assert dearer["expected"][0]["auc"]["error"] < figures["expected"][0]["auc"]["error"]
    assert charged() == ["moments"]
    first = run("evaluate", written)
    assert plan.removesuffix(". Nothing was spent\n") in first.stderr
    assert re.search(r"\ncharged ε = 0\.\d+ against everybody; left of a source's budget", first.stderr)
    again = run("evaluate", written)
    once = r"already evaluated: nothing was charged \(it was ε = 0\.\d+ against everybody then\); left .*\n"
    assert re.fullmatch(once, again.stderr)
    assert again.stdout == first.stdout
    assert charged() == ["moments", "cells"]


def test_what_was_found_sets_probabilities_right(written):
    run("fit", written)
    folder, (rows, labels) = written.parent, table()
    before = load(folder / "model.json").predict_proba(rows)[:, 1]
    found = json.loads(run("evaluate", written, "--noise", "0.1", "--recalibrate", "--json").stdout)
    ((slope, intercept),) = [(each["slope"], each["intercept"]) for each in found["recalibrated"]]
    after = load(folder / "model.json").predict_proba(rows)[:, 1]
    logits = np.log(before) - np.log1p(-before)
    assert after == pytest.approx(1 / (1 + np.exp(-slope * logits - intercept)))
    assert after.mean() == pytest.approx(labels.mean(), rel=0.05)
    assert charged() == ["moments", "cells"]
    # The same again: the question is about the model as it was fitted, and answered already.
    saved = (folder / "model.json").read_bytes()
    again = json.loads(run("evaluate", written, "--noise", "0.1", "--recalibrate", "--json").stdout)
    assert not again["charged"]
    assert again["recalibrated"] == found["recalibrated"]
    assert (folder / "model.json").read_bytes() == saved
    # To fit the same again does not undo it; how good it is now is another question, which is said.
    done = run("fit", written)
    assert "model.json: already fitted: nothing was charged" in done.stdout
    assert "It was recalibrated since, and stays so; to have it as it was, delete the file" in done.stdout
    assert json.loads(run("fit", written, "--json").stdout)["recalibrated"]
    assert (folder / "model.json").read_bytes() == saved
    assert charged() == ["moments", "cells"]
    assert "was recalibrated: this asks about it as it is now" in run("evaluate", written, "--plan").stderr
    (folder / "model.json").unlink()
    run("fit", written)
    assert load(folder / "model.json").predict_proba(rows)[:, 1] == pytest.approx(before)
    # Another noise is another question.
    line = run("evaluate", written, "--noise", "2", "--recalibrate").stdout.splitlines()[-1]
    assert re.fullmatch(rf"{folder / 'model.json'}: recalibrated, logits times [\d.]+, [-+][\d.]+; .*", line)


def test_a_model_that_is_not_fitted_yet_is_named(written):
    folder = written.parent
    for typed in (
        ("evaluate", written),
        ("evaluate", written, "--plan"),
        ("predict", folder / "model.json", folder / "people.csv", "--out", folder / "scores.csv"),
    ):
        said = run(*typed, code=1).stderr.splitlines()[-1]
        assert re.fullmatch(r"BadRun: .*model\.json is not there yet: `maskedlark fit` makes it, .*", said)


def slip(written, name, old, new):
    """A file of the recipe with a slip in it."""
    path = written.parent / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (
            "run.toml",
            'tag = "visits"',
            'tag = "visit"',
            "NotDeclared: no model 'visit'; did you mean",
        ),
        ("run.toml", "table =", "tabel =", "BadConfig: .*table: Field required"),
        ("run.toml", "noise = 0.5", "noise = nan", "BadConfig: "),
        ("run.toml", "noise = 0.5", "epsilon = -1.0", "BadConfig: .*epsilon: .*Write what it may cost"),
        ("run.toml", "noise = 0.5", "noise = 0.5\nepsilon = 1.0", "BadArguments: give the noise or"),
        ("run.toml", "noise = 0.5", "noise = 0.001", "NoiseTooSmall: noise 0.001 is below the declared"),
        ("run.toml", "noise = 0.5", 'noise = 0.5\nmodel = "tree"', "BadConfig: .*model: "),
        ("run.toml", "noise = 0.5", "noise = 0.5\nlabel = 1", "BadArguments: label=1"),
        ("run.toml", "noise = 0.5", 'noise = 0.5\ndatasets = ["no"]', "UnknownDataset: no dataset 'no'"),
        (
            "encoder.json",
            '"high": 255.0',
            '"high": 254.0',
            "BadArguments: visits is declared with",
        ),
        ("encoder.json", "{", "[", "NotAnEncoder: "),
        ("people.csv", "column 3", "colum 3", "UnknownColumn: the table has no column 'column 3'"),
        ("people.csv", "\n", "\nnot a number,0,0,0,0,0,x\n", "ColumnDoesNotFit: column 'column 0', line 2"),
    ],
)
def test_a_mistake_is_said_and_not_charged(written, name, old, new, said):
    slip(written, name, old, new)
    done = run("fit", written, code=1)
    assert done.stdout == ""
    assert re.match(said, done.stderr.splitlines()[-1]), done.stderr
    assert charged() == []


def test_an_empty_table_and_a_missing_one(written):
    path = written.parent / "people.csv"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    assert "no rows below its first line" in run("fit", written, code=1).stderr
    path.unlink()
    assert "people.csv: there is no such file. Give the path of a table" in run("fit", written, code=1).stderr
    assert charged() == []


def test_more_than_the_budget_is_refused(written):
    slip(written, "run.toml", "noise = 0.5", "noise = 0.01")
    assert "which is more than is left: " in run("fit", written, "--explain", code=3).stdout
    done = run("fit", written, code=3)
    assert done.stderr.splitlines()[-1].startswith("BudgetExhausted: ")
    assert charged() == []


def test_a_helper_that_is_away_says_how_to_carry_on(written, monkeypatch):
    own = LocalHelper.release

    def away(helper, body):
        if helper.name == "helper-1":
            raise HelperAway("helper-1 cannot be reached")
        return own(helper, body)

    monkeypatch.setattr(LocalHelper, "release", away)
    said = run("fit", written, code=4).stderr
    assert re.search(r"Request [0-9a-f]{32} is pending: the same command finishes it when all", said)
    monkeypatch.setattr(LocalHelper, "release", own)
    # The first helper had charged it then: its receipt is here already.
    assert "already fitted: nothing was charged" in run("fit", written).stdout
    assert charged() == ["moments"]


def test_what_is_slow_says_so_on_standard_error(written, monkeypatch):
    monkeypatch.setattr(output, "_PATIENCE_S", 0.0)
    done = run("fit", written, "--json")
    first, *stages = done.stderr.splitlines()
    assert first == "choosing a map without labels … (0 s)"
    assert any("waiting for" in stage or "solving" in stage for stage in stages)
    json.loads(done.stdout)
    monkeypatch.setattr(output, "_PATIENCE_S", 60.0)
    assert not run("fit", written, "--json").stderr
