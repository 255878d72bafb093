"""Masks: the one-hot truth of a record, or all zero for a fake one, ready to be shared (section 4.1.2).

After sharing, a true label's masks add up to 1 over the helpers and a fake label's to 0, and any N-1
helpers' masks are uniform in the field.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from maskedlark.core.candidates import Candidates
from maskedlark.core.field import FieldArray


def one_hot(drawn: Sequence[Candidates]) -> FieldArray:
    """The secret of every record: (n, all labels' candidates side by side). Run by the browser."""
    return np.concatenate([_one_hot(candidates) for candidates in drawn], axis=1)


def _one_hot(candidates: Candidates) -> FieldArray:
    columns = np.arange(candidates.labels.shape[1])
    true: NDArray[np.bool_] = columns == candidates.truth[:, None]
    return true.astype(np.int64)
