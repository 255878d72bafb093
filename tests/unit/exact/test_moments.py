"""Moments: one way or another, the same integers; rows that the caller computes too; what is refused."""

import math

import numpy as np
import pytest
import torch

from maskedlark.core import field
from maskedlark.exact import digits, moments
from maskedlark.exact.clip import SAFETY, Norm
from maskedlark.exact.errors import RecordsDoNotFit, WeightsDoNotFit
from maskedlark.exact.losses import BinaryCrossEntropy, SoftmaxCrossEntropy
from maskedlark.exact.moments import Representation
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import Dropout, Identity, Relu, Tanh
from maskedlark.exact.quantise import Quantised, quantise
from tests.unit.exact.models import dense, random_parameters

RNG = np.random.default_rng(18)


def representation(network, bound=1.0, norm=Norm.L2, fraction=16, exponents=()):
    sent = quantise(network, random_parameters(network, 3), exponents or (6,) * (len(network.layers) - 1))
    return Representation(network, sent, bound, norm, fraction)


NETWORKS = {
    "features": dense((40, 5), SoftmaxCrossEntropy(5)),
    "without bias": Network((Layer(Linear("w0", None, 40, 5)),), (SoftmaxCrossEntropy(5),)),
    "hidden": dense((40, 30, 5), SoftmaxCrossEntropy(5)),
    "signed": dense((40, 30, 5), SoftmaxCrossEntropy(5), activation=Identity()),
    "dropped features": Network(
        (Layer(Linear("w0", "b0", 40, 5), dropout=Dropout(128)),), (SoftmaxCrossEntropy(5),)
    ),
}


def case(network, norm, count=5000):
    features = np.random.default_rng(1).integers(0, 256, (count, network.features)).astype(np.uint8)
    shares = np.random.default_rng(2).integers(0, field.P, (count, 5))
    shares[:7] = np.array([0, 1, field.P - 1, field.HALF, field.HALF + 1, 1 << 31, 1 << 60])[:, None]
    return representation(network, norm=norm), features, shares


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("norm", list(Norm))
def test_ways_blocks_and_threads_do_not_matter(name, norm, monkeypatch):
    phi, features, shares = case(NETWORKS[name], norm)
    before = torch.get_num_threads()
    numbers, factors = phi.rows(features)
    rows = (numbers * factors[:, None]).astype(object)
    wanted = (shares.astype(object).T @ rows % field.P).tolist()
    for threads, block, in_bytes in ((1, 4096, True), (2, 777, True), (1, 901, False), (2, 16000, False)):
        monkeypatch.setattr(moments, "BLOCK", block)
        monkeypatch.setattr(digits, "available", lambda device, answer=in_bytes: answer)
        torch.set_num_threads(threads)
        try:
            assert phi.share(features, lambda own: shares[own], 5).tolist() == wanted
            again = phi.rows(features)
        finally:
            torch.set_num_threads(before)
        assert (again.numbers == numbers).all()
        assert (again.factors == factors).all()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("norm", list(Norm))
def test_a_gpu_gives_the_same_bits(name, norm):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    phi, features, shares = case(NETWORKS[name], norm)
    wanted = phi.share(features, lambda own: shares[own], 5)
    assert (phi.share(features, lambda own: shares[own], 5, device="cuda") == wanted).all()


def test_arrays_that_lie_otherwise_do_as_well():
    phi, features, shares = case(NETWORKS["features"], Norm.L2, 50)
    wanted = phi.share(features, lambda own: shares[own], 5).tolist()
    turned = np.ascontiguousarray(features[::-1])[::-1]
    for given in (turned, np.asfortranarray(features), features.copy()):
        given.flags.writeable = False
        assert phi.share(given, lambda own: np.asfortranarray(shares)[own], 5).tolist() == wanted
        assert (phi.rows(given).numbers == phi.rows(features).numbers).all()


def test_no_records_are_zeros():
    phi = representation(NETWORKS["hidden"])
    assert phi.share(np.empty((0, 40), np.uint8), lambda own: np.empty((0, 5), np.int64), 5).sum() == 0
    assert [each.shape for each in phi.rows(np.empty((0, 40), np.uint8))] == [(0, 31), (0,)]


