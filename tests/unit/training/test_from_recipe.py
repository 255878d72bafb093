"""A run by its TOML: what is made of it, and what is wrong with it."""

import numpy as np
import pytest
import torch
from torch import nn

from maskedlark.errors import BadArguments
from maskedlark.exact.errors import ModelDoesNotFit
from maskedlark.features import Encoder, Scaled
from maskedlark.training import from_recipe, recipe
from maskedlark.training.errors import BadRun
from maskedlark.web.errors import BadConfig
from tests.unit.exact.exporting import exported, exported_by_sklearn, fitted
from tests.unit.training.cases import FEATURES, document, fit, flat, home
from tests.unit.training.recipes import BUILD, RUN, STEPPING


@pytest.fixture
def made(tmp_path):
    (tmp_path / "model.py").write_text(BUILD)

    def training(text=RUN + STEPPING):
        (tmp_path / "run.toml").write_text(text)
        return from_recipe.training(recipe.read(tmp_path / "run.toml"), home(document()))

    return training


def test_a_run_is_made_and_runs(made, tmp_path):
    training, (adam,) = made()
    assert adam.defaults["betas"] == (0.8, 0.99)
    assert (len(training), training.plan().noise) == (4, 0.5)
    before = flat(training.model)
    fit(training, adam)
    assert not np.array_equal(flat(training.model), before)
    again, steppers = made()
    assert np.array_equal(flat(again.model), before)  # The seed is the recipe's.
    scheduled, (_, scheduler) = made(
        RUN + STEPPING + 'scheduler = {name = "StepLR", step_size = 2}\nseed = 1\n'
    )
    assert scheduler.step_size == 2
    assert not np.array_equal(flat(scheduled.model), before)
    training.save(tmp_path / "model.pt")
    assert from_recipe.trained(recipe.read(tmp_path / "run.toml")).tag == "visits"
    assert len(steppers) == 1


def test_a_table_scales_activations_and_tells_the_plan_how_long_gradients_are(made, tmp_path):
    names = [f"column {place}" for place in range(FEATURES)]
    rows = np.random.default_rng(1).integers(0, 256, (2000, FEATURES))
    Encoder.fit(dict(zip(names, rows.T, strict=True)), dict.fromkeys(names, Scaled(0, 255))).save(
        tmp_path / "encoder.json"
    )
    lines = [",".join(map(str, row)) for row in [names, *rows.tolist()]]
    (tmp_path / "people.csv").write_text("\n".join(lines))
    text = RUN + STEPPING + 'table = "people.csv"\n'
    training, _ = made(text + 'encoder = "encoder.json"\n')
    assert training.sample is not None
    assert training.sample.tolist() == rows[::4].tolist(), "few enough for every step"
    assert training.plan().typical is not None
    with pytest.raises(BadRun, match="table goes with encoder"):
        made(text)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (RUN, BadConfig, r"optimizer: Field required. Write one of torch.optim"),
        (RUN + STEPPING + "stepz = 3", BadConfig, r"did you mean 'steps'\? There are adserver, tag"),
        (RUN + "optimizer = {lr = 1.0}", BadConfig, "it has no name"),
        (RUN + STEPPING + 'sampling = "chosen"', BadConfig, "every step takes all"),
        (RUN + STEPPING + "epsilon = 2.0", BadArguments, "give the noise, or the epsilon"),
        (RUN + 'optimizer = {name = "Adamm"}', BadRun, "'Adamm': there is none of that name in torch.optim"),
        (RUN + 'optimizer = {name = "lr_scheduler"}', BadRun, "there is none of that name"),
        (RUN + 'optimizer = {name = "SGD", lrate = 1.0}', BadRun, "optimizer SGD: .*lrate"),
        (RUN + 'optimizer = {name = "SGD", lr = -1.0}', BadRun, "Invalid learning rate"),
        (RUN + STEPPING + 'scheduler = {name = "StepLR"}', BadRun, "scheduler StepLR: .*step_size"),
        (RUN.replace(":build", ":nothing") + STEPPING, BadRun, "returned no torch.nn.Module but a int"),
        (RUN.replace(":build", ":fails") + STEPPING, BadRun, "ValueError: no GPU here"),
        (RUN.replace(":build", ":other") + STEPPING, BadRun, "has no attribute 'other'"),
        (RUN.replace("model.py:build", "model.h5") + STEPPING, BadRun, "or an ONNX file"),
    ],
)
def test_what_is_wrong_is_said(made, text, error, said):
    with pytest.raises(error, match=said):
        made(text)


@pytest.mark.parametrize("between", [nn.LeakyReLU(0.25), nn.ELU(), nn.Sigmoid(), nn.Tanh()])
def test_an_onnx_model_is_trained_from_where_it_is(made, tmp_path, between):
    net = nn.Sequential(nn.Linear(FEATURES, 5), nn.ReLU(), nn.Linear(5, 4), between, nn.Linear(4, 1))
    data = exported(net, (2, FEATURES), dynamo=False)
    (tmp_path / "model.onnx").write_bytes(data)
    training, _ = made(RUN.replace("model.py:build", "model.onnx") + STEPPING)
    x = torch.rand(7, FEATURES)
    assert torch.allclose(training.model(x), net(x), atol=1e-6)
    assert [type(each) for each in training.model] == [type(each) for each in net]


def test_an_output_of_an_onnx_file_is_named_in_the_recipe(made, tmp_path):
    pytest.importorskip("skl2onnx")
    model = fitted("MLPClassifier", FEATURES)
    (tmp_path / "model.onnx").write_bytes(exported_by_sklearn(model, FEATURES, zipmap=False))
    text = RUN.replace("model.py:build", "model.onnx") + STEPPING
    for more in ("", 'output = "probabilities"'):
        training, _ = made(text + more)
        assert [type(each) for each in training.model] == [nn.Linear, nn.ReLU] * 2 + [nn.Linear]
    with pytest.raises(ModelDoesNotFit, match="has no output 'logits'; there are label, probabilities"):
        made(text + 'output = "logits"')
