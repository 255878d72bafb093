"""`maskedlark fit` over real services: killed wherever it can be, and charged once."""

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from maskedlark import cli, simulate
from maskedlark.fitting import load

PEOPLE = 400
RUN = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke
KILLED = """
import os, signal, sys
from maskedlark.adserver.remote_helper import RemoteHelper
from maskedlark.adserver.requests import Requests
from maskedlark.cli import app
import dp_accounting.rdp
from maskedlark.fitting import estimators, saving

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def kill_after(own):
    return lambda *given, **options: (own(*given, **options), kill())

POINTS = [
    (Requests, "add", kill),                                      # nothing is durable
    (Requests, "begin", kill_after(Requests.begin)),              # durable, and nobody was asked
    (RemoteHelper, "release", kill_after(RemoteHelper.release)),  # charged, and the answer is lost
    (Requests, "answer", kill_after(Requests.answer)),            # the first helper's answer is stored
    (RemoteHelper, "release", kill_after(RemoteHelper.release)),  # the second has charged it too
    (Requests, "mark", kill),                                     # all answers are stored, not yet counted so
    (estimators.fit, "fit", kill),                                # answered, and not fitted
    (saving.files, "write", kill),                                # fitted, and not saved
]
for owner, name, replaced in POINTS:
    # Forked, because to import all of it takes seconds.
    if not (child := os.fork()):
        setattr(owner, name, replaced)
        app(["fit", sys.argv[1]])
    print(os.WTERMSIG(os.waitpid(child, 0)[1]))
"""


@pytest.fixture(scope="module")
def simulation(tmp_path_factory):
    rng = np.random.default_rng(4)
    age, device = rng.integers(18, 80, PEOPLE), rng.choice(["phone", "desktop"], PEOPLE)
    bought = rng.random(PEOPLE) < 1 / (1 + np.exp((49 - age) / 6))
    table = {"age": age, "device": device, "bought": bought.astype(int)}
    with simulate.start(
        table, tmp_path_factory.mktemp("fit"), values={"bought": (0, 1)}, label="bought"
    ) as made:
        yield made


def run(*words):
    done = RUN(cli.app, [*map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def releases(simulation):
    """What every helper has charged, by its signed receipts."""
    with simulation.client() as client:
        claimed = [each.claimed() for name in ("helper-0", "helper-1") for each in client.receipts(name)]
    return [(each.function, each.request) for each in claimed if each.kind == "release"]


@pytest.mark.long
def test_a_fit_carries_on_wherever_it_is_killed_and_is_charged_once(simulation):
    recipe, model = simulation.folder / "run.toml", simulation.folder / "model.json"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, recipe], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.stdout.split() == ["9"] * 8, done.stderr
    assert not model.exists()
    found = run("fit", recipe)
    assert found["balance"]["charged_epsilon"] == pytest.approx(1.0, rel=1e-3)
    first, second = releases(simulation)
    assert first == second, "one request, charged once by each"
    saved = model.read_bytes()
    model.unlink()
    assert run("fit", recipe) == found | {"charged": False}
    assert model.read_bytes() == saved
    assert len(releases(simulation)) == 2


def test_what_was_fitted_ranks_and_the_helpers_say_so(simulation):
    recipe = simulation.folder / "run.toml"
    run("fit", recipe)
    two = [{"age": age, "device": "phone"} for age in (75, 20)]
    old, young = load(simulation.folder / "model.json").predict_proba(two)[:, 1]
    # In simulations the difference is 0.94 ± 0.04, and the AUC 0.94. Six standard errors and more.
    assert old > young + 0.6
    measured = run("evaluate", recipe)
    auc = measured["labels"][0]["auc"]
    assert abs(auc["value"] - 0.94) < 6 * auc["error"] + auc["coarse"]
    assert measured["balance"]["spent_epsilon"] < 3