@pytest.mark.parametrize("norm", list(Norm))
def test_short_rows_are_whole_and_long_ones_as_long_as_the_bound(norm):
    phi = representation(NETWORKS["without bias"], 0.5, norm)
    features = np.zeros((4, 40), np.uint8)
    features[1, 0], features[2, 0], features[3] = 127, 128, 255
    numbers, factors = phi.rows(features)
    assert factors[:2].tolist() == [1 << 16] * 2
    # One of exactly R: the safety takes one unit of 2^16.
    assert factors[2] == (1 << 16) - 1
    length = 255 * (40 if norm is Norm.L1 else math.sqrt(40))
    assert factors[3] == math.floor(0.5 * 2.0**24 / (length * SAFETY))
    for row, factor in zip(numbers.tolist(), factors.tolist(), strict=True):
        power = sum(x if norm is Norm.L1 else x * x for x in row)
        assert factor ** (1 if norm is Norm.L1 else 2) * power <= (1 << 23) ** (1 if norm is Norm.L1 else 2)


@pytest.mark.parametrize("exponent", [0, 1, 8, 20, 24])
@pytest.mark.parametrize("norm", list(Norm))
def test_the_constant_counts_at_every_exponent(exponent, norm):
    """2^24 squared is beyond float32, and no reason to leave it out."""
    network = dense((3, 2, 1), BinaryCrossEntropy(), activation=Identity())
    values = np.zeros(network.size, np.int16)
    phi = Representation(network, Quantised(values, (0,) * 4, (exponent,)), 0.25, norm)
    numbers, factors = phi.rows(RNG.integers(0, 256, (3, 3)).astype(np.uint8))
    assert numbers.tolist() == [[0, 0, 1 << exponent]] * 3
    assert set(factors.tolist()) == {math.floor(0.25 * 2.0**16 / SAFETY)}
    assert phi.unit == 2.0 ** -(exponent + 16)
    share = phi.share(np.zeros((3, 3), np.uint8), lambda own: np.ones((3, 1), np.int64)[own], 1)
    assert share.tolist() == [[0, 0, 3 * int(factors[0]) << exponent]]


def test_numbers_are_the_real_ones_in_their_unit():
    network = dense((40, 30, 5), SoftmaxCrossEntropy(5), activation=Tanh())
    parameters = random_parameters(network, 3)
    phi = representation(network, bound=1e3, exponents=(8,))
    features = RNG.integers(0, 256, (20, 40)).astype(np.uint8)
    numbers, factors = phi.rows(features)
    assert (factors == 1 << 16).all()
    hidden = np.tanh(features / 256 @ parameters["w0"].T + parameters["b0"])
    assert np.abs(numbers[:, :-1] * 2.0**-phi.exponent - hidden).max() < 0.05
    assert (numbers[:, -1] * 2.0**-phi.exponent == 1).all()


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, math.inf, 2.0**-25, 2.0**28])
def test_bounds_that_integers_do_not_hold_are_refused(bound):
    with pytest.raises(RecordsDoNotFit, match="R > 0"):
        representation(NETWORKS["features"], bound)
    for allowed in (2.0**-24, 2.0**28 * (1 - 2.0**-53)):
        assert 1 <= representation(NETWORKS["features"], allowed).top < 2**52
    for fraction in (0, 22):
        with pytest.raises(RecordsDoNotFit, match="1 to 21 bits"):
            representation(NETWORKS["features"], fraction=fraction)


def test_features_and_weights_of_another_form_are_refused():
    phi = representation(NETWORKS["hidden"])
    for bad in (np.zeros((2, 39), np.uint8), np.zeros((2, 40)), np.zeros(40, np.uint8)):
        with pytest.raises(RecordsDoNotFit, match="40 per record"):
            phi.rows(bad)
        with pytest.raises(RecordsDoNotFit, match="40 per record"):
            phi.share(bad, lambda own: np.zeros((2, 5), np.int64), 5)
    for values, hidden in ((np.zeros(3, np.int16), (6,)), (phi.weights.values, (25,))):
        with pytest.raises(WeightsDoNotFit):
            Representation(phi.network, Quantised(values, phi.weights.exponents, hidden), 1.0)


def test_a_relu_that_saturates_is_a_step():
    """How maps of quantile buckets are made: 16-bit weights, byte > t to 255, else 0."""
    layers = (Layer(Linear("w0", "b0", 1, 2)), Layer(Linear("w1", "b1", 2, 1), Relu()))
    network = Network(layers, (BinaryCrossEntropy(),))
    # Weight 256 and bias -100 of the byte's unit; weight 1 beside it passes the byte through.
    values = np.array([256 * 16, 16, -100 * 16, 0, 0, 0, 0], np.int16)
    phi = Representation(network, Quantised(values, (4, 4, 0, 0), (8,), 16), 100.0)
    found = phi.rows(np.array([[0], [99], [100], [101], [255]], np.uint8)).numbers
    assert found[:, 0].tolist() == [0, 0, 0, 255, 255]
    assert found[:, 1].tolist() == [0, 99, 100, 101, 255]
