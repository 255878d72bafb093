"""The losses, one class each: the output's error for every candidate label, in integers. Run by helpers.

A loss with one output gives D, the error of each candidate, in units of 2^-error_bits. Softmax gives its
probabilities in units of 2^-20; a candidate's error is that vector, minus one at the candidate's position.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskedlark.exact import device as devices
from maskedlark.exact import operations, tables
from maskedlark.exact.errors import ModelDoesNotFit, RecordsDoNotFit

LARGEST_LABEL = 1 << 31


class Loss(ABC):
    """One label's loss."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """How many of the network's outputs it uses."""

    @property
    @abstractmethod
    def label_range(self) -> tuple[int, int]:
        """The smallest and the largest valid label."""

    def check(self, candidates: NDArray[np.int64]) -> None:
        """Refuse candidates outside the label range."""
        low, high = self.label_range
        if candidates.size and (candidates.min() < low or candidates.max() > high):
            raise RecordsDoNotFit(f"{self} takes labels {low} … {high}; declare that label space")


class OneOutput(Loss):
    """A loss with one output: every candidate's error is a number."""

    outputs: ClassVar[int] = 1
    error_bits: ClassVar[int]

    @abstractmethod
    def errors(self, sums: Tensor, exponent: int, candidates: Tensor) -> Tensor:
        """D of every record and candidate, float64 (n, m), from the output's sums (n, 1)."""


@dataclass(frozen=True)
class BinaryCrossEntropy(OneOutput):
    """On logits; labels 0 and 1. The error is sigmoid(z) - y."""

    error_bits: ClassVar[int] = tables.PROBABILITY_BITS
    label_range: ClassVar[tuple[int, int]] = (0, 1)

    def errors(self, sums: Tensor, exponent: int, candidates: Tensor) -> Tensor:
        """The table's sigmoid minus the label."""
        return scores(sums, exponent) - candidates * float(1 << self.error_bits)


@dataclass(frozen=True)
class SquaredError(OneOutput):
    """(z - y)^2 / 2; labels are integers of at most 31 bits. The error is z - y."""

    error_bits: ClassVar[int] = 12
    label_range: ClassVar[tuple[int, int]] = (-LARGEST_LABEL, LARGEST_LABEL)
    """Labels that float64 subtracts exactly."""

    def errors(self, sums: Tensor, exponent: int, candidates: Tensor) -> Tensor:
        """The output in units of 2^-12, minus the label."""
        output = (sums * 2.0 ** (self.error_bits - exponent)).add_(0.5).floor_()
        return output - candidates * float(1 << self.error_bits)


@dataclass(frozen=True)
class SoftmaxCrossEntropy(Loss):
    """On logits; labels 0 … classes - 1. The error is softmax(z) - one-hot(y)."""

    classes: int

    def __post_init__(self) -> None:
        if not 2 <= self.classes <= 1 << 12:
            change = "merge rare ones"
            if self.classes < 2:
                change = 'with one output, take loss = "bce" (yes or no) or "mse" (a number)'
            raise ModelDoesNotFit(
                "softmax", f"takes an output per class, 2 to 4096, and the model has {self.classes}; {change}"
            )

    @property
    def outputs(self) -> int:
        """One per class."""
        return self.classes

    @property
    def label_range(self) -> tuple[int, int]:
        """One of the classes."""
        return 0, self.classes - 1

    def probabilities(self, sums: Tensor, exponent: int) -> Tensor:
        """softmax in units of 2^-20, float64 (n, classes), from the table of e^-x.

        The numerator is below 2^53, so the floor of the rounded quotient is the floor of the exact one.
        """
        below = sums.amax(dim=1, keepdim=True) - sums
        index = below.mul_(2.0 ** (tables.INDEX_BITS - exponent)).add_(0.5).floor_()
        powers = operations.exponential(sums.device)[index.clamp_(max=tables.ENTRIES - 1).long()]
        total = powers.sum(dim=1, keepdim=True)
        return powers.mul_(2.0 ** (tables.PROBABILITY_BITS + 1)).add_(total).div_(total * 2.0).floor_()


def scores(sums: Tensor, exponent: int) -> Tensor:
    """sigmoid(z) in units of 2^-20, float64."""
    edge = tables.ENTRIES - 1
    index = (sums * 2.0 ** (tables.INDEX_BITS - exponent)).add_(0.5).floor_().clamp_(-edge, edge)
    return operations.sigmoid(sums.device)[index.add_(edge).long()]


def as_candidates(candidates: NDArray[np.int64], device: torch.device) -> Tensor:
    """Candidates of at most 31 bits, float64 and exact."""
    return devices.tensor(candidates, device).double()
