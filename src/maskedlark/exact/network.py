"""The engine's network: linear layers, the operations between them, and one loss per label.

It holds no weights. The ad server sends it once per session; each step then sends only weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod

from maskedlark.exact.errors import ModelDoesNotFit
from maskedlark.exact.losses import Loss
from maskedlark.exact.operations import Activation, Dropout

FEATURE_EXPONENT = 8
"""A feature byte represents byte / 256."""


@dataclass(frozen=True)
class Linear:
    """A Gemm, or a MatMul with its Add: z = W a + b. Names are those of the model's parameters."""

    weight: str
    bias: str | None
    inputs: int
    outputs: int
    transposed: bool = False
    """True where the model stores the weight as (inputs, outputs), as a MatMul does."""


@dataclass(frozen=True)
class Layer:
    """One linear layer, and the activation and dropout that make its 8-bit input from the layer before."""

    linear: Linear
    activation: Activation | None = None
    """Between this layer and the one before; None for the first, whose input is the features."""
    dropout: Dropout | None = None


@dataclass(frozen=True)
class Parameter:
    """A named tensor's position in the flat arrays that are sent."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def place(self) -> slice:
        """Its slice of the flat array."""
        return slice(self.start, self.start + prod(self.shape))


@dataclass(frozen=True)
class Network:
    """Layers, first to last, and one loss per label; labels divide the outputs in order.

    Without a loss the outputs are of no label: then there are no gradients.
    """

    layers: tuple[Layer, ...]
    losses: tuple[Loss, ...]

    def __post_init__(self) -> None:
        _check_chain(self.layers)
        outputs = sum(loss.outputs for loss in self.losses)
        if self.losses and outputs != self.layers[-1].linear.outputs:
            raise ModelDoesNotFit(
                self.layers[-1].linear.weight,
                f"gives {self.layers[-1].linear.outputs} outputs, the losses take {outputs}; make them equal",
            )

    @property
    def features(self) -> int:
        """How many feature bytes a record has."""
        return self.layers[0].linear.inputs

    @property
    def has_dropout(self) -> bool:
        """Whether gradients need a seed and the report ids."""
        return any(layer.dropout for layer in self.layers)

    @cached_property
    def columns(self) -> tuple[slice, ...]:
        """Each label's outputs."""
        ends = accumulate((loss.outputs for loss in self.losses), initial=0)
        return tuple(slice(start, end) for start, end in pairwise(ends))

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every tensor in the flat order: layer by layer, weight before bias."""
        tensors = [tensor for layer in self.layers for tensor in _tensors(layer.linear)]
        starts = accumulate((prod(shape) for _, shape in tensors), initial=0)
        return tuple(Parameter(*tensor, start) for tensor, start in zip(tensors, starts, strict=False))

    @property
    def size(self) -> int:
        """How many numbers a gradient has."""
        return sum(prod(entry.shape) for entry in self.parameters)


def _tensors(linear: Linear) -> list[tuple[str, tuple[int, ...]]]:
    shape = (linear.inputs, linear.outputs) if linear.transposed else (linear.outputs, linear.inputs)
    bias = [] if linear.bias is None else [(linear.bias, (linear.outputs,))]
    return [(linear.weight, shape), *bias]


def _check_chain(layers: Sequence[Layer]) -> None:
    """Refuse layers whose sizes do not match, and tensors that are used twice."""
    if not layers:
        raise ModelDoesNotFit("the model", "has no linear layer; give it at least one Gemm or MatMul")
    if layers[0].activation is not None:
        raise ModelDoesNotFit(layers[0].linear.weight, "an activation on the features; features are bytes")
    for below, above in pairwise(layers):
        if above.activation is None or above.linear.inputs != below.linear.outputs:
            raise ModelDoesNotFit(
                above.linear.weight,
                f"takes {above.linear.inputs} numbers through {above.activation}, the layer before it gives "
                f"{below.linear.outputs}; make them equal, with an activation between",
            )
    names = [name for layer in layers for name, _ in _tensors(layer.linear)]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ModelDoesNotFit(twice.pop(), "is used by two layers; give each layer its own tensor")
