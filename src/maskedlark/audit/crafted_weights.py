"""Weights that fire on one record alone, so that a sum of gradients is that record's own (section 4.2.3).

Run by a dishonest ad server, which knows its records' features but not their labels. For each target it
sends one hidden ReLU whose weights point from the mean of all records to the target, and whose bias stops all
other records. Output weights are 0. So the gradient of that ReLU's output weight is the target's
(1/2 - label) times something positive, clipped: its sign reveals the label. With noise, it is the worst case
for any record: its row moves by the full sensitivity.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskedlark.exact.losses import BinaryCrossEntropy, Loss
from maskedlark.exact.network import FEATURE_EXPONENT, Layer, Linear, Network
from maskedlark.exact.operations import TOP, Relu
from maskedlark.exact.quantise import MAX_EXPONENT, Quantised

Bytes = NDArray[np.uint8]
_OUTPUT = "w1"


@dataclass(frozen=True, eq=False)
class Crafted:
    """One step of the attack: a network, its weights, and the targets that they fire on."""

    network: Network
    weights: Quantised
    alone: NDArray[np.bool_]
    """Targets whose ReLU no other known record fires. Labels of identical records cannot be told apart."""

    def scores(self, gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        """One number per target, from a summed gradient: positive indicates label 1."""
        own = next(entry.place for entry in self.network.parameters if entry.name == _OUTPUT)
        return -gradient[own]


def network(features: int, targets: int, losses: tuple[Loss, ...] = (BinaryCrossEntropy(),)) -> Network:
    """One ReLU per target. No output bias: every record would contribute to its gradient."""
    hidden, outputs = Layer(Linear("w0", "b0", features, targets)), sum(loss.outputs for loss in losses)
    return Network((hidden, Layer(Linear(_OUTPUT, None, targets, outputs), Relu())), losses)


def craft(
    records: Bytes,
    targets: NDArray[np.intp],
    bits: int = 8,
    losses: tuple[Loss, ...] = (BinaryCrossEntropy(),),
) -> Crafted:
    """Weights that read the labels of these targets among all known records."""
    made, top = network(records.shape[1], len(targets), losses), (1 << (bits - 1)) - 1
    rows = _rows(records, targets, top)
    own, others = _reaches(records, targets, rows)
    biases = -((own + others) // 2)
    # A bias has as few bits as a weight but a larger range, so it is coarser than the sums.
    coarse = max(0, math.ceil(math.log2(max(1, int(np.abs(biases).max())) / top)))
    biases >>= coarse
    fired = own + (biases << coarse)
    exponents, activation = _exponents(int(fired.max()), coarse)
    last = np.zeros(made.size - rows.size - len(biases), np.int64)
    values = np.concatenate([rows.ravel(), biases, last])
    # What rounds to 0 does not fire.
    heard = fired * 2.0 ** (activation - exponents[0] - FEATURE_EXPONENT) >= 1
    alone = heard & (others + (biases << coarse) <= 0)
    return Crafted(made, Quantised(values.astype(np.int16), exponents, (activation,), bits), alone)


def _rows(records: Bytes, targets: NDArray[np.intp], top: int) -> NDArray[np.int64]:
    """From the mean of all records to each target, as long as weights allow."""
    apart = records[targets] - records.mean(axis=0)
    longest = np.maximum(np.abs(apart).max(axis=1, keepdims=True), 1.0)
    rows: NDArray[np.int64] = np.rint(apart * (top / longest)).astype(np.int64)
    return rows


def _reaches(
    records: Bytes, targets: NDArray[np.intp], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The sum of each target, and the largest sum of all other records."""
    sums = np.rint(rows.astype(np.float64) @ records.T.astype(np.float64)).astype(np.int64)
    each = np.arange(len(targets))
    own = sums[each, targets]
    sums[each, targets] = np.iinfo(np.int64).min
    return own, sums.max(axis=1)


def _exponents(fired: int, coarse: int) -> tuple[tuple[int, ...], int]:
    """The exponents of weights, biases and output, and the largest of the activations that fits in 8 bits."""
    # The bias's exponent, that of the sums minus `coarse`, must not be negative.
    of_sums = max(coarse, FEATURE_EXPONENT, math.ceil(math.log2(max(2, fired))) - 7)
    activation = min(MAX_EXPONENT, math.floor(of_sums + math.log2((TOP - 1) / max(1, fired))))
    return (of_sums - FEATURE_EXPONENT, of_sums - coarse, 0), activation
