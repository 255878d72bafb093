"""What a clipped gradient loses to the fraction's few bits, on rows without labels. Run by the ad server.

One output: a row is q R, and q is cut to an integer, so less than ‖R‖ 2^-F is lost at any label. Softmax: the
clip keeps Λ θ free for what truncation may add, and truncation itself loses at most as much again. With a
depth, each number above the entrance is cut separately.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskedlark.exact import device as devices
from maskedlark.exact import norms
from maskedlark.exact.backward import Backward
from maskedlark.exact.clip import SAFETY
from maskedlark.exact.forward import Forward, Seed, Trace
from maskedlark.exact.layout import LabelLayout, StepLayout
from maskedlark.exact.losses import OneOutput


def truncation(
    step: StepLayout, features: NDArray[np.uint8], seed: Seed | None = None
) -> NDArray[np.float64]:
    """A bound, for every row, on how far its clipped gradient is from one of unlimited fraction, in ψ.

    It is in the norm of the clip, at these weights, whatever the label is (of errors below 2^31 units, which
    the engine cuts them to). `seed`: for dropout.
    """
    device, lost = devices.ready("cpu"), torch.zeros(len(features), dtype=torch.float64)
    backward = Backward(step, device)
    with devices.exact(device):
        trace = Forward(step, device)(devices.tensor(features, device), seed)
        for label, (loss, head) in enumerate(zip(step.network.losses, step.heads, strict=True)):
            if isinstance(loss, OneOutput):
                lost += norms.unit_rows(backward, trace, label, head)[1][:, 0] * 2.0**-step.clip.fraction
            else:
                lost += _softmax(step, trace, head)
    errors: NDArray[np.float64] = (lost * (SAFETY / step.clip.psi)).numpy()
    return errors


def _softmax(step: StepLayout, trace: Trace, head: LabelLayout) -> Tensor:
    norm, depth = step.clip.norm, step.clip.depth
    inputs = norms.input_powers(step, trace, always_one=depth > 0)
    kept_free = norms.reach(step, head, inputs) * head.truncation
    cut = norm.power(kept_free[:, None])
    for layer, own in list(zip(step.layers, inputs, strict=True))[head.entrance :] if depth else ():
        # A number of the weight's row is its error's times an input, so errors are cut by less than 2^-F.
        cut = cut + own * norm.power(torch.full((len(layer.weight),), 2.0**-step.clip.fraction))
    return kept_free + norm.root(cut)
