"""Rows of columns that stay on a device give the bits of the same rows sent anew; padding adds nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from maskedlark.core import field
from maskedlark.core.records import TrainingRecords
from maskedlark.exact import device as devices
from maskedlark.exact.clip import Clip
from maskedlark.exact.errors import RecordsDoNotFit
from maskedlark.exact.forward import Seed
from maskedlark.exact.gradient import GradientEngine, Records, gradient
from maskedlark.exact.layout import step_layout
from maskedlark.exact.losses import BinaryCrossEntropy, SoftmaxCrossEntropy, SquaredError
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import Dropout, Relu
from maskedlark.exact.quantise import Quantised, quantise
from maskedlark.exact.resident import Columns
from tests.unit.exact.models import dense, random_parameters

RECORDS = 60
NETWORKS = {
    "softmax": dense((20, 12, 4), SoftmaxCrossEntropy(4)),
    "one output": dense((20, 12, 5, 1), BinaryCrossEntropy()),
    "three labels": dense((20, 12, 5), SoftmaxCrossEntropy(3), BinaryCrossEntropy(), SquaredError()),
    "dropout": Network(
        (Layer(Linear("w0", "b0", 20, 30)), Layer(Linear("w1", "b1", 30, 2), Relu(), Dropout(128))),
        (SoftmaxCrossEntropy(2),),
    ),
}
CLIP = Clip(0.5, fraction=12)
DEVICES = ["cpu", "cuda"]


def held(network: Network, shared: bool) -> TrainingRecords:
    rng = np.random.default_rng(4)
    rows = 1 if shared else RECORDS
    return TrainingRecords(
        rng.integers(0, 256, (RECORDS, 16)).astype(np.uint8),
        rng.integers(0, 256, (RECORDS, network.features)).astype(np.uint8),
        tuple(rng.integers(0, 2, (rows, 2)) for _ in network.losses),
        rng.integers(0, field.P, (RECORDS, 2 * len(network.losses))),
    )


def weights_of(network: Network) -> Quantised:
    return quantise(network, random_parameters(network, 1), (7,) * (len(network.layers) - 1))


def device_or_skip(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    return devices.ready(name)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_rows_are_the_same_as_records_sent_anew(name: str, shared: bool, device: str) -> None:
    network, place = NETWORKS[name], device_or_skip(device)
    records, weights, rng = held(network, shared), weights_of(network), np.random.default_rng(5)
    columns = Columns.of(records, network, place)
    engine = GradientEngine(step_layout(network, weights, CLIP), place)
    for block in (None, 7):
        places, counted = rng.integers(0, RECORDS, 40), rng.random(40) < 0.8
        kept = places[counted]
        candidates = [np.broadcast_to(each, (RECORDS, 2))[kept] for each in records.candidates]
        seed = Seed(b"seed", records.ids[kept])
        wanted = gradient(
            network, weights, Records(records.features[kept], candidates, records.shares[kept], seed), CLIP
        )
        assert (engine.share(columns.rows(places, counted, b"seed"), block) == wanted).all()


def test_a_batch_of_padding_is_zero_and_so_is_none() -> None:
    network = NETWORKS["softmax"]
    columns = Columns.of(held(network, True), network, "cpu")
    engine = GradientEngine(step_layout(network, weights_of(network), CLIP), torch.device("cpu"))
    for count in (0, 5):
        batch = columns.rows(np.zeros(count, np.int64), np.zeros(count, bool))
        assert not engine.share(batch).any()


@pytest.mark.parametrize(
    ("places", "counted", "why"),
    [
        (np.array([0, RECORDS]), np.ones(2, bool), "within the 60 records"),
        (np.array([0, -1]), np.ones(2, bool), "within the 60 records"),
        (np.array([0, 1]), np.ones(3, bool), "boolean for every row"),
        (np.array([0, 1]), np.array([2, 1]), "boolean for every row"),
    ],
)
def test_rows_that_are_not_there_are_refused(places: np.ndarray, counted: np.ndarray, why: str) -> None:
    columns = Columns.of(held(NETWORKS["softmax"], True), NETWORKS["softmax"], "cpu")
    with pytest.raises(RecordsDoNotFit, match=why):
        columns.rows(places, counted)


def test_columns_are_checked_when_they_are_made() -> None:
    network = NETWORKS["softmax"]
    records = held(network, True)
    for bad in (replace(records, shares=records.shares - field.P), replace(records, candidates=())):
        with pytest.raises(RecordsDoNotFit):
            Columns.of(bad, network, "cpu")


def test_columns_say_how_large_they_are_and_nothing_else() -> None:
    network = NETWORKS["softmax"]
    columns = Columns.of(held(network, True), network, "cpu")
    assert columns.size == RECORDS * (20 + 2 * 8) + 2 * 8
    text = repr(columns) + repr(columns.rows(np.array([1]), np.array([True])))
    assert str(columns.masks[1, 0].item()) not in text


def test_a_gpu_with_little_memory_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    place = device_or_skip("cuda")
    network = NETWORKS["three labels"]
    columns, weights = Columns.of(held(network, False), network, place), weights_of(network)
    batch = columns.rows(np.arange(RECORDS), np.ones(RECORDS, bool))
    engine = GradientEngine(step_layout(network, weights, CLIP), place)
    wanted = engine.share(batch)
    for bytes_free in (0, 100_000):
        monkeypatch.setattr(devices, "free", lambda _, own=bytes_free: own)
        assert (engine.share(batch) == wanted).all()
