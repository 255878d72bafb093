"""Moments equal their slow twin to the bit, and no row is longer than R, whatever the network and records."""

from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from maskedlark.core import field
from maskedlark.core.records import TrainingRecords
from maskedlark.exact import digits, moments
from maskedlark.exact.clip import Norm
from maskedlark.exact.errors import RecordsDoNotFit, TooWide
from maskedlark.exact.gradient import Records
from maskedlark.exact.moments import Representation
from maskedlark.functions.moments import MomentsQuery
from tests.twins import exact as twin
from tests.unit.exact.cases import (
    add,
    helpers_of,
    label_space,
    networks,
    twin_network,
    twin_records,
    weights_of,
)

BOUNDS = [1e-6, 0.01, 0.37, 1.0, 2.5, 60.0, 1e6]


def quiet(examples: int) -> settings:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    return settings(max_examples=examples, deadline=None, suppress_health_check=checks)


@st.composite
def representations(draw: st.DrawFn, bits: int = 8) -> Representation:
    network = draw(networks())
    given = draw(st.sampled_from(BOUNDS)), draw(st.sampled_from(list(Norm)))
    try:
        return Representation(network, draw(weights_of(network, bits)), *given, draw(st.integers(1, 21)))
    except (RecordsDoNotFit, TooWide):
        assume(False)
        raise


def plain(phi: Representation) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same for the twin."""
    bound = {"r": phi.bound, "norm": str(phi.norm), "fraction": phi.fraction}
    return twin_network(phi.network, phi.weights), bound


def query(phi: Representation) -> MomentsQuery:
    spaces = tuple(label_space(loss, np.random.default_rng(0)) for loss in phi.network.losses)
    return MomentsQuery("tag", phi.network, phi.weights, phi, spaces, tuple(range(len(spaces))))


def stored(own: Records) -> TrainingRecords:
    """As a helper stores them."""
    ids = np.zeros((len(own), 16), np.uint8)
    return TrainingRecords(ids, own.features, tuple(own.candidates), own.masks)


def check_case(phi: Representation, helpers: tuple[Records, ...], block: int) -> None:
    asked, (net, bound) = query(phi), plain(phi)
    # The first helper multiplies bytes, the others limbs, in other blocks: masks cancel all the same.
    with mock.patch.object(moments, "BLOCK", block):
        shares = [asked.share_of(stored(helpers[0]))]
    with mock.patch.object(digits, "available", return_value=False):
        shares += [asked.share_of(stored(own)) for own in helpers[1:]]
    truth = Records(
        helpers[0].features, helpers[0].candidates, add([own.masks for own in helpers]), helpers[0].seed
    )
    for label, column in enumerate(asked.columns):
        assert shares[0][label].tolist() == twin.moments(net, bound, twin_records(helpers[0]), label)
        expected = twin.moments(net, bound, twin_records(truth), label)
        assert add([own[label] for own in shares]).tolist() == expected
        assert len(expected) == column.width
        found = field.to_signed(np.array(expected, np.int64))
        assert np.abs(found).max(initial=0) <= len(truth) * column.largest


@given(phi=representations(), data=st.data(), block=st.integers(1, 6))
@quiet(120)
def test_shares_add_up_to_the_twins_integers(phi: Representation, data: st.DataObject, block: int) -> None:
    check_case(phi, data.draw(helpers_of(phi.network)), block)


@given(phi=representations(bits=16), data=st.data(), block=st.integers(1, 6))
@quiet(40)
def test_so_they_do_with_16_bit_weights(phi: Representation, data: st.DataObject, block: int) -> None:
    check_case(phi, data.draw(helpers_of(phi.network)), block)


@pytest.mark.long
@given(phi=representations(), data=st.data(), block=st.integers(1, 6))
@quiet(3000)
def test_shares_add_up_many_times(phi: Representation, data: st.DataObject, block: int) -> None:
    check_case(phi, data.draw(helpers_of(phi.network)), block)


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.long), 2])
def test_threads_do_not_matter(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        test_shares_add_up_to_the_twins_integers()
    finally:
        torch.set_num_threads(before)


@given(phi=representations(), seed=st.integers(0, 2**32 - 1), block=st.integers(1, 9))
@quiet(120)
def test_the_callers_rows_are_the_helpers_and_within_the_bound(phi, seed: int, block: int) -> None:
    rng, (net, bound) = np.random.default_rng(seed), plain(phi)
    # Zeros and saturated rows too.
    features = rng.choice(np.array([0, 1, 254, 255]), (8, phi.network.features)).astype(np.uint8)
    features[:3] = np.array([0, 255, 1])[:, None]
    with mock.patch.object(moments, "BLOCK", block):
        numbers, factors = phi.rows(features)
    assert numbers.shape == (8, phi.width)
    top = Fraction(phi.bound) * 2 ** (phi.exponent + phi.fraction)
    for row, own, factor in zip(features.tolist(), numbers.tolist(), factors.tolist(), strict=True):
        assert twin.represented(net, bound, row) == (own, factor)
        assert 0 <= factor <= 1 << phi.fraction
        if phi.norm is Norm.L1:
            assert factor * sum(map(abs, own)) <= top
        else:
            assert factor**2 * sum(x * x for x in own) <= top**2
    for row in range(8):
        # One helper with a mask of 1 at one label: what it sums is the caller's own row.
        found = phi.share(features[row : row + 1], lambda block: np.ones((1, 1), np.int64)[block], 1)
        assert field.to_signed(found)[0].tolist() == (factors[row] * numbers[row]).tolist()


@given(phi=representations(), seed=st.integers(0, 2**32 - 1))
@quiet(40)
def test_weights_of_the_last_layer_do_not_enter(phi: Representation, seed: int) -> None:
    features = np.random.default_rng(seed).integers(0, 256, (4, phi.network.features)).astype(np.uint8)
    last, values = phi.network.layers[-1].linear, phi.weights.values.copy()
    values[len(values) - last.outputs * (last.inputs + (last.bias is not None)) :] = 0
    sent = type(phi.weights)(values, phi.weights.exponents, phi.weights.activations, phi.weights.bits)
    zeroed = Representation(phi.network, sent, phi.bound, phi.norm, phi.fraction)
    one, other = phi.rows(features), zeroed.rows(features)
    assert one.numbers.tolist() == other.numbers.tolist()
    assert one.factors.tolist() == other.factors.tolist()
