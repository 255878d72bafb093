"""The operations between two linear layers, a class each: forward and backward. Run by helpers.

Forward: an operation takes the sums z of the layer before, as z · 2^(unit - exponent of z), a multiple of a
power of two and exact, and returns numbers -255 … 255. Backward: it returns its slope at each, an integer in
units of 2^-slope_bits. A number at the end of its range counts as clamped, and its slope is 0.

To add one, add it here, in `chain`, `onnx_model`, the slow twin and `docs/EXACT.md`.
"""

from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor, nn

from maskedlark.exact import tables
from maskedlark.exact.errors import ModelDoesNotFit

TOP = 255
"""The largest magnitude of an 8-bit number."""
SLOPE_BITS = 8
"""A smooth activation's slope is in units of 2^-8."""
_ONE = 1 << SLOPE_BITS


@dataclass(frozen=True)
class Activation(ABC):
    """Maps sums to 8-bit numbers, with a slope."""

    name: ClassVar[str]
    """Its name on the wire."""
    module: ClassVar[type[nn.Module]]
    """Torch's class, which takes the slope, if any, as a real number."""
    fixed_exponent: ClassVar[int | None] = None
    """The output's exponent, if the operation fixes it; else the ad server chooses it."""
    rounded: ClassVar[bool] = True
    """Whether 1/2 is already added to the sums, so that `floor` rounds them."""
    slope_bits: ClassVar[int] = SLOPE_BITS
    extra_bits: ClassVar[int] = 0
    """How many bits the operation adds to a sum before it rounds."""
    signed: ClassVar[bool] = True
    """Whether outputs can be negative."""

    def unit(self, exponent: int) -> int:
        """The exponent that sums are passed in, for an output of that exponent."""
        return exponent

    @property
    def slope_top(self) -> int:
        """The largest slope, in its units."""
        return _ONE

    def in_floats(self, sums: Tensor) -> Tensor:
        """Torch's float function: close to the integers, not equal."""
        numbers: Tensor = self.module(*(k / _ONE for k in astuple(self)))(sums)
        return numbers

    @abstractmethod
    def apply(self, sums: Tensor, exponent: int) -> tuple[Tensor, Tensor]:
        """8-bit numbers and their slopes, both float32. May overwrite the sums."""


def _check_k(operation: object, k: int, low: int, high: int) -> None:
    """Refuse a slope or a rate, in units of 1/256, that the engine's bounds do not cover."""
    if not low <= k <= high:
        raise ModelDoesNotFit(str(operation), f"k lies within {low} … {high}; change it")


def _inside(numbers: Tensor, slope: Tensor) -> Tensor:
    """The slope where a number is not clamped, 0 where it is."""
    return torch.where(numbers.abs() < TOP, slope, torch.zeros_like(slope))


@dataclass(frozen=True)
class Relu(Activation):
    """max(z, 0)."""

    name = "relu"
    module = nn.ReLU
    signed: ClassVar[bool] = False
    slope_bits: ClassVar[int] = 0
    slope_top: ClassVar[int] = 1

    def apply(self, sums: Tensor, exponent: int) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """The slope is 1 strictly inside the range: there, and only there, a (255 - a) >= 1."""
        numbers = sums.floor_().clamp_(0, TOP).float()
        slope = torch.rsub(numbers, TOP).mul_(numbers).clamp_(max=1)
        return numbers, slope


@dataclass(frozen=True)
class Identity(Activation):
    """z: only the rounding to 8 bits."""

    name = "identity"
    module = nn.Identity
    slope_bits: ClassVar[int] = 0
    slope_top: ClassVar[int] = 1

    def apply(self, sums: Tensor, exponent: int) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """The slope is 1 where nothing is clamped."""
        numbers = sums.floor_().clamp_(-TOP, TOP).float()
        return numbers, _inside(numbers, torch.ones_like(numbers))


@dataclass(frozen=True)
class _Sloped(Activation):
    """An activation with a separate slope below 0, in units of 1/256."""

    k: int
    rounded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_k(self, self.k, 0, 1024)

    @property
    def slope_top(self) -> int:
        """The larger of 1 and the slope just below 0."""
        return max(_ONE, self.k)

    def apply(self, sums: Tensor, exponent: int) -> tuple[Tensor, Tensor]:
        """Unchanged above 0."""
        exact = sums.double()
        above = exact > 0
        below, slope = self._below(exact, exponent)
        numbers = torch.where(above, exact, below).add_(0.5).floor_().clamp_(-TOP, TOP).float()
        return numbers, _inside(numbers, torch.where(above, float(_ONE), slope).float())

    @abstractmethod
    def _below(self, exact: Tensor, exponent: int) -> tuple[Tensor, Tensor | float]:
        """The output at 0 and below, exact but for the last rounding, and its slope."""


