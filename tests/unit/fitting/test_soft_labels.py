import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from maskedlark.fitting import soft_labels
from maskedlark.fitting.clusters import Clusters, Space
from maskedlark.fitting.soft_labels import Counts, Graph, project
from maskedlark.training.public_rows import real_error

numbers = hnp.arrays(
    np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=7), elements=st.floats(-1e3, 1e3)
)


def bisected(row, total):
    """The projection by its condition: max(row - shift, 0) adds up to the total."""
    low, high = row.min() - total, row.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(row - middle, 0).sum() > total else (low, middle)
    return np.maximum(row - low, 0)


@given(numbers, st.floats(0.5, 100))
def test_the_projection_is_the_nearest_point_of_the_simplex(rows, total):
    found = project(rows, np.full(len(rows), total))
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), total, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found, [bisected(row, total) for row in rows], atol=1e-8)
    np.testing.assert_allclose(project(found, total), found, atol=1e-9, err_msg="idempotent")


@given(numbers, st.integers(0, 2**32 - 1))
def test_no_other_point_is_nearer_and_distances_do_not_grow(rows, seed):
    rng = np.random.default_rng(seed)
    found, other = project(rows), rng.dirichlet(np.ones(rows.shape[1]), len(rows))
    assert (np.linalg.norm(rows - found, axis=1) <= np.linalg.norm(rows - other, axis=1) + 1e-9).all()
    moved = rows + rng.normal(size=rows.shape)
    apart = np.linalg.norm(project(moved) - found, axis=1)
    assert (apart <= np.linalg.norm(moved - rows, axis=1) + 1e-9).all()


def made(count=1500, classes=3, cells=24, seed=0):
    """Rows of two numbers, their classes by angle, clusters and graph."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 256, (count, 2)).astype(np.uint8)
    angle = np.arctan2(rows[:, 1] - 127.5, rows[:, 0] - 127.5)
    truth = np.floor((angle + np.pi) / (2 * np.pi) * classes * 0.999).astype(int)
    space = Space.of(None, rows)
    points = space.points(rows)
    return truth, Clusters.find(space, rows, points, cells, 1, 0), Graph.of(points, 10, 0)


def released(truth, clusters, classes, rng, deviation, ones=False, lacks=0, fakes=0.0):
    """As if all records were the rows, where helpers lack so many of them, and have fakes at such a rate."""
    exact, held = np.zeros((clusters.count, classes)), rng.permutation(len(truth))[lacks:]
    scale = len(truth) * (1 + fakes) / (len(held) + rng.binomial(len(held), fakes))
    np.add.at(exact, (clusters.cells[held], truth[held]), scale)
    deviation *= scale
    if ones:
        exact[:, 0] = clusters.sizes - exact[:, 1]
    known = np.ones(clusters.count, bool)
    empty = Counts(exact, known, deviation, "laplace", 2, ones)
    return Counts(exact + empty.noise(int(rng.integers(2**32))), known, deviation, "laplace", 2, ones)


@pytest.mark.parametrize(
    ("classes", "lacks", "fakes"),
    [
        (2, 0, 0),
        (3, 0, 0),
        (2, 700, 0),
        pytest.param(3, 700, 0, marks=pytest.mark.long),
        (2, 0, 0.5),
        (3, 0, 0.5),
    ],
)
def test_the_error_covers_the_truth(classes, lacks, fakes):
    """40 releases. A bound of 97.5 % fails twice of 80 on average: over 8 has a chance of 2e-4. A share's
    interval of 95 % is missed 6 times of 120, or 2 of 40: twice that and 8 more, a chance below 1e-4; with
    fakes, which move all shares alike, at most 4e-3."""
    truth, clusters, graph = made(classes=classes)
    rng, outside, missed, widths = np.random.default_rng(5), 0, 0, []
    for seed in range(40):
        # Beside fakes little noise: it would hide that nobody knows their number.
        counts = released(truth, clusters, classes, rng, 0.5 if fakes else 6.0, classes == 2, lacks, fakes)
        missing = abs(1 / (len(truth) - lacks) - 1 / len(truth)) / 4
        error = soft_labels.error(counts, clusters, graph, missing, real_error(fakes, len(truth)), seed)
        soft = soft_labels.smooth(counts, clusters, graph)
        right, (low, high) = (soft.argmax(axis=1) == truth).mean(), error.right
        outside += not low <= right <= high
        widths.append(high - low)
        shares = counts.numbers.sum(axis=0) / len(truth)
        off = np.abs(shares - np.bincount(truth, minlength=classes) / len(truth)) > 1.96 * error.shares
        missed += off[1:].sum() if classes == 2 else off.sum()
    assert outside <= 8
    assert missed <= (12 if classes == 2 else 20)
    assert np.mean(widths) < 0.5, "and says something"


def test_without_noise_cells_are_kept_and_neighbours_divide_them():
    truth, clusters, graph = made()
    counts = released(truth, clusters, 3, np.random.default_rng(0), 1e-9)
    soft = soft_labels.smooth(counts, clusters, graph)
    by_cell = np.argmax(counts.numbers, axis=1)[clusters.cells]
    assert (soft.argmax(axis=1) == truth).mean() > (by_cell == truth).mean()
    np.testing.assert_allclose(soft.sum(axis=1), 1, atol=1e-5)


def test_unknown_cells_are_filled_by_their_neighbours():
    truth, clusters, graph = made(cells=60)
    counts = released(truth, clusters, 3, np.random.default_rng(0), 1e-9)
    counts.known[::6] = False
    counts.numbers[::6] = 0
    soft, lost = soft_labels.smooth(counts, clusters, graph), clusters.cells % 6 == 0
    assert (soft.argmax(axis=1) == truth)[lost].mean() > 0.6, "by chance a third"
    counts.known[:] = False
    np.testing.assert_allclose(soft_labels.smooth(counts, clusters, graph), 1 / 3, atol=1e-5)


def test_neighbours_of_many_rows_are_sought_in_blocks(monkeypatch):
    points = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    monkeypatch.setattr(soft_labels, "BLOCK", 300)
    graph = Graph.of(points, 5, 0)
    assert len(graph.reference) == 250
    np.testing.assert_allclose(graph.mean.sum(axis=1), 1, rtol=1e-6)
    first = graph.mean[[graph.reference[0]]].indices
    distances = np.linalg.norm(points[graph.reference] - points[graph.reference[0]], axis=1)
    assert set(first) == set(graph.reference[np.argsort(distances)[1:6]])


@pytest.mark.parametrize("rows", [1, 2])
def test_a_row_without_neighbours_keeps_its_label(rows):
    graph = Graph.of(np.zeros((rows, 2), np.float32), 10, 0)
    np.testing.assert_allclose(graph.mean.toarray(), np.eye(rows)[::-1])
    none = Graph.of(np.zeros((rows, 2), np.float32), 0, 0)
    np.testing.assert_allclose(none.mean.toarray(), np.eye(rows))
