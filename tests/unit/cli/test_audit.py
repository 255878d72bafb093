import json

import pytest
import typer
from typer.testing import CliRunner

from maskedlark import cli
from maskedlark.cli.audits import finding
from maskedlark.cli.audits.finding import Finding

RUN = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke
FINE = Finding("guessing", "a helper", 0.1, 0.2)
LEAKS = Finding("guessing", "a helper", 0.3, 0.2)
SEES = Finding("guessing", "the prototype's helper", 1.0, None, 0.9)
BLIND = Finding("guessing", "the prototype's helper", 0.1, None, 0.9)


def shown(findings, as_json):
    app = typer.Typer()
    app.command()(lambda: finding.show("masks", "advantage", findings, as_json))
    return RUN(app, [])


@pytest.mark.parametrize(
    ("findings", "code", "said"),
    [
        ([SEES, FINE], 0, "Nothing above what is allowed was found."),
        ([SEES, FINE, LEAKS], 1, "More was found than is allowed"),
        ([BLIND, FINE], 1, "A control failed: the attack is blind"),
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


def test_more_targets_than_records_are_refused():
    done = RUN(cli.app, ["audit", "weights", "--records", "100", "--targets", "200"])
    assert done.exit_code == 2
    assert "more --targets than --records" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    "typed",
    [
        ["masks", "--users", "600", "--helpers", "3"],
        ["canaries", "--canaries", "2000"],
        ["canaries", "--canaries", "2000", "--kind", "gaussian"],
        ["training", "--canaries", "300"],
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
    # An audit that sees nothing at all is no audit: who colludes finds something.
    assert max(each["found"] for each in found["findings"]) > 0.1