@dataclass(frozen=True)
class LeakyRelu(_Sloped):
    """z, or z k / 256 below 0."""

    name = "leaky_relu"
    module = nn.LeakyReLU
    extra_bits: ClassVar[int] = 10

    def _below(self, exact: Tensor, exponent: int) -> tuple[Tensor, float]:  # noqa: ARG002
        """k / 256 is a multiple of a power of two, so the product is exact."""
        return exact * (self.k / _ONE), float(self.k)


@dataclass(frozen=True)
class _Tabled(Activation):
    """t sigmoid(t z) - (t - 1) for a t of 1 or 2, from the table of the sigmoid."""

    fixed_exponent: ClassVar[int | None] = 8
    _times: ClassVar[int]

    def unit(self, exponent: int) -> int:  # noqa: ARG002
        """The table's step, or half of it: the argument is t z."""
        return tables.INDEX_BITS + self._times - 1

    def apply(self, sums: Tensor, exponent: int) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Two lookups."""
        edge = tables.ENTRIES - 1
        index = sums.floor_().clamp_(-edge, edge).add_(edge).long()
        numbers, slopes = _looked_up(self._times, sums.device)
        return numbers[index], slopes[index]


@dataclass(frozen=True)
class Sigmoid(_Tabled):
    """1 / (1 + e^-z), from the table."""

    name = "sigmoid"
    module = nn.Sigmoid
    signed: ClassVar[bool] = False
    slope_top: ClassVar[int] = _ONE // 4
    _times: ClassVar[int] = 1


@dataclass(frozen=True)
class Tanh(_Tabled):
    """2 sigmoid(2 z) - 1, from the same table."""

    name = "tanh"
    module = nn.Tanh
    _times: ClassVar[int] = 2


@dataclass(frozen=True)
class Elu(_Sloped):
    """z, or (e^z - 1) k / 256 below 0."""

    name = "elu"
    module = nn.ELU
    k: int = _ONE

    def _below(self, exact: Tensor, exponent: int) -> tuple[Tensor, Tensor]:
        """From the table of e^-x."""
        index = (exact.neg() * 2.0 ** (tables.INDEX_BITS - exponent)).add_(0.5).floor_()
        power = exponential(exact.device)[index.clamp_(0, tables.ENTRIES - 1).long()] * float(self.k)
        one = float(self.k << tables.EXP_BITS)
        below = (power - one) * 2.0 ** (exponent - tables.EXP_BITS - SLOPE_BITS)
        return below, (power * 2.0**-tables.EXP_BITS).add_(0.5).floor_()


@dataclass(frozen=True)
class Dropout:
    """Drops a number with probability k / 256 and rescales by 256 / (256 - k) = 2^raised · scale / 256.

    The helpers' shared seed and the report's id determine what is dropped: the same at every helper.
    """

    k: int

    def __post_init__(self) -> None:
        _check_k(self, self.k, 1, 255)

    @property
    def raised(self) -> int:
        """How much the exponent is lowered, so that nothing has to be clamped."""
        return next(bits for bits in range(9) if (256 - self.k) << bits >= 256)

    @property
    def scale(self) -> int:
        """The rest of the factor, in units of 1/256, rounded: 128 … 256, where 256 is 1."""
        wanted = (256 - self.k) << self.raised
        return (2 * 65536 + wanted) // (2 * wanted)

    @property
    def slope_bits(self) -> int:
        """The bits that the slope adds to exponents in the backward pass."""
        return (0 if self.scale == _ONE else SLOPE_BITS) - self.raised

    @property
    def slope_top(self) -> int:
        """The slope of a kept number."""
        return 1 if self.scale == _ONE else self.scale

    def apply(self, numbers: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        """8-bit numbers, each kept or 0, and their slopes. |a| <= 255 and scale <= 256: float32 is exact."""
        left = numbers * kept
        if self.scale != _ONE:
            left = left.mul_(self.scale / _ONE).floor_()
        return left, kept * float(self.slope_top)


ACTIVATIONS: tuple[type[Activation], ...] = (Relu, Identity, LeakyRelu, Elu, Sigmoid, Tanh)


@cache
def exponential(device: torch.device) -> Tensor:
    """The table of e^-x on a device, float64."""
    return torch.tensor(tables.exponential(), dtype=torch.float64, device=device)


@cache
def sigmoid(device: torch.device) -> Tensor:
    """The table of the sigmoid on a device, float64."""
    return torch.tensor(tables.sigmoid(), dtype=torch.float64, device=device)


@cache
def _looked_up(times: int, device: torch.device) -> Tensor:
    """t s - (t - 1) as 8-bit numbers, and t² s (1 - s) in units of 2^-8, both rounded to the nearest."""
    one = 1 << tables.PROBABILITY_BITS
    numbers = [max(-TOP, min(TOP, (times * s - (times - 1) * one + 2048) >> 12)) for s in tables.sigmoid()]
    slopes = [(times * times * s * (one - s) + (1 << 31)) >> 32 for s in tables.sigmoid()]
    return torch.tensor([numbers, slopes], dtype=torch.float32, device=device)
