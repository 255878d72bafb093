"""The norm of every candidate's row, without a row: ‖g‖² = Σ ‖δ‖² (‖a‖² + 1) over the layers.

Run by helpers. In L2 the squares add up, in L1 the magnitudes. All sums are of integers and exact;
rounding in between affects the row itself (one output) or is covered by the layout's slack (softmax).

With one hidden layer, all candidates' squared norms are computed at once: δ = (Wᵀ D) ∘ r for an output error
D, so Σδ² = Dᵀ M D with M = Σ r² W Wᵀ, one small matrix per record. With D the probabilities P minus one at
the candidate y, that is PᵀMP - 2 (MP)_y + M_yy, the same exact integers without an error per candidate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from maskedlark.exact.clip import Norm
from maskedlark.exact.forward import Trace
from maskedlark.exact.layout import COARSE_BITS, EXACT_BITS, LabelLayout, StepLayout
from maskedlark.exact.tables import PROBABILITY_BITS

if TYPE_CHECKING:
    from maskedlark.exact.backward import Backward, Label


_MAX_CLASSES = 64
_SINGLE = 1 << 24


def input_powers(layout: StepLayout, trace: Trace, *, always_one: bool = False) -> list[Tensor]:
    """‖a‖² + 1 (or ‖a‖ + 1 in L1) of every layer's input, float64, in reals.

    The 1 is the bias's input. Layers without a bias get it too where their error itself must stay within ψ.
    """
    norm, powers = layout.clip.norm, []
    for layer, numbers in zip(layout.layers, trace.inputs, strict=True):
        scale = norm.scale(layer.input_exponent)
        # Both terms are integers in the input's unit, and their sum is exact.
        one = 1.0 / scale if layer.has_bias or always_one else 0.0
        powers.append(_input_power(norm, numbers).add_(one).mul_(scale))
    return powers


def _input_power(norm: Norm, numbers: Tensor) -> Tensor:
    """Σ|a| or Σa² of 8-bit numbers, float64. Up to 256 of them add up below 2^24, exact in float32."""
    powers = numbers.abs() if norm is Norm.L1 else numbers * numbers
    parts = [part.sum(dim=1) for part in powers.tensor_split(-(-powers.shape[1] // 256), dim=1)]
    return torch.stack(parts).sum(dim=0, dtype=torch.float64)


def row_norm(norm: Norm, head: LabelLayout, powers: list[Tensor], inputs: list[Tensor]) -> Tensor:
    """The norm of every record's and candidate's row, float64 (n, m), from every layer's power sums."""
    total = torch.zeros_like(powers[0])
    for index in range(len(inputs) - 1, -1, -1):
        total = total + powers[index] * inputs[index][:, None] * norm.scale(head.exponents[index])
    return norm.root(total)


def unit_rows(backward: Backward, trace: Trace, label: int, head: LabelLayout) -> tuple[list[Tensor], Tensor]:
    """For one output: every layer's error if the output's is 1, output first, and the row's norm (n, 1)."""
    layout, norm = backward.layout, backward.layout.clip.norm
    one = torch.ones((len(trace.sums), 1, 1), dtype=torch.float64, device=backward.device)
    units = list(errors_back(backward, trace, label, head, one))
    powers = [norm.power(unit) for unit in units][::-1]
    return units, row_norm(norm, head, powers, input_powers(layout, trace))


def reach(layout: StepLayout, head: LabelLayout, inputs: list[Tensor]) -> Tensor:
    """For softmax: Λ, how long the row of an error of norm 1 at the entrance can be, of every record (n,)."""
    norm, power = layout.clip.norm, torch.zeros_like(inputs[0])
    for own, gain in zip(inputs[::-1], head.gains[::-1], strict=True):
        power = power + own * (gain if norm is Norm.L1 else gain * gain)
    return norm.root(power)


def softmax_factors(layout: StepLayout, trace: Trace, head: LabelLayout, powers: list[Tensor]) -> Tensor:
    """The clip factor of every record and candidate, float64 (n, m), from every layer's power sums."""
    norm, inputs = layout.clip.norm, input_powers(layout, trace, always_one=layout.clip.depth > 0)
    longest, length = reach(layout, head, inputs), row_norm(norm, head, powers, inputs)
    labels = len(layout.network.losses)
    return layout.clip.factors(length, longest * head.slack, longest * head.truncation, labels)


