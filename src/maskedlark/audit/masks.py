"""The plainest attack of a helper on its own masks: read the truth off their sign or size."""

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import field
from maskedlark.core.field import FieldArray


def by_sign(view: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Guess label 1 where its mask is positive."""
    return view[:, 1] > 0


def by_size(view: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Guess label 1 where its mask is the larger of the two."""
    return view[:, 1] > view[:, 0]


def as_signed(shares: FieldArray) -> NDArray[np.float64]:
    """Our masks as an attacker reads them that looks for signs: in [-1, 1]."""
    return field.to_signed(shares).astype(np.float64) / field.HALF


def as_uniform(shares: FieldArray) -> NDArray[np.float64]:
    """Our masks as an attacker reads them that looks for a generator's floats: in [0, 1)."""
    return np.ldexp((shares >> (field.BITS - 53)).astype(np.float64), -53)
