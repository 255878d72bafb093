"""Labels randomised in the browser: sums without noise, unbiased estimates of the truth.

Randomised response turns a one-hot label into a · one-hot + b on average (`core.local_dp`). Helpers undo that
in the masks, before a function sees them. This is linear, so each does it with its own shares, and the sum
comes out right for every function and number of labels. Coefficients are integers in `UNIT`s.
"""

import math

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import field
from maskedlark.core.records import TrainingRecords
from maskedlark.errors import NoiseTooSmall
from maskedlark.parameters.document import Document
from maskedlark.parameters.settings import TrainedModel

UNIT = 1 << 16
"""The ad server divides a sum by this: coefficients are multiples of its inverse."""


def missing(document: Document, tag: str) -> str | None:
    """What keeps a model's records from being private by themselves; None if nothing does. Anyone."""
    declared = document.trained(tag)
    if declared.randomised_response is None:
        return f"labels of {tag} are not randomised"
    if declared.feature_noise is None:
        return f"features of {tag} have no noise of their own"
    if not declared.only_bytes:
        return f"categories of {tag} have no noise of their own"
    if document.fake_rate > 0:
        # A fake's masks are all 0: randomised response hides a label, not which records are fakes.
        return "there are fakes, which only noise hides"
    if declared.candidates != "all":
        return f"records of {tag} do not show all labels"
    return None


def epsilon(document: Document) -> float:
    """What sums without noise reveal of a source's labels, over all models that allow them. Anyone.

    No budget limits it: such sums can be asked any number of times, and are charged nothing.
    """
    alone = [model for model in document.models if missing(document, model.tag) is None]
    return math.fsum(model.promised().labels for model in alone)


def check(document: Document, tag: str) -> None:
    """Refuse sums without noise, unless all that left a browser was randomised there. Run by helpers."""
    if (lacking := missing(document, tag)) is not None:
        raise NoiseTooSmall(f"{lacking}: ask with noise")


def unbiased(records: TrainingRecords, declared: TrainedModel, helpers: int) -> TrainingRecords:
    """One helper's shares of the masks (one-hot - b) / a, in units: all helpers' shares add up to them."""
    kept, off = _coefficients(declared)
    # Every helper subtracts the same part: the field can divide by any number of helpers.
    part = np.array([int(each) * pow(helpers, -1, field.P) % field.P for each in off], np.int64)
    scaled = field.multiply(records.shares, np.broadcast_to(kept, records.shares.shape))
    shares = field.subtract(scaled, np.broadcast_to(part, scaled.shape))
    return TrainingRecords(records.ids, records.features, records.candidates, shares)


def growth(declared: TrainedModel) -> int:
    """By what factor a record's part of a sum can grow."""
    kept, off = _coefficients(declared)
    sizes = [len(label.space()) for label in declared.labels]
    ends = np.cumsum([0, *sizes])
    return max(int(kept[first]) + size * int(off[first]) for first, size in zip(ends, sizes, strict=False))


def _coefficients(declared: TrainedModel) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For every mask: its factor, and what is subtracted."""
    response = declared.randomised_response
    assert response is not None, "who is unbiased was randomised"
    kept, off = [], []
    for label in declared.labels:
        a, b = response.unbiasing(label.space())
        size, taken = len(label.space()), round(UNIT * b / a)
        # 1 / a = 1 + size · b / a: from the same rounded number, so what all candidates share stays exact.
        kept += [UNIT + size * taken] * size
        off += [taken] * size
    return np.array(kept, np.int64), np.array(off, np.int64)
