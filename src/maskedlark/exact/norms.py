"""The norm of every candidate's row, without a row: ‖g‖² = Σ ‖δ‖² (‖a‖² + 1) over the layers.

Run by helpers. In L2 the squares add up, in L1 the magnitudes. All sums are of integers and exact; what is
rounded in between is either the row itself (one output) or paid for by the plan's slack (softmax).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from maskedlark.exact import gram
from maskedlark.exact.clip import Norm
from maskedlark.exact.forward import Trace
from maskedlark.exact.plan import COARSE_BITS, HeadPlan, Plan
from maskedlark.exact.tables import PROBABILITY_BITS

if TYPE_CHECKING:
    from maskedlark.exact.backward import Backward, Label


def input_powers(plan: Plan, trace: Trace, *, always_one: bool = False) -> list[Tensor]:
    """‖a‖² + 1 (or ‖a‖ + 1 in L1) of every layer's input, float64, in reals.

    The 1 is the bias's input. A layer without a bias has it where its own error has to stay within ψ.
    """
    norm, found = plan.clip.norm, []
    for layer, numbers in zip(plan.layers, trace.inputs, strict=True):
        scale = norm.scale(layer.input_exponent)
        # Both terms are integers in the input's unit, and their sum is exact.
        one = 1.0 / scale if layer.has_bias or always_one else 0.0
        found.append(_input_power(norm, numbers).add_(one).mul_(scale))
    return found


def _input_power(norm: Norm, numbers: Tensor) -> Tensor:
    """Σ|a| or Σa² of 8-bit numbers, float64. Up to 256 of them add up below 2^24, exact in float32."""
    powers = numbers.abs() if norm is Norm.L1 else numbers * numbers
    parts = [part.sum(dim=1) for part in powers.tensor_split(-(-powers.shape[1] // 256), dim=1)]
    return torch.stack(parts).sum(dim=0, dtype=torch.float64)


def unit_errors(backward: Backward, trace: Trace, label: int, head: HeadPlan) -> Iterator[Tensor]:
    """An output error of 1 on its way back: every layer's rounded error, float64 (n, width), output first."""
    layers = backward.plan.layers
    unit = torch.ones((len(trace.sums), 1), dtype=torch.float64, device=trace.sums.device)
    yield unit
    for index in range(len(layers) - 1, 0, -1):
        slope = trace.slopes[index - 1].double()
        if index == len(layers) - 1:
            unit = slope * backward.of_head(label)
        else:
            unit = (unit @ backward.weights[index]).mul_(slope)
        unit = rounded(unit, head.errors.shifts[index - 1])
        yield unit


def rounded(numbers: Tensor, shift: int) -> Tensor:
    """Integers divided by 2^shift and rounded to the nearest. Overwrites them."""
    return numbers.mul_(2.0**-shift).add_(0.5).floor_() if shift else numbers


def unit_norm(plan: Plan, trace: Trace, head: HeadPlan, units: list[Tensor]) -> Tensor:
    """‖R‖ of the row of an output error of 1, float64 (n,)."""
    norm = plan.clip.norm
    total = torch.zeros_like(trace.sums[:, 0])
    inputs = input_powers(plan, trace)
    for index, unit in zip(range(len(units) - 1, -1, -1), units, strict=True):
        total = total + norm.power(unit) * inputs[index] * norm.scale(head.errors.exponents[index])
    return norm.root(total)


def softmax_factors(plan: Plan, trace: Trace, head: HeadPlan, powers: list[Tensor]) -> Tensor:
    """The clip factor of every record and candidate, float64 (n, m), from every layer's power sums."""
    norm, inputs = plan.clip.norm, input_powers(plan, trace, always_one=plan.clip.depth > 0)
    total, reach = torch.zeros_like(powers[0]), torch.zeros_like(inputs[0])
    for index in range(len(inputs) - 1, -1, -1):
        total = total + powers[index] * inputs[index][:, None] * norm.scale(head.errors.exponents[index])
        gain = head.gains[index]
        reach = reach + inputs[index] * (gain if norm is Norm.L1 else gain * gain)
    reach = norm.root(reach)
    return plan.clip.factors(
        norm.root(total), reach * head.slack, reach * head.truncation, len(plan.network.losses)
    )


def coarse_powers(
    backward: Backward, trace: Trace, label: Label, head: HeadPlan, fine: Tensor
) -> list[Tensor]:
    """Σδ² (or Σ|δ|) of every candidate's coarse error, (n, m) a layer, first layer first."""
    probabilities = (fine * 2.0 ** (COARSE_BITS - PROBABILITY_BITS)).add_(0.5).floor_()
    place = label.candidates.long()
    if gram.fits(backward.plan, head, label.index):
        return gram.powers(backward.gram(label.index), trace, place, probabilities)
    error = candidate_errors(probabilities, place, COARSE_BITS)
    return [backward.plan.clip.norm.power(own) for own in errors_back(backward, trace, label, head, error)][
        ::-1
    ]


def errors_back(
    backward: Backward, trace: Trace, label: Label, head: HeadPlan, error: Tensor
) -> Iterator[Tensor]:
    """Every candidate's error on its way back in the clear, rounded: (n, m, width) a layer, output first."""
    layers = backward.plan.layers
    yield error
    for index in range(len(layers) - 1, 0, -1):
        weight = backward.of_head(label.index) if index == len(layers) - 1 else backward.weights[index]
        error = (error @ weight).mul_(trace.slopes[index - 1].double()[:, None, :])
        error = rounded(error, head.errors.shifts[index - 1])
        yield error


def candidate_errors(probabilities: Tensor, place: Tensor, bits: int) -> Tensor:
    """Probabilities less one at each candidate's place: (n, classes) and (n, m) to (n, m, classes)."""
    error = probabilities[:, None, :].repeat(1, place.shape[1], 1)
    one = torch.tensor(-float(1 << bits), dtype=torch.float64, device=error.device)
    return error.scatter_add_(2, place[:, :, None], one.expand(*place.shape, 1))
