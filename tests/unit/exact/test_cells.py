"""Cells: what the outputs say, ties and edges, and shares of counts that add up to them."""

import hashlib
import math
from typing import Any

import numpy as np
import pytest
import torch

from maskedlark.core import field, sharing
from maskedlark.core.declared import Bytes, Model
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.exact import cells as module
from maskedlark.exact import layout
from maskedlark.exact.cells import Buckets, Hashed, Largest, Partition, cells, counts, outputs
from maskedlark.exact.errors import RecordsDoNotFit, TooWide
from maskedlark.exact.forward import Forward
from maskedlark.exact.losses import BinaryCrossEntropy, SoftmaxCrossEntropy, SquaredError
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.quantise import Quantised, quantise
from maskedlark.randomness import FixedRandomness
from tests.unit.exact.models import dense, random_parameters

network = dense((5, 6, 5), BinaryCrossEntropy(), SoftmaxCrossEntropy(3), SquaredError())
weights = quantise(network, random_parameters(network, 5), (7,))
features = np.random.default_rng(5).integers(0, 256, (60, 5)).astype(np.uint8)


def linear(*rows: list[int], exponent: int = 0) -> tuple[Network, Quantised]:
    """One layer without bias: z · 256 · 2^exponent = these weights times bytes."""
    made = Network((Layer(Linear("w", None, len(rows[0]), len(rows))),), ())
    return made, Quantised(np.array(rows, np.int16).ravel(), (exponent,), ())


def test_the_nearest_centroid_is_one_linear_layer() -> None:
    """c·x − ‖c‖²/2 is largest where ‖x − c‖ is smallest."""
    rng = np.random.default_rng(1)
    centroids, rows = rng.integers(0, 90, (7, 4)), rng.integers(0, 256, (200, 4)).astype(np.uint8)
    made = Network((Layer(Linear("w", "b", 4, 7)),), ())
    # Twice a centroid, and a bias in the unit of the products: nothing is rounded.
    bias = -(centroids**2).sum(axis=1)
    sent = Quantised(np.concatenate([(2 * centroids).ravel(), bias]).astype(np.int16), (8, 16), (), 16)
    apart = ((rows[:, None, :].astype(int) - centroids[None]) ** 2).sum(axis=2)
    assert cells(made, sent, rows, [Largest(0, 7)])[0].tolist() == apart.argmin(axis=1).tolist()


def test_the_first_of_equal_outputs_wins() -> None:
    zero = quantise(network, {e.name: np.zeros(e.shape) for e in network.parameters}, (7,))
    assert cells(network, zero, features, [Largest(1, 3), Largest(0, 5)])[1].tolist() == [0] * 60
    made, sent = linear([1, 0], [0, 1], [1, 0], [0, 1])
    rows = np.array([[9, 9], [8, 9], [9, 8]], np.uint8)
    assert cells(made, sent, rows, [Largest(0, 4), Largest(1, 3), Largest(2, 1)])[0].tolist() == [0, 1, 0]
    assert cells(made, sent, rows, [Largest(1, 3)])[0].tolist() == [0, 0, 1]


def test_an_edge_that_is_hit_is_reached() -> None:
    made, sent = linear([1], exponent=1)  # a byte x gives x / 512
    rows = np.arange(5, dtype=np.uint8)[:, None]
    edges = (1 / 512, math.nextafter(2 / 512, math.inf), 3 / 512, math.nextafter(4 / 512, 0))
    assert cells(made, sent, rows, [Buckets(0, edges)])[0].tolist() == [0, 1, 1, 3, 4]
    assert cells(made, sent, rows, [Buckets(0, ())])[0].tolist() == [0] * 5


def test_outputs_are_what_edges_are_compared_with() -> None:
    """Whoever cuts outputs at the same edges finds the helpers' cells, ties too."""
    found = outputs(network, weights, features)
    assert found.shape == (60, 5)
    for place in range(5):
        edges = tuple(sorted({*found[::7, place].tolist(), 0.0}))
        own = np.searchsorted(edges, found[:, place], side="right")
        assert cells(network, weights, features, [Buckets(place, edges)])[0].tolist() == own.tolist()
    assert cells(network, weights, features, [Largest(0, 5)])[0].tolist() == found.argmax(axis=1).tolist()
    assert outputs(network, weights, features[:0]).shape == (0, 5)


def test_a_hash_is_of_the_named_bytes_alone() -> None:
    found = cells(None, None, features, [Hashed((1, 4), 1000), Hashed((0,), 1)])
    of_first = hashlib.sha256(b"maskedlark v2 cell" + features[0, [1, 4]].tobytes()).digest()
    assert found[0][0] == int.from_bytes(of_first[:8], "big") % 1000
    assert found[1].tolist() == [0] * 60
    other = features.copy()
    other[:, [0, 2, 3]] ^= 255
    assert cells(None, None, other, [Hashed((1, 4), 1000)])[0].tolist() == found[0].tolist()
    # Everybody's hash is spread: no cell of 10 has more than twice its share of 60,000 different rows.
    rows = np.stack([np.arange(60_000) & 255, np.arange(60_000) >> 8], axis=1).astype(np.uint8)
    assert np.bincount(cells(None, None, rows, [Hashed((0, 1), 10)])[0]).max() < 6_500


def test_nothing_is_in_no_cell() -> None:
    found = cells(network, weights, features[:0], [Largest(0, 5), Buckets(0, (0.0,)), Hashed((0,), 3)])
    assert [each.tolist() for each in found] == [[], [], []]


