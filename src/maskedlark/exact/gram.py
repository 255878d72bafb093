"""The squared norms of all candidates' errors at once, where a network has one hidden layer. Run by helpers.

There δ = (Wᵀ D) ∘ r for an output error D, so Σδ² = Dᵀ M D with M = Σ r² W Wᵀ, one small matrix a record.
With D the probabilities P less one at the candidate y, that is PᵀMP - 2 (MP)_y + M_yy: no candidate needs an
error of its own. The integers are those of the long way, and as exact.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from maskedlark.exact.clip import Norm
from maskedlark.exact.forward import Trace
from maskedlark.exact.forward_plan import EXACT_BITS
from maskedlark.exact.plan import COARSE_BITS, HeadPlan, Plan

_MOST_CLASSES = 64
_SINGLE = 1 << 24


def fits(plan: Plan, head: HeadPlan, label: int) -> bool:
    """Whether a label's norms can go this way: L2, one hidden layer, nothing rounded, all sums exact."""
    columns = plan.network.columns[label]
    classes = plan.network.losses[label].outputs
    if (
        plan.clip.norm is not Norm.L2
        or len(plan.layers) != 2
        or head.errors.shifts[0]
        or classes > _MOST_CLASSES
    ):
        return False
    total = (2 << COARSE_BITS) + classes
    return _largest(plan, columns) * total * total < 1 << EXACT_BITS


def _largest(plan: Plan, columns: slice) -> int:
    """No number of M is larger, by Cauchy and Schwarz."""
    weight = plan.layers[1].weight[columns].astype(np.int64)
    return int((weight * weight).sum(axis=1).max()) * plan.layers[1].slope_top ** 2


@dataclass(frozen=True)
class Gram:
    """The products W_j W_k of a label's output rows, j <= k, as columns of a matrix."""

    pairs: Tensor
    place: Tensor
    """Where (j, k) stands among the columns: (classes, classes)."""

    @classmethod
    def of(cls, weight: Tensor, slope_top: int) -> "Gram":
        """From the label's rows of the output layer, (classes, width)."""
        classes = len(weight)
        upper = torch.triu_indices(classes, classes, device=weight.device)
        pairs = (weight[upper[0]] * weight[upper[1]]).T
        bound = int(pairs.abs().sum(dim=0).max()) * slope_top**2
        place = torch.zeros((classes, classes), dtype=torch.int64, device=weight.device)
        place[upper[0], upper[1]] = torch.arange(upper.shape[1], device=weight.device)
        place = torch.maximum(place, place.T)
        return cls(pairs.float() if bound <= _SINGLE else pairs, place)


def powers(gram: Gram, trace: Trace, place: Tensor, probabilities: Tensor) -> list[Tensor]:
    """Σδ² of every candidate at the hidden layer and at the output, (n, m) each."""
    slope = trace.slopes[0].to(gram.pairs.dtype)
    products = ((slope * slope) @ gram.pairs).double()
    matrix = products[:, gram.place]
    return [_quadratic(matrix, probabilities, place), _output(probabilities, place)]


def _quadratic(matrix: Tensor, probabilities: Tensor, place: Tensor) -> Tensor:
    one = float(1 << COARSE_BITS)
    image = (matrix @ probabilities[:, :, None])[:, :, 0]
    whole = (image * probabilities).sum(dim=1, keepdim=True)
    diagonal = matrix.diagonal(dim1=1, dim2=2)
    return whole - image.gather(1, place) * (2.0 * one) + diagonal.gather(1, place) * (one * one)


def _output(probabilities: Tensor, place: Tensor) -> Tensor:
    one = float(1 << COARSE_BITS)
    whole = (probabilities * probabilities).sum(dim=1, keepdim=True)
    return whole - probabilities.gather(1, place) * (2.0 * one) + one * one
