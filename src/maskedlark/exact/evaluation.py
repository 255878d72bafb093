"""Evaluation rows: a one-hot of (score bucket, candidate label) per record, for the masked histogram.

Run by helpers. The ad server adds up the shares and gets the number of records per bucket of predicted
score and label, from which calibration, accuracy, AUC and log-loss follow.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from maskedlark.core import field
from maskedlark.core.field import FieldArray
from maskedlark.core.labels import LabelSpace
from maskedlark.exact import device as devices
from maskedlark.exact.errors import RecordsDoNotFit, TooWide
from maskedlark.exact.forward import Forward
from maskedlark.exact.gradient import BLOCK, Records, check_features
from maskedlark.exact.layout import EXACT_BITS, ForwardLayout, forward_layout
from maskedlark.exact.losses import BinaryCrossEntropy, SoftmaxCrossEntropy, scores
from maskedlark.exact.network import Network
from maskedlark.exact.quantise import Quantised
from maskedlark.exact.tables import PROBABILITY_BITS


@dataclass(frozen=True)
class Scale:
    """How one label's scores are divided into buckets of equal width from low to high.

    Scores are sigmoid(z) for binary cross-entropy (0 to 1) and z for squared error; scores outside count in
    the first or last bucket. For softmax there is one bucket per class: the likeliest, the first if tied.
    """

    buckets: int
    low: int = 0
    high: int = 1

    def __post_init__(self) -> None:
        if not (1 <= self.buckets <= 1 << 12 and self.low < self.high and self.high - self.low < 1 << 32):
            raise RecordsDoNotFit("a scale has 1 to 4096 buckets between two different integers")


def buckets(
    network: Network,
    weights: Quantised,
    features: NDArray[np.uint8],
    scales: Sequence[Scale],
    *,
    device: str | torch.device = "cpu",
) -> list[NDArray[np.int64]]:
    """The score bucket of every record, one array per label. Without dropout."""
    if len(scales) != len(network.losses):
        raise RecordsDoNotFit(f"the network has {len(network.losses)} labels, not {len(scales)}")
    for loss, scale in zip(network.losses, scales, strict=True):
        if isinstance(loss, SoftmaxCrossEntropy) and scale.buckets != loss.classes:
            raise RecordsDoNotFit(f"{loss} has one bucket per class: {loss.classes}, not {scale.buckets}")
    check_features(network, features)
    place = devices.ready(device)
    step = forward_layout(network, weights)
    forward, blocks = Forward(step, place), []
    with devices.exact(place):
        for start in range(0, max(1, len(features)), BLOCK):
            sums = forward(devices.tensor(features[start : start + BLOCK], place), None).sums
            blocks.append([_bucket(step, sums, label, scale) for label, scale in enumerate(scales)])
    return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]


def _bucket(step: ForwardLayout, sums: torch.Tensor, label: int, scale: Scale) -> NDArray[np.int64]:
    loss, exponent = step.network.losses[label], step.layers[-1].sum_exponent
    own = sums[:, step.network.columns[label]]
    if isinstance(loss, SoftmaxCrossEntropy):
        best = own.amax(dim=1, keepdim=True)
        # argmax may return any of several equal maxima; the first is the same everywhere.
        places = torch.arange(loss.classes, device=own.device).expand_as(own)
        return torch.where(own == best, places, loss.classes).amin(dim=1).cpu().numpy()
    if isinstance(loss, BinaryCrossEntropy):
        own, exponent = scores(own, exponent), PROBABILITY_BITS
    if scale.buckets * (scale.high - scale.low) << exponent > 1 << EXACT_BITS:
        raise TooWide("so many buckets over so wide a scale leave float64; use fewer, or larger units")
    above = own[:, 0] - float(scale.low) * 2.0**exponent
    width = torch.full_like(above, float(scale.high - scale.low) * 2.0**exponent)
    # Clamped first, so that the product stays below 2^53 and the floor of the quotient is exact.
    inside = torch.minimum(above.clamp_(min=0.0), width)
    place = torch.div(inside * scale.buckets, width).floor_().clamp_(max=scale.buckets - 1)
    return place.long().cpu().numpy()


def histogram(
    buckets_of: NDArray[np.int64], records: Records, label: int, scale: Scale, space: LabelSpace
) -> FieldArray:
    """One helper's share of one label's histogram, flat: bucket by bucket, labels in the space's order."""
    first = sum(column.shape[1] for column in records.candidates[:label])
    candidates = records.candidates[label]
    masks = records.masks[:, first : first + candidates.shape[1]]
    group = buckets_of[:, None] * len(space) + space.index(candidates)
    return field.total_by(masks.ravel(), group.ravel(), scale.buckets * len(space))
