import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from maskedlark import cli
from maskedlark.cli.audits import auditor, canaries, findings, moments, training
from maskedlark.cli.audits.findings import Finding
from maskedlark.core import field
from maskedlark.dp import accountant
from maskedlark.dp.session_charge import SessionCharge

RUN = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke
FINE = Finding("guessing", "a helper", 0.1, 0.2)
LEAKS = Finding("guessing", "a helper", 0.3, 0.2)
SEES = Finding("guessing", "the prototype's helper", 1.0, None, 0.9)
BLIND = Finding("guessing", "the prototype's helper", 0.1, None, 0.9)
TOO_LITTLE = Finding("guessing", "a helper", 0.0, 1.0, 0.5)


def shown(given, as_json):
    app = typer.Typer()
    app.command()(lambda: findings.show("masks", "advantage", given, as_json))
    return RUN(app, [])


@pytest.mark.parametrize(
    ("findings", "code", "said"),
    [
        ([SEES, FINE], 0, "Nothing above what is allowed was found."),
        ([SEES, FINE, LEAKS], 1, "More was found than is allowed"),
        ([BLIND, FINE], 1, "An attack is blind"),
        ([SEES, TOO_LITTLE], 1, "An attack is blind"),
        ([BLIND, LEAKS], 1, "More was found than is allowed"),
    ],
)
def test_the_verdict_is_a_line_and_a_code(findings, code, said):
    done = shown(findings, as_json=False)
    assert done.exit_code == code
    assert done.stdout.splitlines()[-1].startswith(said)
    assert done.stdout.count("guessing") == len(findings)


def test_programs_get_one_object_and_the_same_code():
    done = shown([SEES, LEAKS], as_json=True)
    found = json.loads(done.stdout)
    assert (done.exit_code, found["ok"]) == (1, False)
    assert [each["ok"] for each in found["findings"]] == [True, False]
    assert [each["verdict"] for each in found["findings"]] == ["control: it sees", "MORE THAN ALLOWED"]


def released(kind, trials, moved, noise=1.0):
    """The verdicts on releases of ε = 1 over so many trials, in which canaries move answers so far."""
    rng = np.random.default_rng(7)
    coins = rng.random(trials) < 0.5
    declared = accountant.noise_for(kind, 1, 1.0, 0.0 if kind == "laplace" else auditor.DELTA)
    draw, scale = (rng.laplace if kind == "laplace" else rng.normal), noise * declared * canaries.HIGH
    joined = coins * moved + draw(0, scale, trials)
    alone = joined + draw(0, scale, trials)
    return [each.verdict for each in canaries.judge("canaries", coins, alone, joined, 1.0, kind)]


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_canaries_in_releases_say_ok_only_where_they_see(kind):
    assert released(kind, 80_000, canaries.HIGH) == ["ok", "ok"]
    assert released(kind, 80_000, 0) == ["BLIND", "BLIND"]
    assert released(kind, 400, canaries.HIGH) == ["BLIND", "BLIND"]
    assert released(kind, 80_000, canaries.HIGH, noise=0.5)[1] == "MORE THAN ALLOWED"


def trained(count, moved, noise=1.0, masked=True):
    """The verdicts on a run that declares noise 1, in which canaries move sums so far."""
    rng, charge = np.random.default_rng(7), SessionCharge("gaussian", 1.0, 0.25, 16, 15, 1e-5)
    coins, drawn = rng.random(count) < 0.5, rng.random((16, count)) < charge.rate
    own, told = rng.normal(0, noise, (2, 16, count))
    uniform = rng.integers(0, field.P, (16, 2, count))
    answers = np.where(drawn[:, None] | masked, uniform, 0)
    sums = moved * drawn * (coins - 0.5) + own + told
    judged, _ = training.judge(coins, sums, told, drawn, answers, 1 << 28, charge, charge.rate)
    return [each.verdict for each in judged]


