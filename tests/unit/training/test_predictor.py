import io
import json
import pickle
import zipfile
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from maskedlark.features import Encoder, Hashed, OneHot
from maskedlark.training import Predictor, load
from maskedlark.training.errors import NotAModel, RowsDoNotFit
from tests.unit.features import tables
from tests.unit.training.cases import FEATURES, document, fit, home, model, run, table


def saved(path, **said):
    found = {"format": 1, "losses": ["bce"], "tag": "visits", "encoder": None, **said}
    torch.save({"said": json.dumps(found), "state": model().state_dict()}, path)
    return path


def test_training_and_serving_see_the_same_numbers(tmp_path):
    """The table's own columns, through the saved encoder, are the bytes that browsers would have sent."""
    rows = tables.columns()
    encoder = Encoder.fit(rows, {"region": OneHot(), "agent": Hashed(16)})
    made = nn.Sequential(nn.Linear(len(encoder), 4), nn.Tanh(), nn.Linear(4, 1))
    before = Predictor(made, "bce", "visits", encoder)
    before.save(tmp_path / "model.pt")
    other = nn.Sequential(nn.Linear(len(encoder), 4), nn.Tanh(), nn.Linear(4, 1))
    after = load(tmp_path / "model.pt", other)
    found = after.predict(rows)
    assert np.array_equal(found, before.predict(encoder.encode(rows)))
    assert np.array_equal(found, after.predict(tables.as_rows(rows)))
    assert (after.tag, after.loss) == ("visits", ("bce",))
    with torch.inference_mode():
        by_hand = torch.sigmoid(made(torch.from_numpy(encoder.encode(rows)) / 256)).double().numpy()[:, 0]
    assert np.allclose(found, by_hand, atol=1e-6)


def test_a_run_saves_what_it_predicts(tmp_path):
    x, _ = table()
    net = model()
    training = fit(run(home(document()), net), torch.optim.Adam(net.parameters()))
    training.save(tmp_path / "model.pt")
    assert np.array_equal(
        load(tmp_path / "model.pt", model(seed=4)).predict(x), training.predictor().predict(x)
    )


def test_predictions_are_what_the_loss_makes_of_outputs():
    x, _ = table()
    with torch.inference_mode():
        one, three = (made(torch.from_numpy(x) / 256).double() for made in (model(), model(3)))
    assert np.array_equal(Predictor(model(), "mse", "visits").predict(x), one.numpy()[:, 0])
    assert np.array_equal(Predictor(model(), "bce", "visits").predict(x), torch.sigmoid(one).numpy()[:, 0])
    for name in ("softmax", "ce", "cross_entropy"):
        found = Predictor(model(3), name, "kinds").predict(x)
        assert np.array_equal(found, torch.softmax(three, dim=1).numpy())
    several = Predictor(model(3), ("bce", "mse", "bce"), "three").predict(x)
    assert np.array_equal(several[:, 1], three.numpy()[:, 1])
    assert np.allclose(several[:, 2], torch.sigmoid(three).numpy()[:, 2], atol=1e-12)


def test_asking_leaves_the_model_as_it_was():
    dropping = nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    x, _ = table()
    asked = Predictor(dropping.train(), "mse", "visits")
    assert np.array_equal(asked.predict(x), asked.predict(x))
    assert dropping.training


def test_without_an_encoder_there_are_only_bytes():
    with pytest.raises(RowsDoNotFit, match=r"has no encoder.*pass encoder\.encode\(table\)"):
        Predictor(model(), "bce", "visits").predict({"age": [1]})


@pytest.mark.parametrize("loss", ["bce", "softmax"])
def test_a_table_without_rows_is_refused_in_words(loss):
    rows = tables.columns()
    encoder = Encoder.fit(rows)
    none = {name: column[:0] for name, column in rows.items()}
    asked = Predictor(nn.Linear(len(encoder), 2 if loss == "softmax" else 1), loss, "visits", encoder)
    for table_ in (none, encoder.encode(rows)[:0]):
        with pytest.raises(RowsDoNotFit, match="the table has no rows"):
            asked.predict(table_)


class Runs:
    """A pickle that would do something when it is read."""

    def __reduce__(self):
        return (print, ("it was run",))


def damaged(tmp_path):
    whole = saved(tmp_path / "whole").read_bytes()
    yield b""
    yield b"no model"
    yield whole[: len(whole) // 2]
    yield pickle.dumps(Runs())
    contents: list[Any] = [Runs(), {"said": 3}, {"said": "{}", "state": {}}, [1], {"state": {}}]
    for content in contents:
        held = io.BytesIO()
        torch.save(content, held)
        yield held.getvalue()
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as file:
        file.writestr("archive/data.pkl", b"x")
    yield held.getvalue()


def test_what_is_no_model_is_refused_and_not_run(tmp_path, capsys):
    for data in damaged(tmp_path):
        (tmp_path / "model.pt").write_bytes(data)
        with pytest.raises(NotAModel):
            load(tmp_path / "model.pt", model())
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "said", [{"format": 2}, {"losses": []}, {"losses": ["hinge"]}, {"more": 1}, {"tag": 3}]
)
def test_what_is_of_another_version_is_refused(tmp_path, said):
    with pytest.raises(NotAModel, match="another version"):
        load(saved(tmp_path / "model.pt", **said), model())


def test_another_shape_is_refused(tmp_path):
    with pytest.raises(NotAModel, match="another shape"):
        load(saved(tmp_path / "model.pt"), model(3))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing.pt", model())


class Functional(nn.Module):
    """A sigmoid that is called, not a module."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, rows):
        return torch.sigmoid(self.layer(rows))


@pytest.mark.parametrize("ending", [lambda layer: nn.Sequential(layer, nn.Sigmoid()), Functional])
def test_a_model_that_ends_in_a_sigmoid_gives_probabilities_once(ending):
    layer, rows = nn.Linear(FEATURES, 1), table()[0]
    plain = Predictor(layer, "bce", "visits").predict(rows)
    assert Predictor(ending(layer), "bce", "visits").predict(rows) == pytest.approx(plain)
