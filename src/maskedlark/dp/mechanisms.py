"""Noise on integers, from a seed: what a helper adds to its share of an answer, and its bounds.

The scale is the multiplier `noise` times the sensitivity of a replaced secret. So a Laplace column costs
ε = 1 / noise, and a Gaussian one is a Gaussian mechanism of that multiplier.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from randomgen import ChaCha

from maskedlark.core import field
from maskedlark.dp import gaussian
from maskedlark.dp.gaussian import Gaussian
from maskedlark.dp.laplace import Laplace
from maskedlark.errors import FieldOverflow, NotDeclared

Kind = Literal["laplace", "gaussian"]

MIN_NOISE = 1e-3
MAX_NOISE = 1e9
SEED_BYTES = 32
_ROUNDS = 20
_LABEL, _ROOT = b"maskedlark v2 noise key", b"maskedlark v2 noise root"


@dataclass(frozen=True)
class Sensitivity:
    """How far a replaced secret can move a row of a column, in both norms."""

    l1: int
    l2: float
    touched: int = 1
    """How many coordinates one record can move: 1 by group, d for a gradient."""

    def __post_init__(self) -> None:
        # Integers move by at least 1, or not at all; NaN fails the comparison.
        if not (self.l1 >= 1 and 1 <= self.l2 < math.inf and self.touched >= 1):
            raise NotDeclared("a sensitivity is 1 or more in both norms, over 1 coordinate or more")


def law(kind: Kind, noise: float, sensitivity: Sensitivity) -> Laplace | Gaussian:
    """The distribution of one helper's noise on one number. Anyone."""
    check_noise(noise)
    if kind == "laplace":
        return Laplace(float(noise), sensitivity.l1)
    if kind == "gaussian":
        return gaussian.covering(float(noise), sensitivity.l2, sensitivity.touched)
    raise NotDeclared("noise is 'laplace' or 'gaussian'")


def check_noise(noise: float) -> None:
    """Refuse a multiplier that no document can declare."""
    if not MIN_NOISE <= noise <= MAX_NOISE:
        raise NotDeclared(f"a noise multiplier is from {MIN_NOISE:g} to {MAX_NOISE:g}")


def deviation(kind: Kind, noise: float, sensitivity: Sensitivity) -> float:
    """The standard deviation of one helper's noise."""
    return law(kind, noise, sensitivity).deviation


def tail(kind: Kind, noise: float, sensitivity: Sensitivity, helpers: int) -> int:
    """A bound on the sum of all helpers' noise, for the field's range check. Fails with chance < 2^-63."""
    check_helpers(helpers)
    return law(kind, noise, sensitivity).tail(helpers)


def engine(kind: Kind) -> str:
    """The version under which a seed gives the same noise. No other may redraw it for an old charge."""
    # Laplace noise is made of integers alone; Gaussian noise is numpy's, whose stream may change.
    return "laplace 2" if kind == "laplace" else f"gaussian 3, numpy {np.__version__}"


def root(stored: bytes, shared: Sequence[bytes]) -> bytes:
    """The root of a release's noise, from a helper's stored seed and those that the datasets' helpers share.

    Only the helper has the first. The others are deleted with their datasets and are in no copy of a ledger,
    so an old copy cannot remove the noise of a stored answer. Run by helpers and their auditors.
    """
    return hashlib.sha256(_ROOT + stored + b"".join(shared)).digest()


def check_helpers(helpers: int) -> None:
    """Refuse a number of helpers that is not positive."""
    if helpers < 1:
        raise NotDeclared("noise is that of 1 helper or more")


def draw(kind: Kind, noise: float, sensitivity: Sensitivity, seed: bytes, count: int) -> NDArray[np.int64]:
    """`count` independent draws, the same for the same arguments. Run by helpers.

    A helper that answers twice under one charge draws the same noise from its seed, by the same `engine`.
    """
    if count < 0:
        raise NotDeclared("noise is drawn 0 times or more")
    noise_law = law(kind, noise, sensitivity)
    if noise_law.tail(1) > field.HALF:
        raise FieldOverflow("so much noise leaves the field: lower the noise or the sensitivity")
    return noise_law.draw(_bits(kind, noise, sensitivity, seed, count), count)


def _bits(
    kind: Kind, noise: float, sensitivity: Sensitivity, seed: bytes, count: int
) -> np.random.BitGenerator:
    """ChaCha20 under a key that binds every argument: no two kinds or scales share their noise."""
    if len(seed) != SEED_BYTES:
        raise NotDeclared(f"a noise seed has {SEED_BYTES} bytes")
    named = f"{kind} {float(noise).hex()} {sensitivity.l1} {float(sensitivity.l2).hex()} "
    counted = f"{sensitivity.touched} {count}"
    key = hashlib.sha256(_LABEL + seed + (named + counted).encode()).digest()
    # As `key`, not as `seed`: a generator that is not cryptographic would stretch a seed.
    bits: np.random.BitGenerator = ChaCha(key=int.from_bytes(key, "little"), rounds=_ROUNDS)
    return bits
