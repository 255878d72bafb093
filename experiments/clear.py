"""The exact engine's gradient of labels that are known, faster, bit for bit the same. Run by figures.

A mask of 1 leaves an error as small as it is, so that one float64 product holds every sum where a masked one
takes eight of bytes. Forward pass, clip and errors are the engine's own; only the last product is another.
What could leave 53 bits goes the engine's way. `tests/unit/experiments/test_clear.py` compares both.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskedlark.core import field
from maskedlark.exact import device as devices
from maskedlark.exact import norms
from maskedlark.exact.backward import Backward, Label
from maskedlark.exact.forward import Forward, Trace
from maskedlark.exact.gradient import BLOCK, GradientEngine, Records
from maskedlark.exact.layout import StepLayout
from maskedlark.exact.losses import SoftmaxCrossEntropy, as_candidates
from maskedlark.exact.operations import TOP
from maskedlark.exact.products import LOW_BITS
from maskedlark.exact.tables import PROBABILITY_BITS

_EXACT = 1 << 53
_SHORT = 2
"""Layers of a network whose errors stay far below that on their way back."""


def total(step: StepLayout, records: Records) -> NDArray[np.int64]:
    """Σ of clipped gradients as signed integers, flat; masks that are all 1 go the fast way."""
    device = devices.ready("cpu")
    step.check_range(len(records))
    records.check(step.network)
    if len(records.candidates) == 1 and 0 < len(records) <= BLOCK and bool((records.masks == 1).all()):
        with devices.exact(device):
            found = _one_product(step, records, device)
        if found is not None:
            return found
    return field.to_signed(GradientEngine(step, device).share(records, BLOCK))


def _one_product(step: StepLayout, records: Records, device: torch.device) -> NDArray[np.int64] | None:
    """None, where a sum could be too long for float64."""
    trace = Forward(step, device)(devices.tensor(records.features, device), None)
    label = Label(0, as_candidates(records.candidates[0], device), devices.tensor(records.masks, device))
    errors = _errors(Backward(step, device), trace, label)
    if max(float(error.abs().max()) for error in errors) * TOP * len(records) >= _EXACT:
        return None
    products: list[Tensor] = []
    for layer, error, numbers in zip(step.network.layers, errors, trace.inputs, strict=True):
        left, right = (numbers.double(), error) if layer.linear.transposed else (error, numbers.double())
        products.append((left.T @ right).flatten())
        products.extend([] if layer.linear.bias is None else [error.sum(dim=0)])
    return np.concatenate(
        [
            own.long().numpy() << (step.exponent - exponent)
            for own, exponent in zip(products, step.parameter_exponents, strict=True)
        ]
    )


def _errors(backward: Backward, trace: Trace, label: Label) -> list[Tensor]:
    """Every layer's clipped error, float64, first layer first."""
    layout, (loss,) = backward.layout, backward.layout.network.losses
    # With more layers the way back has more products than one, and what they can reach is not bounded here.
    deep = layout.clip.depth or len(layout.layers) > _SHORT
    if not isinstance(loss, SoftmaxCrossEntropy) or deep or label.masks.shape[1] > 1:
        limbs = backward.masked_errors(trace, label)
        return [own.low + own.high * 2.0**LOW_BITS for own in limbs][::-1]
    # As `Backward` does it, but for the limbs: on the way back every number stays far below 2^53.
    (head,) = layout.heads
    fine = loss.probabilities(trace.sums, layout.layers[-1].sum_exponent)
    powers = norms.coarse_powers(backward, trace, label, head, fine)
    factors = norms.softmax_factors(layout, trace, head, powers)
    error = norms.candidate_errors(fine, label.candidates.long(), PROBABILITY_BITS)[:, 0]
    errors = [(error * factors).mul_(2.0 ** (layout.clip.fraction - PROBABILITY_BITS)).trunc_()]
    for index in range(len(layout.layers) - 1, 0, -1):
        errors.append((errors[-1] @ backward.weights[index]).mul_(trace.slopes[index - 1]))
    return errors[::-1]
