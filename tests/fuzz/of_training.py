"""Decoders of training and fitting: saved models, a checkpoint, and the TOML of a run."""

import numpy as np
from torch import nn

from maskedlark.core import field
from maskedlark.errors import DecodeError
from maskedlark.exact.losses import BinaryCrossEntropy
from maskedlark.features import Encoder, Hashed, OneHot
from maskedlark.features.errors import NotAnEncoder
from maskedlark.fitting import glm, maps, saving
from maskedlark.fitting import recipe as fit_recipe
from maskedlark.fitting.fitted import FittedModel
from maskedlark.training import recipe
from maskedlark.training.checkpoint import Run
from maskedlark.training.errors import NotAModel, OtherRun
from maskedlark.training.predictor import Predictor, load
from maskedlark.web.errors import BadConfig
from tests.fuzz.of_files import _folder, _in_file
from tests.fuzz.running import Decoder
from tests.fuzz.trees import TOML
from tests.unit.features import tables

RUN = b"""
adserver = "adserver.toml"
datasets = ["monday"]
tag = "visits"
model = "model.py:build"
loss = ["bce", "mse"]
steps = 4
batches = 2
noise = 0.5
out = "model.pt"
optimizer = {name = "Adam", lr = 0.01, betas = [0.8, 0.99]}
"""

FIT = b"""
adserver = "adserver.toml"
datasets = ["monday"]
tag = "visits"
table = "people.csv"
encoder = "encoder.json"
model = "poisson"
epsilon = 0.5
map = "trees"
out = "model.json"
"""


def _model() -> nn.Module:
    return nn.Linear(3, 1)


def _fitted() -> bytes:
    """A linear model of three columns, as saved."""
    made = maps.fit(np.eye(3, dtype=np.uint8) * 255, "abc", "columns")
    phi, one = made.representation((BinaryCrossEntropy(),), 2.0), np.ones((1, 4))
    saving.save(
        FittedModel(glm.LOGISTIC, "visits", None, phi, one, tuple("abc"), one[:, :3], one[0, :1], one),
        _folder() / "fitted.json",
    )
    return (_folder() / "fitted.json").read_bytes()


def decoders() -> list[Decoder]:
    """All of this room."""
    encoder = Encoder.fit(tables.columns(), {"region": OneHot(), "agent": Hashed(16)})
    saved, run = _folder() / "saved.pt", Run(_folder() / "run", b"")
    examples = []
    for each in (None, encoder):
        Predictor(_model(), "bce", "visits", each).save(saved)
        examples.append(saved.read_bytes())
    run.save(3, [_model()])
    return [
        Decoder(
            "saved model",
            ("training.predictor.load", "training.checkpoint.read_saved"),
            tuple(examples),
            _in_file("saved.pt", lambda path: load(path, _model())),
            (NotAModel, DecodeError, NotAnEncoder),
            weight=0.02,
        ),
        Decoder(
            "fitted model",
            ("fitting.saving.load",),
            (_fitted(),),
            _in_file("fitted.json", saving.load),
            (NotAModel,),
            weight=0.2,
        ),
        Decoder(
            "checkpoint",
            ("training.checkpoint.read_saved",),
            ((run.folder / "checkpoint.pt").read_bytes(),),
            _in_file("run/checkpoint.pt", lambda path: Run(path.parent, b"").load([_model()])),
            (OtherRun,),
            weight=0.02,
        ),
        Decoder(
            "answer of a checkpoint",
            ("training.checkpoint.Run.answered",),
            (b"asked" + field.to_bytes(np.arange(3)),),
            _in_file("run/answer-3", lambda path: Run(path.parent, b"").answered(3, b"asked")),
            (DecodeError,),
            weight=0.2,
        ),
        Decoder(
            "recipe of a run",
            ("training.recipe.read",),
            (RUN,),
            _in_file("run.toml", recipe.read),
            (BadConfig,),
            weight=0.2,
            form=TOML,
        ),
        Decoder(
            "recipe of a fit",
            ("fitting.recipe.read", "fitting.recipe.is_fit"),
            (FIT,),
            _in_file("fit.toml", lambda path: fit_recipe.is_fit(path) and fit_recipe.read(path)),
            (BadConfig,),
            weight=0.2,
            form=TOML,
        ),
    ]
