"""A planned clip fits at all weights, no finer one does, and what it says is lost bounds what is lost."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from maskedlark.errors import FieldOverflow
from maskedlark.exact.clip import Clip, Norm
from maskedlark.exact.errors import OutOfField, TooWide
from maskedlark.exact.layout import step_layout
from maskedlark.exact.network import Network
from maskedlark.exact.precision import truncation
from maskedlark.exact.quantise import Quantised, calibrate, finest, quantise
from maskedlark.functions.gradient import GradientQuery
from maskedlark.parameters.document import Document
from maskedlark.release.checks import check_range
from maskedlark.training.precision import FRACTION, choose
from tests.twins import exact as twin
from tests.unit.exact.cases import Case, cases, networks, twin_network, twin_records
from tests.unit.training.cases import TAG, document


def quiet(examples: int) -> settings:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    return settings(max_examples=examples, deadline=None, suppress_health_check=checks)


@cache
def declared(psi: float, kind: str, helpers: int) -> Document:
    model = {
        "tag": TAG,
        "columns": [{"kind": "bytes", "count": 1}],
        "labels": [{"kind": "binary"}],
        "gradient_bound": psi,
    }
    mechanisms = {"gradient": {"kind": kind, "noise_floor": 0.01}}
    return document(helpers, models=[model], mechanisms=mechanisms, values=[])


@st.composite
def sent_by(draw: st.DrawFn, network: Network, bits: int) -> Quantised:
    """Weights of any size, as an ad server quantises them, with activations from rows of its own."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = [0.0, 1e-6, 0.01, 0.1, 1.0, 20.0]
    floats = {
        entry.name: np.clip(rng.normal(0, draw(st.sampled_from(sizes)), entry.shape), -100, 100)
        for entry in network.parameters
    }
    rows = rng.integers(0, 256, (3, network.features)).astype(np.uint8)
    return quantise(network, floats, calibrate(network, floats, rows), bits)


def fits(under: Document, network: Network, weights: Quantised, clip: Clip, noise: float, most: int) -> bool:
    try:
        (column,) = GradientQuery(TAG, network, weights, clip).columns
        check_range(under, "gradient", column, noise, most)
    except TooWide:
        raise
    except FieldOverflow:
        return False
    return True


@pytest.mark.filterwarnings("ignore::maskedlark.exact.errors.Saturated")
@given(st.data())
@quiet(150)
def test_the_planned_clip_fits_at_all_weights_and_no_finer_one_does(data: st.DataObject) -> None:
    network = data.draw(networks())
    bits = data.draw(st.sampled_from([8, 16]))
    psi = data.draw(st.sampled_from([1e-6, 0.01, 0.3, 1.0, 40.0, 1000.0, 1e6]))
    noise = data.draw(st.sampled_from([0.01, 1.0, 300.0, 1e6]))
    most = data.draw(st.integers(1, 10) | st.integers(1, 10**9))
    depth = data.draw(st.sampled_from([None, None, 0, 1]))
    under = declared(psi, data.draw(st.sampled_from(["gaussian", "laplace"])), data.draw(st.integers(2, 3)))
    zeros = finest(network, bits)
    try:
        clip = choose(under, TAG, network, bits, noise, most, None, depth)
    except OutOfField:
        norm = Norm.L1 if under.mechanisms["gradient"].kind == "laplace" else Norm.L2
        deepest = len(network.layers) - 1 if depth is None else depth
        assert not fits(under, network, zeros, Clip(psi, norm, 1, deepest), noise, most)
        return
    assert depth in (None, clip.depth)
    weights = data.draw(sent_by(network, bits))
    try:
        assert fits(under, network, weights, clip, noise, most)
    except TooWide:  # Of sums before the field: no clip changes that.
        assume(False)
    if clip.fraction < FRACTION and psi * 2 ** (clip.fraction + 1) < 2**31:
        assert not fits(under, network, zeros, replace(clip, fraction=clip.fraction + 1), noise, most)


def length(numbers: np.ndarray, norm: Norm) -> float:
    return float(np.abs(numbers).sum() if norm is Norm.L1 else np.sqrt((numbers**2).sum()))


def real_row(net: Any, clip: dict[str, Any], label: int, y: int, state: Any) -> np.ndarray:
    row = np.array(twin.flat(net, twin.row(net, clip, label, y, state)), dtype=object)
    return (row / 2.0 ** twin.exponent_of(net, clip)).astype(np.float64)


@pytest.mark.parametrize("fraction", [3, 6, 10, 16])
@given(case=cases())
@quiet(60)
def test_no_row_of_the_twin_loses_more_than_is_said(fraction: int, case: Case) -> None:
    """Against the twin with 20 bits, which itself may lose what it says."""
    psi = min(case.clip.psi, 1.0)  # So that no error reaches the engine's 2^31 units.
    coarse = replace(case.clip, psi=psi, fraction=fraction)
    fine = replace(coarse, fraction=20)
    try:
        steps = [step_layout(case.network, case.weights, each) for each in (coarse, fine)]
    except TooWide:
        assume(False)
    net, own = twin_network(case.network, case.weights), case.helpers[0]
    lost = np.sum([truncation(step, own.features, own.seed) for step in steps], axis=0) * psi
    clips = [{**case.twin_clip, "psi": psi, "fraction": each.fraction} for each in (coarse, fine)]
    for place, record in enumerate(twin_records(own)):
        state = twin.forward(net, record["features"], own.seed.seed if own.seed else None, record["id"])
        shown = [column[place] for column in own.candidates]
        for number in range(min(map(len, shown))):
            labels = enumerate(int(each[number]) for each in shown)
            rows = [[real_row(net, clip, label, y, state) for clip in clips] for label, y in labels]
            off = np.sum([coarser - finer for coarser, finer in rows], axis=0)
            assert length(off, case.clip.norm) <= lost[place] * (1 + 1e-9) + 1e-12 * psi
