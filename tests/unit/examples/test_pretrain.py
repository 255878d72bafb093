"""The recipe of `examples/pretrain.py`, on few rows and for a few steps."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from examples import pretrain
from experiments.data import Split, mnist, shoppers

ROWS = 400


def split(features: int, classes: int) -> Split:
    """Rows around a point of their own for each class."""
    rng = np.random.default_rng(0)
    centres, labels = rng.integers(40, 215, (classes, features)), rng.integers(0, classes, ROWS)
    rows = np.clip(centres[labels] + rng.normal(0, 10, (ROWS, features)), 0, 255).astype(np.uint8)
    return Split(rows[:300], labels[:300], rows[300:], labels[300:])


@pytest.mark.parametrize(
    ("which", "data", "spaces"),
    [("images", split(784, 10), ["learnt"]), ("table", split(20, 2), ["learnt", "buckets"])],
)
def test_rows_become_features_labels_and_a_student(which, data, spaces, monkeypatch, capsys):
    loaded = mnist if which == "images" else shoppers
    monkeypatch.setattr(loaded, "load", lambda: data)
    pretrain.main(which, steps=3)
    said = [line for line in capsys.readouterr().out.splitlines() if "student on test rows" in line]
    assert [line.split(":")[0] for line in said] == [
        f"ε = {e}, {name}" for e in (0.25, 1.0) for name in spaces
    ]
    assert all(("accuracy" if which == "images" else "AUC") in line for line in said)


def test_steps_bring_copies_of_a_row_together():
    """Nearer to each other, in units of how far rows are apart, than in a network that was not trained."""
    rows = split(20, 2).features

    def apart(steps: int) -> float:
        torch.manual_seed(1)
        network = pretrain.pretrain(rows, pretrain.distort_table, (32, 8), steps, batch=64)
        numbers = torch.tensor(rows).float() / 256
        with torch.no_grad():
            one, other = (network(pretrain.distort_table(numbers)) for _ in range(2))
        return float((one - other).norm(dim=1).mean() / torch.pdist(one).mean())

    assert apart(150) < 0.8 * apart(1)


def test_another_word_says_which_there_are():
    root = Path(pretrain.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "examples.pretrain", "sounds"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.strip() == "python -m examples.pretrain images, or table"
