import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from maskedlark.exact.clip import Norm
from maskedlark.exact.losses import BinaryCrossEntropy, SoftmaxCrossEntropy
from maskedlark.fitting import maps
from maskedlark.functions import weights
from tests.unit.fitting import cases

NAMES = tuple(f"column {i}" for i in range(cases.FEATURES))


def made(kind, features=None, seed=0):
    return maps.fit(cases.rows(800) if features is None else features, NAMES, kind, seed)


@pytest.mark.parametrize("kind", maps.KINDS)
def test_the_engine_computes_what_the_map_says(kind):
    rows, found = cases.rows(800), made(kind)
    phi = found.representation((BinaryCrossEntropy(),), 100.0)
    numbers = phi.rows(rows).numbers * 2.0**-phi.exponent
    floats = found.units(rows) @ found.weight.T + found.bias
    inside = np.abs(floats) < 255 * 2.0**-phi.exponent
    assert inside.mean() > 0.99
    # Weights of 16 bits and a rounding to 8; a hidden unit may be rounded too, but not a step or a leaf.
    assert np.abs(numbers[:, :-1] - floats)[inside].max() < 2.0**-phi.exponent * (
        8 if kind == "random" else 2
    )
    assert (numbers[:, -1] == 1).all()
    assert found.features == cases.FEATURES


@pytest.mark.parametrize("kind", maps.KINDS)
def test_the_same_rows_and_seed_make_the_same_bytes_whatever_their_order(kind):
    rows = cases.rows(800)
    sent = []
    for some in (rows, rows[::-1]):
        phi = made(kind, some).representation((SoftmaxCrossEntropy(3),), 1.0)
        sent.append(weights.encode(phi.weights))
    assert sent[0] == sent[1]
    other = weights.encode(made(kind, rows, 1).representation((SoftmaxCrossEntropy(3),), 1.0).weights)
    assert (other != sent[0]) == (kind in ("trees", "random"))


@pytest.mark.parametrize("kind", maps.KINDS)
def test_threads_make_no_other_map(monkeypatch, kind):
    """Columns of which many are equal, as pixels at the rim are: components that tie are any base."""
    room = {"columns": 8_000, "trees": 90_000}.get(kind, 33_000)
    monkeypatch.setattr(maps, "MAX_WEIGHTS", room)
    rows = np.tile(np.random.default_rng(0).integers(0, 256, (2000, 25)).astype(np.uint8), 4)
    names, sent = [f"c{i}" for i in range(100)], []
    for threads in (1, 2):
        with threadpool_limits(threads):
            found = maps.fit(rows, names, kind)
            sent.append(weights.encode(found.representation((BinaryCrossEntropy(),), 1.0).weights))
    assert len(found.bias) < len(found.names), "cut to the top components"
    assert sent[0] == sent[1]


def test_steps_and_leaves_are_on_or_off():
    rows, found = cases.rows(800), made("trees")
    units = found.units(rows)[:, cases.FEATURES :]
    assert set(np.unique(units)) == {0.0, 255 / 256}
    steps = sum(" > " in name and "and" not in name for name in found.names)
    leaves = units[:, steps:].reshape(len(rows), -1, 4)
    assert (leaves.sum(axis=2) == 255 / 256).all(), "every row is in one leaf of each tree"
    assert len(found.names) == found.weight.shape[1] == len(set(found.names)) + _twice(found.names)


def _twice(names):
    return len(names) - len(set(names))


def test_a_name_says_what_its_unit_is():
    rows, found = cases.rows(800), made("buckets")
    units = dict(zip(found.names, found.units(rows).T, strict=True))
    assert (units["column 0"] == rows[:, 0] / 256).all()
    for name, unit in units.items():
        column, *threshold = name.split(" > ")
        if threshold:
            over = rows[:, NAMES.index(column)] > int(threshold[0].removesuffix("/255"))
            assert ((unit > 0) == over).all()


def test_coefficients_of_names_give_the_scores():
    rows, found = cases.rows(800), made("buckets")
    theta, intercept = np.random.default_rng(0).normal(size=(2, len(found.bias))), np.array([0.5, -1])
    coefficients, constant = found.named(theta, intercept)
    floats = found.units(rows) @ found.weight.T + found.bias
    expected = floats @ theta.T + intercept
    units = found.units(rows) * 256 / 255
    np.testing.assert_allclose(units @ coefficients.T + constant, expected, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(1, 6), st.sampled_from(maps.KINDS), st.integers(0, 1 << 30))
def test_any_rows_have_a_map_that_the_engine_takes(count, width, kind, seed):
    rng = np.random.default_rng(seed)
    rows = (rng.integers(0, 256, (count, width)) * rng.integers(0, 2, width)).astype(np.uint8)
    found = maps.fit(rows, [f"c{i}" for i in range(width)], kind, seed)
    phi = found.representation((BinaryCrossEntropy(),), 1.0, Norm.L1)
    numbers, factors = phi.rows(rows)
    assert numbers.shape == (count, len(found.bias) + 1)
    assert ((factors > 0) & (factors <= 1 << 16)).all()


def test_what_would_be_too_large_to_send_is_cut_to_the_top_components(monkeypatch):
    monkeypatch.setattr(maps, "MAX_WEIGHTS", 200)
    found = made("buckets")
    sent = sum(weight.size for weight, _ in found.units.layers) + found.weight.size
    assert len(found.bias) < len(found.names)
    assert sent <= 200
    phi = found.representation((BinaryCrossEntropy(),), 1.0)
    assert phi.rows(cases.rows(50)).numbers.shape == (50, len(found.bias) + 1)
