"""The paper's lemma (4.1): what helpers compute separately adds up to the sum over true labels.

Anyone can compute the rows of V; the secrets w are shared. A helper returns its share of V^T w.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import field, sharing
from maskedlark.core.field import FieldArray
from maskedlark.core.records import TrainingRecords
from maskedlark.errors import NotDeclared

BLOCK = 1 << 16
"""Records held in memory at a time."""

Row = Callable[[NDArray[np.uint8], NDArray[np.int64]], NDArray[np.int64]]
"""The paper's f: features (n, d) and one candidate per record (n,) to integer rows (n, outputs)."""


def masked_sum(row: Row, records: TrainingRecords, label: int = 0) -> FieldArray:
    """A helper's share of the sum of f(x, true label): every candidate counts, each times its mask.

    For a function of one's own. Those of `functions/` compute the same by faster products.
    """
    shares = []
    for start in range(0, max(1, len(records)), BLOCK):  # At least once: it gives the row's width.
        block = slice(start, start + BLOCK)
        features, masks = records.features[block], records.masks(label)[block]
        shown = np.broadcast_to(records.candidates[label], (len(records), masks.shape[1]))[block]
        # A helper does not know which candidate is true: it uses all.
        for labels, mask in zip(shown.T, masks.T, strict=True):
            rows = field.from_signed(_integer_rows(row, features, labels))
            shares.append(field.total(field.multiply(rows, np.ascontiguousarray(mask)[:, None])))
    return sharing.combine(shares)


def _integer_rows(row: Row, features: NDArray[np.uint8], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of a function, refused unless they are integers, one row per record."""
    rows = row(features, labels)
    if rows.dtype != np.int64:  # A float would lose its low bits, and masks cancel to the bit or not at all.
        raise NotDeclared(f"f returns {rows.dtype}; return int64: use astype(np.int64) before computing")
    if rows.ndim != 2 or len(rows) != len(features):
        raise NotDeclared(f"f returns shape {rows.shape}; return one row per record: (n, outputs)")
    return rows
