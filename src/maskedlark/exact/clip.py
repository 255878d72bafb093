"""The bound ψ on every row, in L1 or L2, and its proof. Set by the document, enforced by helpers.

Proof for a loss with one output. The row is q · R, where R is the integer row of an error of one unit and
q an integer. N >= ‖R‖, so |q| <= ψ 2^F / N keeps ‖q R‖ within ψ 2^F.

Proof for softmax. Let L be the linear map from an output's error to the row, d the candidate's error. The
row is L(q) with q = trunc(c d 2^F), so q / 2^F = c d + ε with |ε_j| <= 2^-F. Hence
‖row‖ <= c ‖L d‖ + ‖L‖ ‖ε‖ <= c N + E with N >= ‖L d‖, and E >= ‖L‖ ‖ε‖: √outputs 2^-F Λ in L2,
outputs 2^-F Λ in L1, with Λ >= ‖L‖ from the norms of the weights. c = (ψ - E) / N, at most 1, keeps to ψ.
N is the norm of L at a coarser error and with rounded errors in between; ω Λ bounds what that left out.

With a depth, each layer from the output down to the entrance is clipped and truncated separately, which
only shortens it; the argument then starts at the entrance. `docs/EXACT.md` has it in full.

Every float operation here has a relative error of at most 2^-53; a row takes far fewer than 2^12 of them,
and the factor 1 + 2^-40 covers them all.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from maskedlark.errors import NotDeclared
from maskedlark.exact import device as devices

SAFETY = 1.0 + 2.0**-40
LEAST = 2.0**-100
"""Smaller than any non-zero norm; avoids division by 0."""
MAX_FACTOR = (1 << 31) - 1
"""The largest clipped number: a mask's limb times it fits in 62 bits."""


class Norm(StrEnum):
    """Laplace noise covers a bound in L1, Gaussian noise one in L2."""

    L1 = "l1"
    L2 = "l2"

    def of_ones(self, count: int) -> float:
        """The norm of a vector of `count` ones."""
        return float(count) if self is Norm.L1 else math.sqrt(count)

    def power(self, numbers: Tensor) -> Tensor:
        """Σ|x| or Σx² along the last axis, float64: integers whose sum is below 2^53."""
        return (numbers.abs() if self is Norm.L1 else numbers * numbers).sum(dim=-1, dtype=torch.float64)

    def scale(self, exponent: int) -> float:
        """The factor from a power sum of integers, in units of 2^-exponent, to one of reals."""
        return 2.0**-exponent if self is Norm.L1 else 4.0**-exponent

    def root(self, power: Tensor) -> Tensor:
        """The norm, from a power sum."""
        return power if self is Norm.L1 else devices.root(power)


@dataclass(frozen=True)
class Clip:
    """How every row is clipped: ψ, its norm, and F, the fractional bits of a clipped error."""

    psi: float
    norm: Norm = Norm.L2
    fraction: int = 20
    depth: int = 0
    """For softmax: how many layers a candidate's error is propagated back in the clear before it is masked.

    A masked error cannot be rounded, so every layer below adds to the gradient's exponent. A layer in the
    clear costs candidates times width instead, and lets larger models stay within the field.
    """

    def __post_init__(self) -> None:
        if not (math.isfinite(self.psi) and self.psi > 0):
            raise NotDeclared(f"the gradient bound is a positive number, not {self.psi}")
        if not 1 <= self.fraction <= 30 or self.psi * 2**self.fraction >= 2.0**31:
            raise NotDeclared("the gradient bound times 2^fraction stays below 2^31; lower one of them")
        if self.depth < 0:
            raise NotDeclared(f"the depth is a number of layers, not {self.depth}")

    def factor_top(self, has_bias: bool) -> int:
        """The largest clipped number: with an output bias, a row is at least as long as the bias's part."""
        return math.ceil(self.psi * 2.0**self.fraction) if has_bias else MAX_FACTOR

    def share(self, labels: int) -> float:
        """Each label's part of ψ: a record's row is the sum of its labels' rows, which may be parallel."""
        return self.psi / labels

    def largest_factor(self, norms: Tensor, labels: int) -> Tensor:
        """For one-output losses: the largest |q| for a row q · R, from ‖R‖, which is 0 only if R is."""
        whole = torch.full_like(norms, self.share(labels) * 2.0**self.fraction)
        return torch.div(whole, norms * SAFETY).floor_().clamp_(max=float(MAX_FACTOR))

    def factors(self, norms: Tensor, slack: Tensor, truncation: Tensor, labels: int) -> Tensor:
        """For softmax: c of every record and candidate (n, m)."""
        left = (self.share(labels) - truncation).clamp_(min=0.0)
        whole = ((norms + slack[:, None]) * SAFETY).clamp_(min=LEAST)
        return torch.div(left[:, None], whole).clamp_(max=1.0)