def coarse_powers(
    backward: Backward, trace: Trace, label: Label, head: LabelLayout, fine: Tensor
) -> list[Tensor]:
    """Σδ² (or Σ|δ|) of every candidate's coarse error, (n, m) per layer, first layer first."""
    probabilities = (fine * 2.0 ** (COARSE_BITS - PROBABILITY_BITS)).add_(0.5).floor_()
    place = label.candidates.long()
    if _fits_gram(backward.layout, head, label.index):
        return _gram_powers(backward.gram(label.index), trace, place, probabilities)
    error = candidate_errors(probabilities, place, COARSE_BITS)
    errors = errors_back(backward, trace, label.index, head, error)
    return [backward.layout.clip.norm.power(own) for own in errors][::-1]


def errors_back(
    backward: Backward, trace: Trace, label: int, head: LabelLayout, error: Tensor
) -> Iterator[Tensor]:
    """Every candidate's rounded error, back through the layers in the clear: (n, m, width), output first."""
    yield error
    for index in range(len(trace.slopes), 0, -1):
        error = (error @ backward.weight(index, label)).mul_(trace.slopes[index - 1].double()[:, None, :])
        if shift := head.shifts[index - 1]:
            error = error.mul_(2.0**-shift).add_(0.5).floor_()
        yield error


def candidate_errors(probabilities: Tensor, place: Tensor, bits: int) -> Tensor:
    """Probabilities minus one at each candidate's position: (n, classes) and (n, m) to (n, m, classes)."""
    error = probabilities[:, None, :].repeat(1, place.shape[1], 1)
    one = error.new_full((), -float(1 << bits))
    return error.scatter_add_(2, place[:, :, None], one.expand(*place.shape, 1))


def _fits_gram(layout: StepLayout, head: LabelLayout, label: int) -> bool:
    """Whether `Gram` applies to a label: L2, one hidden layer, nothing rounded, all sums exact."""
    classes, deep = layout.network.losses[label].outputs, len(layout.layers) != 2
    if layout.clip.norm is not Norm.L2 or deep or head.shifts[0] or classes > _MAX_CLASSES:
        return False
    return gram_top(layout, label) * ((2 << COARSE_BITS) + classes) ** 2 < 1 << EXACT_BITS


def gram_top(layout: StepLayout, label: int) -> int:
    """The bound on the entries of M and on the sums of their magnitudes, by Cauchy-Schwarz."""
    weight = layout.layers[1].weight[layout.network.columns[label]].astype(np.int64)
    return int((weight * weight).sum(axis=1).max()) * layout.layers[1].slope_top ** 2


@dataclass(frozen=True)
class Gram:
    """The products W_j W_k of a label's output rows, j <= k, as columns of a matrix."""

    pairs: Tensor
    place: Tensor
    """The column of (j, k): (classes, classes)."""

    @classmethod
    def of(cls, weight: Tensor, top: int) -> Gram:
        """From the label's rows of the output layer, (classes, width), and the bound on M."""
        classes = len(weight)
        upper = torch.triu_indices(classes, classes, device=weight.device)
        pairs = (weight[upper[0]] * weight[upper[1]]).T
        place = torch.zeros((classes, classes), dtype=torch.int64, device=weight.device)
        place[upper[0], upper[1]] = torch.arange(upper.shape[1], device=weight.device)
        place = torch.maximum(place, place.T)
        return cls(pairs.float() if top <= _SINGLE else pairs, place)


def _gram_powers(gram: Gram, trace: Trace, place: Tensor, probabilities: Tensor) -> list[Tensor]:
    """Σδ² of every candidate at the hidden layer and at the output, (n, m) each."""
    slope = trace.slopes[0].to(gram.pairs.dtype)
    matrix = ((slope * slope) @ gram.pairs).double()[:, gram.place]
    image = (matrix @ probabilities[:, :, None])[:, :, 0]
    hidden = _quadratic(image, matrix.diagonal(dim1=1, dim2=2), probabilities, place)
    # At the output, M is the identity.
    return [hidden, _quadratic(probabilities, torch.ones_like(probabilities), probabilities, place)]


def _quadratic(image: Tensor, diagonal: Tensor, probabilities: Tensor, place: Tensor) -> Tensor:
    """PᵀMP - 2 (MP)_y + M_yy of every candidate y, from MP and M's diagonal."""
    one = float(1 << COARSE_BITS)
    whole = (image * probabilities).sum(dim=1, keepdim=True)
    return whole - image.gather(1, place) * (2.0 * one) + diagonal.gather(1, place) * (one * one)
