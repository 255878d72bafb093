"""Moments of labels, one helper's share with its clip, against a float32 product; a fit from one release.

`moments_ms` is all that a helper computes between its records and the noise, on one core: 20,000 records of
512 byte features, ten classes, all of them candidates. `peer_ms` is numpy's `Phi.T @ Y` in float32, of rows
and one-hot labels in the clear, not clipped. `binary_ratio` is the same with one binary label.
`cells_ms` is a helper's share of labels by cell: 1,000 centroids, 50,000 records of 784 bytes, ten classes;
its peer is numpy's `(X @ C.T).argmax(1)` in float32, which counts no label.

`glm_s` is `LogisticRegression.fit` of 100,000 rows of 100 byte features, from rows to coefficients with
intervals: choosing the map, the release of two helpers in memory, the solution. `solve_s` is the same
again, when the release is there already.

`mnist_s` is the whole pipeline of labels of cells at ε = 0.25: reports of 50,000 images masked, clusters, one
release of two helpers in memory, soft labels, a student, its `mnist_accuracy` (%) on test rows. None where
MNIST is not here.
"""

from collections.abc import Callable

import numpy as np
import torch

from benches.timing import one_core, seconds, side_by_side
from experiments.data import mnist
from experiments.data.places import NotHere
from experiments.figures import one_release_run
from experiments.figures.one_release_told import CELLS as LABELS_OF_CELLS
from experiments.jobs import Job
from maskedlark.clock import SystemClock
from maskedlark.core import field
from maskedlark.core.labels import LabelSpace
from maskedlark.core.records import TrainingRecords
from maskedlark.exact.cells import Largest
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy
from maskedlark.exact.moments import Representation
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.quantise import Quantised
from maskedlark.fitting import LogisticRegression
from maskedlark.functions.cells import CellsQuery, CellTable
from maskedlark.functions.moments import MomentsQuery
from maskedlark.randomness import SystemRandomness
from maskedlark.workflow import Workflow

RECORDS, FEATURES, CLASSES = 20_000, 512, 10
BOUND = 13.0
"""About half of the rows are longer."""
ROUNDS = 31
IMAGES, PIXELS, CELLS, CELL_ROUNDS = 50_000, 784, 1_000, 5
ROWS, COLUMNS = 100_000, 100
SETTINGS = f"""
k = 20
budget = {{epsilon = 100.0, delta = 1e-4}}
training = {{adserver = {{epsilon = 90.0, delta = 1e-5}}, coalition = {{epsilon = 90.0, delta = 1e-5}}}}
mechanisms.moments = {{kind = "gaussian", noise_floor = 0.1}}
models.clicks.columns = [{{kind = "bytes", count = {COLUMNS}}}]
"""


def measure(progress: Callable[[str], None]) -> dict[str, object]:
    """Milliseconds, and ratios to the float product."""
    one_core()
    torch.set_num_threads(1)
    progress("moments of ten classes")
    ours_s, peer_s, ratio = _moments(SoftmaxCrossEntropy(CLASSES), LabelSpace.categorical(CLASSES))
    progress("moments of a binary label")
    binary_s, binary_peer_s, binary_ratio = _moments(BinaryCrossEntropy(), LabelSpace.binary())
    progress("1,000 cells")
    cells_s, cells_peer_s, cells_ratio = _cells()
    progress("a fit")
    glm_s, solve_s = _fit()
    progress("MNIST, from images to a student")
    return {
        **_mnist(),
        "glm_s": round(glm_s, 2),
        "solve_s": round(solve_s, 2),
        "moments_ratio": round(ratio, 2),
        "moments_ms": round(1000 * ours_s, 2),
        "peer_ms": round(1000 * peer_s, 2),
        "binary_ratio": round(binary_ratio, 2),
        "binary_ms": round(1000 * binary_s, 2),
        "binary_peer_ms": round(1000 * binary_peer_s, 2),
        "cells_ratio": round(cells_ratio, 2),
        "cells_ms": round(1000 * cells_s, 2),
        "cells_peer_ms": round(1000 * cells_peer_s, 2),
    }


def _moments(loss: Loss, space: LabelSpace) -> tuple[float, float, float]:
    rng = np.random.default_rng(0)
    network = Network((Layer(Linear("w0", "b0", FEATURES, loss.outputs)),), (loss,))
    sent = Quantised(np.zeros(network.size, np.int16), (0, 0), ())
    phi = Representation(network, sent, BOUND)
    query = MomentsQuery("clicks", network, sent, phi, (space,), (0,))
    features = rng.integers(0, 256, (RECORDS, FEATURES)).astype(np.uint8)
    shares = rng.integers(0, field.P, (RECORDS, len(space)))
    ids, shown = np.zeros((RECORDS, 16), np.uint8), np.array([space.values])
    records = TrainingRecords(ids, features, (shown,), shares)
    rows, labels = features.astype(np.float32), rng.integers(0, len(space), RECORDS)
    targets = np.eye(len(space), dtype=np.float32)[labels] if loss.outputs > 1 else labels.astype(np.float32)
    return side_by_side(lambda: query.share_of(records), lambda: rows.T @ targets, ROUNDS)


def _cells() -> tuple[float, float, float]:
    rng = np.random.default_rng(0)
    network = Network((Layer(Linear("w0", "b0", PIXELS, CELLS)),), ())
    sent = Quantised(rng.integers(-127, 128, network.size).astype(np.int16), (7, 0), ())
    space = LabelSpace.categorical(CLASSES)
    query = CellsQuery("m", network, sent, (CellTable(0, space, Largest(0, CELLS), ones=False),), None)
    features = rng.integers(0, 256, (IMAGES, PIXELS)).astype(np.uint8)
    shares = rng.integers(0, field.P, (IMAGES, CLASSES))
    records = TrainingRecords(np.zeros((IMAGES, 16), np.uint8), features, (np.array([space.values]),), shares)
    rows, centroids = features.astype(np.float32), rng.standard_normal((CELLS, PIXELS), np.float32)
    return side_by_side(
        lambda: query.share([records], 20), lambda: (rows @ centroids.T).argmax(1), CELL_ROUNDS
    )


def _fit() -> tuple[float, float]:
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 256, (ROWS, COLUMNS)).astype(np.uint8)
    scores = (rows / 256 - 0.5) @ rng.normal(0, 0.5, COLUMNS)
    labels = (rng.random(ROWS) < 1 / (1 + np.exp(-scores))).astype(int)
    client = Workflow.declared(SETTINGS, 2, SystemClock(), SystemRandomness())
    client.make_training_dataset("ads", "clicks", rows, [labels], decoded=True)
    model = LogisticRegression(client, "clicks", epsilon=1.0)
    return seconds(lambda: model.fit(rows)), seconds(lambda: model.fit(rows))


def _mnist() -> dict[str, float | None]:
    job = Job(one_release_run.MNIST, LABELS_OF_CELLS, 0.25, 0, one_release_run.cells, {"epsilon": 0.25})
    try:
        mnist.check()
    except NotHere:
        return {"mnist_s": None, "mnist_accuracy": None}
    scores = dict[str, float]()
    took = seconds(lambda: scores.update(one_release_run.cells(job)))
    return {"mnist_s": round(took, 1), "mnist_accuracy": round(scores["y"], 2)}
