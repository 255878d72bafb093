import re

from typer.testing import CliRunner

import maskedlark
from maskedlark.cli import app

RUN = CliRunner(env={"COLUMNS": "120", "TERM": "dumb"}).invoke


def test_the_demo_shows_private_beside_true_what_is_hidden_and_failed_attacks():
    shown = RUN(app, ["demo", "--users", "1500", "--helpers", "3"])
    assert shown.exit_code == 0, shown.output
    cell = r" +(-?\d+) +│ +(-?\d+) … (-?\d+) +│ +(\d+) +│"
    rows = re.findall(r"│ (?:autumn|spring|winter) +│" + 2 * cell, shown.output)
    assert len(rows) == 3
    private, true = [], []
    for row in rows:
        for estimate, low, high, truth in (map(int, row[:4]), map(int, row[4:])):
            assert low < estimate < high
            private.append(estimate)
            true.append(truth)
    assert private != true, "six exact answers are not noisy ones"
    words = re.sub(r"\s+", " ", shown.output)
    assert "Not shown: summer, of fewer than k = 100 records. The report cost ε = 1.33" in words
    assert "The receipts of all 3 helpers verify: a source has cost at most ε = 1.33 of 8" in words
    assert "+1.000" in words
    assert "finds no state" in words


def test_help_and_version():
    assert "Example: maskedlark demo" in RUN(app, ["--help"]).output
    assert RUN(app, ["--version"]).output == f"maskedlark {maskedlark.__version__}\n"
    assert RUN(app, ["demo", "--users", "3"]).exit_code == 2
