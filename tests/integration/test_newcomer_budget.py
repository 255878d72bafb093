"""What a new user types about budgets, against real services: several trainings, plans, advice, `budget`.

One simulation for all of them, in the order in which a user types. Its groups hold hardly more than k, so
that every step takes all records; `test_simulate.py` types the same over sampled batches.
"""

import json
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from maskedlark import cli, simulate
from maskedlark.ledger.budget import SESSIONS
from maskedlark.ledger.errors import DeltaExhausted
from maskedlark.release.errors import TooManyRecords
from maskedlark.training import from_recipe, recipe
from maskedlark.web.errors import TooManyToFreeze
from tests.integration.attacker import Attacker, reports, request
from tests.integration.waiting import next_second

PEOPLE, K = 900, 450
RUN = CliRunner(env={"COLUMNS": "120", "TERM": "dumb"}).invoke
BOTH = "against the ad server", "against it with all helpers but one"


def people(count):
    rng = np.random.default_rng(3)
    age = rng.integers(18, 80, count)
    return {
        "campaign": ["spring", "winter"] * (count // 2),
        "age": age.tolist(),
        "bought": (age + rng.normal(0, 25, count) > 55).astype(int).tolist(),
    }


OPTIONS: dict[str, Any] = {"keys": ["campaign"], "values": {"bought": (0, 1)}, "label": "bought"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with simulate.start(people(PEOPLE), tmp_path_factory.mktemp("newcomer"), k=K, **OPTIONS) as made:
        yield made


def typed(*words, code=0):
    done = RUN(cli.app, [*map(str, words)])
    assert done.exit_code == code, done.output
    return done


def again(world, name, **changes):
    """Another recipe, as a user makes one: a copy with some lines changed."""
    text = (world.folder / "train.toml").read_text()
    changes = {"folder": f'"{name}"', "out": f'"{name}.pt"', **changes}
    for key, value in changes.items():
        text, count = re.subn(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
        text = text if count else f"{key} = {value}\n{text}"
    path = world.folder / f"{name}.toml"
    path.write_text(text)
    return path


def budget(world):
    (found,) = json.loads(typed("budget", "--config", world.config, "--json").stdout)["documents"]
    return found


def left(found, of):
    (limit,) = [each for each in found["limits"] if each["of"] == of]
    return limit["left"]


def advised(line, name):
    return re.findall(rf"{name} ?= ?([0-9.e-]+)", line)[-1].rstrip(".")


def query(world, *more):
    asked = ["--group-by", "campaign", "--value", "bought", "--epsilon", 1, *more]
    return typed("query", "--config", world.config, *asked).stdout.splitlines()[-2]


@pytest.fixture(scope="module", autouse=True)
def spent(world):
    """What was said, and what `budget` showed then: a query, two trainings of different seeds, an evaluation.

    First of all, whichever test comes first.
    """
    said = [query(world)]
    for run in (world.folder / "train.toml", again(world, "second", seed=3, steps=10)):
        said += [typed("train", run, "--plan").stdout, typed("train", run).stdout]
    evaluated = typed("evaluate", world.folder / "train.toml").stderr.splitlines()[-1]
    shown = typed("budget", "--config", world.config).stdout
    return said, evaluated, " ".join(shown.split()), budget(world)


def test_two_trainings_of_different_seeds_and_an_evaluation(spent):
    said, evaluated, _, _ = spent
    assert all(each in line for line in said for each in BOTH)
    assert "7 of 8 was left of a source's budget" in said[0]
    assert all("left of a source's budget: ε = " in line for line in (said[2], said[4], evaluated))
    assert "against everybody" in evaluated


def test_what_was_trained_and_evaluated_is_typed_again_and_says_that_it_costs_nothing(world):
    """The figures of a plan are those of a first run: whoever types it twice must not think it is charged."""
    run, before = world.folder / "train.toml", budget(world)
    assert "it carries on, and costs nothing more" in typed("train", run, "--plan").output
    assert "already trained 60 steps; nothing was charged" in typed("train", run).output
    assert "answered before: it is shown again, and costs nothing" in typed("evaluate", run, "--plan").output
    assert "already evaluated: nothing was charged" in typed("evaluate", run).output
    assert json.loads(typed("train", run, "--plan", "--json").stdout)["was_charged"]
    assert budget(world) == before


def test_budget_shows_of_what_each_figure_is_and_what_spent_it(spent):
    *_, shown, found = spent
    assert [each["of"] for each in found["limits"]] == [
        "a source's budget",
        "a source's budget, against the ad server with all helpers but one",
        "what training may cost against the ad server",
        "what training may cost against the ad server with all helpers but one",
    ]
    assert [each["what"] for each in found["entries"]] == ["sums", "gradient", "gradient", "cells"]
    whole, together, training, _ = found["limits"]
    assert together["spent"] == pytest.approx(sum(each["coalition_epsilon"] for each in found["entries"]))
    assert whole["spent"] == pytest.approx(training["spent"] + found["entries"][0]["epsilon"])
    assert not found["helpers_differ"]
    assert "gradient of ConversionModel, 60 steps" in shown
    assert "what training may cost against the ad server with all helpers but one" in shown


def test_a_plan_refuses_what_opening_would_and_its_advice_works(world):
    """ε, then δ: each figure that an error names is taken at its word, in the same folder."""
    spare = left(budget(world), "what training may cost against the ad server")
    run = again(world, "advised", epsilon=spare + 0.5)
    for options in (["--plan"], []):
        line = typed("train", run, *options, code=3).stderr.splitlines()[-1]
        assert "is left of what training may cost against the ad server" in line
        assert all(each in line for each in BOTH)
    assert float(advised(line, "epsilon")) <= spare
    again(world, "advised", epsilon=advised(line, "epsilon"))
    assert typed("train", run, "--plan").exit_code == 0
    for delta in (0.1, 1e-5):
        line = typed("train", again(world, "advised", epsilon=0.2), "--plan", "--delta", delta, code=3).stderr
        assert f"this session has δ = {delta:g}" in line
    typed("train", run, "--plan", "--delta", advised(line, "delta"))
    # A smaller one is no remedy, and not refused either: it costs noise, or more ε than there is.
    for delta in (1e-7, 1e-9, 1e-15):
        assert f"δ = {delta:g}" in typed("train", run, "--plan", "--delta", delta).stdout
    typed("train", run)


def test_an_evaluation_that_leads_nowhere_says_so(world):
    for words in (["--epsilon", 0.0001], ["--noise", 100_000]):
        shown = typed("evaluate", world.folder / "train.toml", "--plan", *words).stdout
        assert "Nothing will come of it: noise hides any answer. Take a larger ε, or more records" in shown
    shown = typed("evaluate", world.folder / "train.toml", "--plan").stdout
    assert "Nothing will come of it" not in shown


def test_a_folder_where_nothing_had_begun_takes_other_settings(world):
    """The request was stored and never sent, as when a process is killed before it opens its session."""
    with world.client() as client:
        stored = recipe.read(again(world, "killed", epsilon=0.1, steps=5))
        training, _ = from_recipe.training(stored, client)
        assert training.run is not None
        with training.run.begun():
            pass
    run = again(world, "killed", epsilon=0.15, steps=6)
    del training
    assert "trained 6 steps" in typed("train", run).stdout
    assert "OtherRun" in typed("train", again(world, "killed", epsilon=0.1), code=1).stderr


def test_from_python_as_many_small_trainings_as_share_the_delta_and_then_it_says_so(world):
    def training(client, **options):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(len(world.encoder), 1))
        settings = {"loss": "bce", "tag": "ConversionModel", "sampling": "whole", "steps": 2, "epsilon": 0.02}
        return client.training(model, encoder=world.encoder, **{**settings, **options})

    (stream,) = [each for each in budget(world)["streams"] if each["model"]]
    free = round(stream["delta_of_sessions_left"] / stream["delta_of_sessions"] * SESSIONS, 6)
    with world.client() as client:
        runs = [training(client) for _ in range(int(free))]
        for run in runs:
            assert all(each in str(run.plan()) for each in BOTH)
            run._opened()
        with pytest.raises(DeltaExhausted) as caught:
            training(client)
        if free.is_integer():
            assert "no session fits any more, with any delta" in str(caught.value)
        else:
            runs.append(training(client, delta=float(advised(str(caught.value), "delta"))))
            runs[-1]._opened()
        # Those that are closed before their first step give their own back.
        for run in runs:
            run.close()
        assert training(client).plan().epsilon <= 0.02


FEW_AT_ONCE = """
keys = ["campaign"]
k = 20
max_records = 100
budget = {epsilon = 8.0, delta = 0.0}
mechanisms = {sums = {kind = "laplace", noise_floor = 0.1}}
[values]
bought = [0, 1]
"""


def test_a_dataset_that_is_too_large_is_not_frozen_and_several_together_are_asked_by_a_filter(world):
    cluster = world.cluster
    document = cluster.publish(FEW_AT_ONCE)
    attacker, many = Attacker(cluster), reports(cluster, document, 120)
    with pytest.raises(TooManyToFreeze, match="abort it, and select them by shorter times"):
        attacker.dataset("large", document, many)
    for remote in attacker.remotes:
        remote.delete("/v2/datasets/large", attacker.query("large"))
    halves = [attacker.dataset(f"half-{place}", document, many[place::2]) for place in range(2)]
    total = request(1, *halves)
    total = total.model_copy(update={"arguments": {**total.arguments, "by": [[]]}})
    with pytest.raises(TooManyRecords, match="by groups or with a filter"):
        attacker.ask(total)
    filtered = {**total.arguments, "where": [{"key": "campaign", "among": ["spring"]}]}
    assert attacker.tries(total.model_copy(update={"arguments": filtered})) == "answered"
    assert attacker.tries(request(2, *halves)) == "answered"


@pytest.mark.long
def test_a_selection_that_is_too_large_is_refused_and_shorter_ones_are_sent_and_asked(world):
    """Before, it was selected, frozen, and dead for good."""
    document = world.cluster.publish(FEW_AT_ONCE.replace("k = 20", "k = 15"))
    many = reports(world.cluster, document, 120)
    ends = []
    for half in (many[:60], many[60:]):
        world.cluster.upload([half])
        ends.append(next_second())
    datasets = ["--config", world.config]
    refused = typed("datasets", "select", "both", *datasets, code=1).stderr
    assert re.search(
        r"TooLarge: both would have 1\d\d reports, and .* at most 100 .*: select a shorter", refused
    )
    for name, end in zip(("first", "second"), ends, strict=True):
        typed("datasets", "select", name, *datasets, "--end", end)
        assert "reports frozen at every helper" in typed("datasets", "send", name, *datasets).stdout
    total = ["query", *datasets, "--value", "bought", "--epsilon", 0.5]
    line = typed(*total, code=1).stderr.splitlines()[-1]
    assert re.search(r"^TooManyRecords: .*by groups or with a filter", line)
    for more in (["--where", "campaign=spring"], ["--group-by", "campaign"], ["--dataset", "first"]):
        typed(*total, *more)
