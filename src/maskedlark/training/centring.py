"""A fixed first layer that centres rows: they get shorter, so that a smaller ψ, and less noise, suffices.

Bytes are never negative, so rows are long mostly by their mean, which says nothing about anybody. Helpers
compute gradients of this layer too, and nobody uses them. They are by ‖w‖ shorter than those of the layer
above, w being its weights, and `SCALE` makes w small: they hardly count in the norm that ψ bounds. Run by the
ad server, without labels.
"""

import numpy as np
import torch
from torch import nn

from maskedlark.exact.network import FEATURE_EXPONENT
from maskedlark.training.public_rows import Bytes

SCALE = 8.0
"""Of all outputs. At 8, gradients of this layer added less than 1 % to the norm on four tables."""


def centred(rows: Bytes, components: int | None = None) -> nn.Linear:
    """The first layer of a model: rows less their mean, and a constant, all times `SCALE`.

    `rows`: the ad server's own, bytes (n, features). `components`: only so many principal components, for
    wide rows: a step sends (features + 1) numbers for each output. Declare ψ for the whole model by
    `gradient_bound`.
    """
    numbers = rows.astype(np.float64) / 2**FEATURE_EXPONENT
    mean, width = numbers.mean(axis=0), numbers.shape[1]
    turned = np.eye(width)
    if components is not None and components < width:
        turned = np.linalg.eigh(np.cov(numbers.T))[1][:, ::-1][:, :components].T
    layer = nn.Linear(width, len(turned) + 1)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(SCALE * np.concatenate([turned, np.zeros((1, width))])))
        layer.bias.copy_(torch.from_numpy(SCALE * np.append(-turned @ mean, 1.0)))
    return layer.requires_grad_(False)
