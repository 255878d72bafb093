"""What an ad server would learn if helpers drew different batches: which slots that requests name prevent."""

import numpy as np

from maskedlark.audit.answers import is_large
from maskedlark.audit.canaries import Flags, Floats
from maskedlark.core import field
from maskedlark.core.field import FieldArray


def split_scores(sums: FieldArray, tail: int) -> Floats:
    """Scores of labels, from sums (steps, n) over batches that differ between two helpers, at equal weights.

    Where a canary is in only one helper's batch, the sum is near that helper's share. The two shares of a
    canary add up to its gradient, which shows the label under the noise of those sums.
    """
    large = is_large(sums, 2 * tail)
    one, near, share = _cluster(sums, large, tail)
    other, _, rest = _cluster(sums, large & ~near, tail)
    total = field.to_signed(field.add(one, other)) + share + rest
    return np.where(np.abs(total) <= 4 * tail, -total, 0.0)  # Label 1 moves a gradient down.


def _cluster(sums: FieldArray, among: Flags, tail: int) -> tuple[FieldArray, Flags, Floats]:
    """Per canary: the first of these sums, which of them are near it, and how far off their mean is."""
    reference = np.take_along_axis(sums, among.argmax(axis=0)[None], axis=0)[0]
    apart = field.to_signed(field.subtract(sums, reference))
    near: Flags = among & (np.abs(apart) <= 4 * tail)
    mean: Floats = np.where(near, apart, 0).sum(axis=0) / np.maximum(near.sum(axis=0), 1)
    return reference, near, mean
