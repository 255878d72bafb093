import re

from typer.testing import CliRunner

import maskedlark
from maskedlark.cli import app

RUN = CliRunner(env={"COLUMNS": "120", "TERM": "dumb"}).invoke


def test_the_demo_shows_true_sums_noise_and_failed_attacks():
    shown = RUN(app, ["demo", "--users", "600", "--helpers", "3"])
    assert shown.exit_code == 0, shown.output
    rows = re.findall(
        r"│ (?:autumn|spring|winter) +│ +(\d+) +│ +(\d+) +│ +(\d+) +│ +(\d+) +│ +(\d+) +│", shown.output
    )
    assert len(rows) == 3
    for noise, euros, true_euros, buyers, true_buyers in rows:
        assert euros == true_euros
        assert buyers == true_buyers
        assert len(noise) > 14
    helpers, truth = re.findall(r"(?:helpers|truth)  +(\[.*\])", shown.output)
    assert helpers == truth
    assert "+1.000" in shown.output
    assert "finds no state" in shown.output
    assert "not part of this version" in re.sub(r"\s+", " ", shown.output)


def test_help_and_version():
    assert "Example: maskedlark demo" in RUN(app, ["--help"]).output
    assert RUN(app, ["--version"]).output == f"maskedlark {maskedlark.__version__}\n"
    assert RUN(app, ["demo", "--users", "3"]).exit_code == 2