def test_losses_do_not_matter() -> None:
    bare = Network(network.layers, ())
    wanted: list[Partition] = [Largest(1, 3), Buckets(4, (-0.5, 0.5))]
    for one, other in zip(
        cells(bare, weights, features, wanted), cells(network, weights, features, wanted), strict=True
    ):
        assert one.tolist() == other.tolist()
    assert bare.columns == ()


def test_shares_add_up_to_the_counts() -> None:
    spaces = (LabelSpace.binary(), LabelSpace.categorical(3), LabelSpace.integers(-1, 1))
    partitions: list[Partition] = [Buckets(0, (-0.1, 0.0, 0.2)), Largest(1, 3), Hashed((0, 3), 4)]
    model, rng = Model("tag", (Bytes(5),), spaces), np.random.default_rng(6)
    labels = [rng.choice(np.array(space.values), 60) for space in spaces]
    real, secret = rng.random(60) < 0.9, FixedRandomness(b"cells")
    shown, masks = model.mask(labels, real, secret)
    ids = sharing.random_rows(60, 16, secret)
    shares = sharing.split(masks, ids, Purpose.TRAIN, 2, secret)
    both = [shares.explicit, sharing.expand(shares.seeds[0], ids, Purpose.TRAIN, 1, model.secrets())]
    found, at = cells(network, weights, features, partitions), 0
    for label, (space, partition) in enumerate(zip(spaces, partitions, strict=True)):
        columns, shape = space.index(shown[label]), (partition.count, len(space))
        own = slice(at, at + len(space))
        parts = [counts(found[label], each[:, own], columns, shape) for each in both]
        table = field.to_signed(sharing.combine(parts))
        wanted = np.zeros_like(table)
        np.add.at(wanted, (found[label][real], np.searchsorted(space.values, labels[label])[real]), 1)
        assert table.tolist() == wanted.tolist()
        at += len(space)


@pytest.mark.parametrize("edges", [(0.0, 0.0), (1.0, 0.0), (math.nan,), (0.0, math.inf), (-math.inf,)])
def test_edges_are_different_finite_numbers_ascending(edges: tuple[float, ...]) -> None:
    with pytest.raises(RecordsDoNotFit, match="edges"):
        Buckets(0, edges)


@pytest.mark.parametrize("places", [(), (1, 0), (2, 2), (-1, 0)])
def test_features_of_a_hash_are_different_places(places: tuple[int, ...]) -> None:
    with pytest.raises(RecordsDoNotFit, match="places"):
        Hashed(places, 3)


@pytest.mark.parametrize("bad", [features[:, :4], features.astype(np.int64), features[0]])
def test_features_of_another_form_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(RecordsDoNotFit, match="features"):
        cells(network, weights, bad, [Largest(0, 5)])


def test_a_network_too_wide_to_train_may_still_have_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise TooWide("errors")

    monkeypatch.setattr(layout, "_errors", refuse)
    assert len(cells(network, weights, features, [Largest(0, 5)])) == 1


@pytest.mark.parametrize("policy", ["all", "each its own"])
def test_wide_records_come_in_blocks_that_fit_in_memory(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """Once they are charged, a helper must not run out of it."""
    rng, wide = np.random.default_rng(3), np.repeat(features, 4, axis=1)
    seen: list[int] = []
    made, sent = linear(*rng.integers(-9, 10, (3, 20)).tolist())
    masks = rng.integers(0, field.P, (60, 2))
    shown = np.array([[0, 1]]) if policy == "all" else rng.permuted(np.tile([0, 1], (60, 1)), axis=1)

    def found() -> list[object]:
        (own,) = cells(made, sent, wide, [Largest(0, 3)])
        return [own.tolist(), counts(own, masks, shown, (3, 2)).tolist()]

    whole = found()
    sums, total_by = Forward.sums, field.total_by

    def watched_sums(own: Forward, rows: torch.Tensor) -> torch.Tensor:
        seen.append(rows.numel())
        return sums(own, rows)

    def watched_total(a: field.FieldArray, *rest: Any) -> field.FieldArray:
        seen.append(len(a))
        return total_by(a, *rest)

    monkeypatch.setattr(module, "_AT_ONCE", 100)
    monkeypatch.setattr(Forward, "sums", watched_sums)
    monkeypatch.setattr(field, "total_by", watched_total)
    assert found() == whole
    assert max(seen) <= 100
    assert len(seen) == 60 * 20 / 100 + 2


@pytest.mark.parametrize("outputs", [3, 700])
def test_many_wide_records_in_several_blocks_are_those_of_numpy(outputs: int) -> None:
    """Also where bytes are multiplied."""
    rng = np.random.default_rng(2)
    rows, centroids = (
        rng.integers(0, 256, (5000, 300)).astype(np.uint8),
        rng.integers(-127, 128, (outputs, 300)),
    )
    made, sent = linear(*centroids.tolist())
    wanted = (rows.astype(np.float64) @ centroids.T).argmax(axis=1)
    assert cells(made, sent, rows, [Largest(0, outputs)])[0].tolist() == wanted.tolist()


@pytest.mark.parametrize("bits", [8, 16])
def test_a_gpu_gives_the_same_cells(bits: int) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    made = dense((40, 30, 50), SoftmaxCrossEntropy(50))
    sent = quantise(made, random_parameters(made, 7), (6,), bits)
    rows = np.random.default_rng(7).integers(0, 256, (20_000, 40)).astype(np.uint8)
    asked: list[Partition] = [Largest(0, 50), Largest(3, 7), Buckets(1, (-0.5, 0.0, 0.25))]
    wanted = cells(made, sent, rows, asked)
    for own, other in zip(wanted, cells(made, sent, rows, asked, device="cuda"), strict=True):
        assert (own == other).all()
    assert (outputs(made, sent, rows) == outputs(made, sent, rows, device="cuda")).all()
