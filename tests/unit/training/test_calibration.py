"""Activations have 8 bits at a scale that is chosen from public rows: few may be clamped."""

import numpy as np
import pytest
import torch
from torch import nn

from maskedlark.errors import BadArguments
from maskedlark.exact.errors import Saturated, WeightsDoNotFit
from maskedlark.exact.quantise import calibrate
from maskedlark.features import Encoder
from maskedlark.training import network as networks
from maskedlark.training.evaluating import evaluation_query
from maskedlark.training.predictor import Predictor
from tests.unit.exact.models import exact_gradient, float_gradient
from tests.unit.training.cases import TAG, document, in_memory, run

RECORDS = 400
RNG = np.random.default_rng(0)
PEOPLE = {
    "campaign": RNG.choice(["autumn", "spring", "winter"], RECORDS).tolist(),
    "age": RNG.integers(18, 80, RECORDS).tolist(),
    "region": RNG.choice([f"region {number}" for number in range(12)], RECORDS).tolist(),
}
ENCODER = Encoder.fit(PEOPLE)
ROWS, LABELS = ENCODER.encode(PEOPLE), (RNG.random(RECORDS) < 0.2).astype(int)
FEATURES = len(ENCODER)
MODEL = {
    "tag": TAG,
    "columns": [{"kind": "bytes", "count": FEATURES}],
    "labels": [{"kind": "binary"}],
    "gradient_bound": 2.0,
}


@pytest.fixture(scope="module")
def helpers():
    return in_memory(document(models=[MODEL], values=[]), TAG, ROWS, [LABELS])


def two_layers(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, 1))


def error(training) -> float:
    """How far the gradient at the weights that the model has now is off torch's."""
    network, clip = training.network, training.clip
    sent, floats = training.quantised(), networks.parameters(network, training.model)
    wanted = float_gradient(network, floats, ROWS, LABELS, clip)
    found = exact_gradient(network, sent, ROWS, [LABELS], clip)
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("given", [{"encoder": ENCODER}, {}, {"sample": ROWS}])
def test_no_initialisation_needs_a_sample(helpers, given):
    training = run(helpers, two_layers(0), **given)
    errors = []
    for seed in range(20):  # In one run: scales follow the weights of each step.
        training.model.load_state_dict(two_layers(seed).state_dict())
        errors.append(error(training))
    assert max(errors) < 0.02


def test_rows_of_an_encoder_scale_as_its_people_do():
    finer = []
    for seed in range(20):
        model = two_layers(seed)
        network = networks.network(model, networks.losses("bce", model), FEATURES)
        made = networks.quantised(network, model, networks.scaling_rows(network, None, ENCODER), 8)
        finer.append(networks.quantised(network, model, ROWS, 8).activations[0] - made.activations[0])
    assert set(finer) <= {0, 1}
    assert sum(finer) <= 3


def test_an_evaluation_has_the_scales_of_training(helpers):
    model = two_layers(0)
    training = run(helpers, model, encoder=ENCODER)
    wanted = networks.quantised(training.network, model, ROWS, 8).activations
    assert training.quantised().activations == wanted
    assert evaluation_query(helpers, Predictor(model, "bce", TAG, ENCODER)).sent.activations == wanted


@pytest.mark.parametrize("weight", [100.0, float("nan")])
def test_what_no_scale_holds_is_refused_at_first_and_never_clamped_in_silence(helpers, weight):
    training = run(helpers, two_layers(0))
    with torch.no_grad():
        training.model.get_parameter("0.weight").fill_(weight)
    floats = networks.parameters(training.network, training.model)
    with pytest.warns(Saturated, match="no scale holds a hidden layer"):
        assert calibrate(training.network, floats, ROWS) == (0,)
    with pytest.raises(WeightsDoNotFit, match=r"rescale the model|8 bits hold 254: start from smaller"):
        run(helpers, training.model)


def test_an_encoder_of_another_width_is_refused(helpers):
    with pytest.raises(BadArguments, match=r"this encoder makes 1 bytes, not 18: take another"):
        run(helpers, two_layers(0), encoder=Encoder.fit({"age": PEOPLE["age"]}))


def test_a_sample_without_rows_is_refused(helpers):
    with pytest.raises(BadArguments, match="a sample is rows of 18 bytes"):
        run(helpers, two_layers(0), sample=ROWS[:0])
