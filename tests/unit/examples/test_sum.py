import re
import runpy
from pathlib import Path

import numpy as np

SUM = Path(__file__).parents[3] / "examples" / "sum.py"


def test_private_sums_are_near_the_truth_and_small_groups_are_missing(capsys):
    names = runpy.run_path(str(SUM))
    printed = capsys.readouterr().out
    rows = re.findall(r"^(\w+) +(\d+) +[\d.]+ +\d+ … \d+ +([\d,]+) ", printed, re.MULTILINE)
    assert [row[0] for row in rows] == ["autumn", "spring"]
    for campaign, *private in rows:
        shown = names["campaigns"] == campaign
        true = [names[value][shown].sum() for value in ("bought", "euros")]
        errors = np.abs(np.array([int(number.replace(",", "")) for number in private]) - true)
        # Two helpers' Laplace noise of scale 1 and 100: more than 40 scales has a probability below 1e-15.
        assert (errors < np.array([40, 4000])).all()
        assert f"{campaign}: {true[0]} bought for {true[1]:,} euros" in printed