def test_canaries_in_training_say_ok_only_where_they_see():
    more = "MORE THAN ALLOWED"
    assert trained(4000, 1.0) == ["ok"] * 6
    assert trained(4000, 0.0) == ["BLIND", "ok", "BLIND", "ok", "ok", "ok"]
    assert trained(200, 1.0) == ["BLIND", "ok", "BLIND", "ok", "ok", "ok"]
    assert trained(4000, 1.0, noise=0.4) == [more, "ok", more, more, more, "ok"]
    assert trained(4000, 1.0, masked=False) == ["ok", "ok", "ok", "ok", more, more]


def fitted(kind, count, moved, noise=1.0, masked=True):
    """The verdicts on ten releases of ε = 1, in which canaries' labels move sums so far."""
    rng, coins = np.random.default_rng(7), np.random.default_rng(8).random((10, count)) < 0.5
    declared = accountant.noise_for(kind, 1, 1.0, 0.0 if kind == "laplace" else auditor.DELTA)
    draw = rng.laplace if kind == "laplace" else rng.normal
    own, told = draw(0, noise * declared, (2, 10, count))
    single = rng.integers(0, field.P, (10, 2, count)) * (coins[:, None] | masked)
    sums = moved * coins + own + told
    seen = [moments.Seen(*each, 1.0) for each in zip(sums, told, single, strict=True)]
    judged = moments.judge(coins, np.ones(count, np.bool_), seen, kind, declared)
    return [each.verdict for each in judged]


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_canaries_in_moments_say_ok_only_where_they_see(kind):
    more = "MORE THAN ALLOWED"
    assert fitted(kind, 4000, 1.0) == ["ok"] * 3
    assert fitted(kind, 4000, 0.0) == ["BLIND", "BLIND", "ok"]
    assert fitted(kind, 40, 1.0) == ["BLIND", "BLIND", "ok"]
    assert fitted(kind, 4000, 1.0, noise=0.5)[1] == more
    assert fitted(kind, 4000, 1.0, masked=False)[2] == more


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--epsilon", "20"], "--epsilon"),
        (["--releases", "20", "--epsilon", "6"], "--releases times --epsilon is over 100"),
    ],
    ids=["epsilon", "product"],
)
def test_what_helpers_would_refuse_is_refused_before_they_are_started(monkeypatch, typed, said):
    monkeypatch.setattr(auditor, "local_cluster", None)
    done = RUN(cli.app, ["audit", "canaries", *typed])
    assert done.exit_code == 2
    assert said in done.stderr


def test_more_targets_than_records_are_refused():
    done = RUN(cli.app, ["audit", "weights", "--records", "100", "--targets", "200"])
    assert done.exit_code == 2
    assert "more --targets than --records" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    "typed",
    [
        ["masks", "--users", "600", "--helpers", "3"],
        ["canaries"],
        ["canaries", "--kind", "gaussian"],
        ["training"],
        ["moments"],
        ["moments", "--kind", "laplace", "--canaries", "2000"],
        ["weights", "--records", "200", "--targets", "100"],
    ],
    ids=" ".join,
)
def test_what_helpers_show_is_within_what_is_allowed(typed):
    done = RUN(cli.app, ["audit", *typed, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["audit"] == typed[0]
    assert all(each["ok"] for each in found["findings"])


@pytest.mark.long
@pytest.mark.parametrize(
    "typed",
    [
        ["canaries", "--canaries", "100", "--releases", "1", "--epsilon", "0.1"],
        ["training", "--canaries", "100", "--noise", "8"],
        ["moments", "--canaries", "100", "--epsilon", "0.1"],
    ],
    ids=" ".join,
)
def test_too_few_canaries_are_blind_and_say_so(typed):
    done = RUN(cli.app, ["audit", *typed, "--json"])
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)["findings"]
    assert {each["verdict"] for each in found if each["least"]} == {"BLIND"}
