"""A network of the caller's own as the map of a linear model."""

import numpy as np
import pytest
import torch
from torch import nn

from maskedlark.errors import BadArguments
from maskedlark.exact.errors import ModelDoesNotFit, WeightsDoNotFit
from maskedlark.exact.losses import BinaryCrossEntropy
from maskedlark.fitting import LogisticRegression, load, maps, network_map
from tests.unit.fitting import cases
from tests.unit.fitting.charged import charges


def learnt(*after, outputs=12, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, outputs), *after)


@pytest.mark.parametrize("after", [(), (nn.ReLU(),), (nn.Tanh(),)], ids=["linear", "relu", "tanh"])
def test_the_engine_computes_its_outputs_whitened(after):
    rows, module = cases.rows(800), learnt(*after)
    (found,) = network_map.fit(module, rows)
    phi = found.representation((BinaryCrossEntropy(),), 100.0)
    numbers = phi.rows(rows).numbers[:, :-1] * 2.0**-phi.exponent
    with torch.no_grad():
        outputs = found.space.module.get_submodule("0")(torch.from_numpy(rows).double() / 256).numpy()
    floats = outputs @ found.weight.T + found.bias
    # Outputs are rounded to 8 bits before they are whitened.
    apart = np.abs(numbers - floats).mean()
    assert apart < 0.1 * floats.std()
    assert phi.weights.bits == 16
    spread = np.linalg.eigvalsh(np.cov(numbers.T))
    assert spread[-1] < 5.5, "whitened with a ridge"
    theta, intercept = np.random.default_rng(0).normal(size=(2, 12)), np.array([0.5, -1])
    coefficients, constant = found.named(theta, intercept)
    np.testing.assert_allclose(outputs @ coefficients.T + constant, floats @ theta.T + intercept, atol=1e-9)


def test_a_model_is_fitted_to_a_network_and_the_same_again_costs_nothing(tmp_path):
    """A truth that is no line in the columns, and one in what the network says."""
    rows = cases.rows(3000)
    module = learnt(outputs=8, seed=3)
    with torch.no_grad():
        outputs = module(torch.from_numpy(rows).float() / 256).numpy()
    chance = 1 / (1 + np.exp(-3 * ((outputs - outputs.mean(axis=0)) / outputs.std(axis=0))[:, 0]))
    truth = (np.random.default_rng(0).random(len(rows)) < chance).astype(int)
    with cases.workflow() as way:
        way.make_training_dataset("first", cases.TAG, rows, [truth], decoded=True)
        model = LogisticRegression(way, cases.TAG, noise=0.2, map=module).fit(rows)
        again = LogisticRegression(way, cases.TAG, noise=0.2, map=module).fit(rows)
        LogisticRegression(way, cases.TAG, noise=0.2, map=model.map_).fit(rows)
        assert charges(way) == 1
    assert model.map_.kind == "network"
    assert list(model.feature_names_out_) == [f"output {i}" for i in range(8)]
    assert model.intervals_.shape == (1, 8, 2)
    assert np.corrcoef(model.predict_proba(rows)[:, 1], chance)[0, 1] > 0.98
    np.testing.assert_array_equal(again.coef_, model.coef_)
    model.save(tmp_path / "model.json")
    np.testing.assert_array_equal(
        load(tmp_path / "model.json").predict_proba(rows), model.predict_proba(rows)
    )


def test_what_does_not_fit_whole_is_cut_or_left_as_it_is(monkeypatch):
    rows, module = cases.rows(300), learnt(outputs=20)
    own = sum(each.numel() for each in module.parameters())
    for room, widths in ((own + 400, [20]), (own // 2 + 50, [5, 20]), (own // 2 + 5, [20])):
        monkeypatch.setattr(maps, "MAX_WEIGHTS", room)
        found = network_map.fit(module, rows)
        assert [len(each.bias) for each in found] == widths
        for each in found:
            phi = each.representation((BinaryCrossEntropy(),), 1.0)
            assert phi.weights.bits == (16 if room > own else 8)
            assert phi.rows(rows).numbers.shape == (300, len(each.bias) + 1)
    monkeypatch.setattr(maps, "MAX_WEIGHTS", own // 2 - 1)
    with pytest.raises(BadArguments, match=f"has {own:,} weights, and {own - 2:,} fit into a request"):
        network_map.fit(module, rows)


def test_a_network_that_cannot_be_asked_is_refused_before_it_is_charged():
    way, rows, _ = cases.filled(count=100)
    broken = learnt()
    with torch.no_grad():
        broken[0].weight[0, 0] = torch.nan
    wrong: list[tuple[nn.Module, type[Exception]]] = [
        (broken, WeightsDoNotFit),
        (nn.Linear(4, 3), ModelDoesNotFit),
        (nn.Sequential(nn.Linear(5, 4), nn.Softmax(dim=1)), ModelDoesNotFit),
    ]
    with way:
        for module, error in wrong:
            with pytest.raises(error):
                LogisticRegression(way, cases.TAG, noise=1.0, map=module).fit(rows)
        assert charges(way) == 0


@pytest.mark.long
def test_4096_outputs_and_10_classes_are_asked(monkeypatch):
    ten = '{kind = "categorical", value = "spent", classes = 10}'
    monkeypatch.setitem(cases.LABELS, "digits", ten)
    monkeypatch.setattr(cases, "SETTINGS", cases.SETTINGS.replace("count = 5", "count = 784"))
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (200, 784)).astype(np.uint8)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(784, 4096), nn.ReLU())
    with cases.workflow("digits") as way:
        way.make_training_dataset("first", cases.TAG, rows, [rng.integers(0, 10, 200)], decoded=True)
        monkeypatch.setattr(network_map, "_whitened", lambda *_: None)  # It would take a minute.
        whole = network_map.fit(module, rows)[1]
        asked = LogisticRegression(way, cases.TAG, noise=1.0, map=whole, clip=4.0)._request(rows)
        assert asked.phi.width == 4097
        assert not asked.has_intervals
        assert way.price(*asked.asked).fits
