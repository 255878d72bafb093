"""The files that a simulation leaves for its user: an encoder, a model, and a recipe that trains it."""

from pathlib import Path
from shlex import quote

from maskedlark.core.purpose import Purpose
from maskedlark.dp.session_charge import Course, crowded
from maskedlark.parameters.document import Document
from maskedlark.simulate.reporting import DATASETS
from maskedlark.web import files

ENCODER, MODEL, RECIPE = "encoder.json", "model.py", "run.toml"
STEPS = 60
RATE, MOST_BATCH = 0.5, 10_000
HELD_OUT = 0.2
_BUILD = '''"""The model that run.toml trains: change it as you like. `build` is called once."""

from torch import nn


def build() -> nn.Module:
    """A logistic regression. A network has nn.Linear, nn.ReLU, nn.Linear in the same Sequential."""
    model = nn.Sequential(nn.Linear({features}, 1))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model
'''
_RUN = """# `maskedlark train {path}` runs this; `--plan` says what it would cost and spends nothing.
adserver = "adserver.toml"
datasets = ["{dataset}"]
tag = "{tag}"
model = "model.py:build"
encoder = "encoder.json"
loss = "bce"
steps = {steps}
{batches}
held_out = {held_out}
epsilon = {epsilon:g}
delta = {delta:g}
folder = "run"
out = "model.pt"

[optimizer]
name = "SGD"
lr = 2.0
momentum = 0.9
"""


def hand_over(folder: Path, document: Document, tag: str, records: int, delta: float, encoder: str) -> None:
    """Write what is not there yet: what its user has changed stays."""
    assert document.training is not None
    epsilon = document.training.adserver.epsilon / 3
    held_out = HELD_OUT if records * HELD_OUT >= 2 * document.k else 0.0
    features = document.trained(tag).features
    written = {
        ENCODER: encoder,
        MODEL: _BUILD.format(features=features),
        RECIPE: _RUN.format(
            path=quote(str(folder / RECIPE)),
            dataset=DATASETS[Purpose.TRAIN],
            tag=tag,
            steps=STEPS,
            batches=_batches(records, document.k, held_out, delta),
            held_out=held_out,
            epsilon=epsilon,
            delta=delta,
        ),
    }
    for name, text in written.items():
        if not (folder / name).exists():
            files.write(folder / name, text.encode())


def _batches(records: int, k: int, held_out: float, delta: float) -> str:
    """Batches that are hardly ever below k; where the crowd is too small for that, all of it."""
    rate = min(RATE, MOST_BATCH / records)
    if crowded(Course("gaussian", 4.0, rate, STEPS, STEPS, delta), records, k, held_out):
        return f"sampling_rate = {rate:.3g}"
    return 'sampling = "whole"'
