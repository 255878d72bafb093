"""Moments of labels, one helper's share with its clip, against a float32 product; a fit from one release.

`moments_ms` is all that a helper computes between its records and the noise, on one core: 20,000 records of
512 byte features, ten classes, all of them candidates. `peer_ms` is numpy's `Phi.T @ Y` in float32, of rows
and one-hot labels in the clear, not clipped. `binary_ratio` is the same with one binary label.
"""

from collections.abc import Callable

import numpy as np
import torch

from benches.timing import one_core, side_by_side
from maskedlark.core import field
from maskedlark.core.labels import LabelSpace
from maskedlark.core.records import TrainingRecords
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy
from maskedlark.exact.moments import Representation
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.quantise import Quantised
from maskedlark.functions.moments import MomentsQuery

RECORDS, FEATURES, CLASSES = 20_000, 512, 10
BOUND = 13.0
"""About half of the rows are longer."""
ROUNDS = 31


def measure(progress: Callable[[str], None]) -> dict[str, object]:
    """Milliseconds, and ratios to the float product."""
    one_core()
    torch.set_num_threads(1)
    progress("moments of ten classes")
    ours_s, peer_s, ratio = _moments(SoftmaxCrossEntropy(CLASSES), LabelSpace.categorical(CLASSES))
    progress("moments of a binary label")
    binary_s, binary_peer_s, binary_ratio = _moments(BinaryCrossEntropy(), LabelSpace.binary())
    return {
        "moments_ratio": round(ratio, 2),
        "moments_ms": round(1000 * ours_s, 2),
        "peer_ms": round(1000 * peer_s, 2),
        "binary_ratio": round(binary_ratio, 2),
        "binary_ms": round(1000 * binary_s, 2),
        "binary_peer_ms": round(1000 * binary_peer_s, 2),
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
