import re
import runpy
from pathlib import Path

import torch

TRAIN = Path(__file__).parents[3] / "examples" / "train.py"


def test_a_model_learns_from_labels_that_no_party_has(capsys):
    torch.manual_seed(0)
    runpy.run_path(str(TRAIN))
    printed = capsys.readouterr().out
    assert "ε = 2 against the ad server alone" in printed
    (right,) = re.findall(r"right about ([\d.]+)%", printed)
    assert float(right) > 70  # Runs have 85 to 89; guessing has 50.
