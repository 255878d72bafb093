"""`maskedlark train` with the ONNX files that scikit-learn and PyTorch write, typed, over real services."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

pytest.importorskip("onnxscript")
pytest.importorskip("skl2onnx")

from maskedlark.cli import app
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.cluster import LocalCluster, local_cluster
from maskedlark.training import Client, load, read_onnx
from tests.integration.taught import FEATURES, SETTINGS, frozen
from tests.unit.exact.exporting import (
    Residual,
    WideAndDeep,
    exported,
    exported_beside,
    exported_by_sklearn,
    fitted,
)

RUN = """
adserver = "{adserver}"
tag = "visits"
model = "{model}"
loss = "{loss}"
steps = 2
batches = 2
noise = 20.0
delta = 1e-5
optimizer = {{name = "SGD", lr = 0.5}}
out = "model.pt"
"""
SKLEARN = {
    "MLPRegressor": "mse",
    "MLPClassifier": "bce",
    "LogisticRegression": "bce",
    "LinearRegression": "mse",
    "Ridge": "mse",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("world")
    with local_cluster(folder, SETTINGS, SystemRandomness()) as made, made.client() as client:
        frozen(made, client, "all")
        yield made


def trained(world: LocalCluster, folder: Path, model: str, loss: str, more: str = "") -> nn.Module:
    """What a user types, and the model that comes out."""
    (folder / "train.toml").write_text(more + RUN.format(adserver=world.config, model=model, loss=loss))
    done = CliRunner().invoke(app, ["train", str(folder / "train.toml"), "--json"])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["charged"]) == 2
    before = read_onnx(folder / model, loss)
    after = load(folder / "model.pt", read_onnx(folder / model, loss)).model
    moved = [
        (one - other).abs().max().item()
        for one, other in zip(after.parameters(), before.parameters(), strict=True)
    ]
    assert 0 < max(moved) < 10
    return after


@pytest.mark.parametrize("name", SKLEARN)
def test_what_scikit_learn_exports_is_trained(world: LocalCluster, tmp_path: Path, name: str) -> None:
    (tmp_path / "model.onnx").write_bytes(exported_by_sklearn(fitted(name, FEATURES), FEATURES, np.float64))
    trained(world, tmp_path, "model.onnx", SKLEARN[name])


def test_the_output_that_a_recipe_names_is_trained(world: LocalCluster, tmp_path: Path) -> None:
    model = exported_by_sklearn(fitted("LogisticRegression", FEATURES), FEATURES, zipmap=False)
    (tmp_path / "model.onnx").write_bytes(model)
    trained(world, tmp_path, "model.onnx", "bce", 'output = "probabilities"')
    recipe = tmp_path / "train.toml"
    recipe.write_text(recipe.read_text().replace("probabilities", "chances"))
    done = CliRunner().invoke(app, ["train", str(recipe)])
    assert done.exit_code == 1
    assert "has no output 'chances'; there are label, probabilities" in " ".join(done.output.split())


def test_what_pytorch_exports_is_trained_with_its_weights_beside_it(
    world: LocalCluster, tmp_path: Path
) -> None:
    net = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 1))
    exported_beside(net, (2, FEATURES), tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx.data").exists()
    trained(world, tmp_path, "model.onnx", "bce")


@pytest.mark.parametrize("dynamo", [True, False], ids=["default", "script"])
@pytest.mark.parametrize(
    "module", [Residual(), WideAndDeep(True), WideAndDeep(False)], ids=["residual", "joined", "added"]
)
def test_a_model_of_two_paths_is_told_what_to_do_before_anything_is_charged(
    world: LocalCluster, tmp_path: Path, module: nn.Module, dynamo: bool
) -> None:
    (tmp_path / "model.onnx").write_bytes(exported(module, (2, 4), dynamo=dynamo))
    (tmp_path / "train.toml").write_text(RUN.format(adserver=world.config, model="model.onnx", loss="bce"))
    done = CliRunner().invoke(app, ["train", str(tmp_path / "train.toml")])
    assert done.exit_code == 1
    advice = "leave one path out, or train any model, as it is, on labels from one release (docs/CELLS.md)"
    assert advice in " ".join(done.output.split())


def test_in_python_too_and_what_does_not_fit_costs_nothing(world: LocalCluster, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(exported_by_sklearn(fitted("LogisticRegression", FEATURES), FEATURES))
    model = read_onnx(path, "bce")
    with Client.from_config(world.config) as client:
        training = client.training(
            model, loss="bce", tag="visits", steps=1, batches=2, noise=20.0, delta=1e-5
        )
        optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
        for step in training:
            step.backward()
            optimiser.step()
    path.write_bytes(exported_by_sklearn(fitted("LogisticRegression", FEATURES, 3), FEATURES))
    (tmp_path / "train.toml").write_text(RUN.format(adserver=world.config, model="model.onnx", loss="bce"))
    done = CliRunner().invoke(app, ["train", str(tmp_path / "train.toml")])
    assert done.exit_code != 0
    assert 'for loss = "softmax"; name that loss' in " ".join(done.output.split())
