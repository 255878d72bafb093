"""A network on the wire: layers, losses and clipping, without weights. Made by the ad server.

Helpers build the network from these few settings, so they need not trust a model file.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from maskedlark.core.declared import MAX_FEATURES, MAX_NAMES
from maskedlark.core.field import FieldArray
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Records, TrainingRecords
from maskedlark.dp.mechanisms import Kind
from maskedlark.errors import BadArguments
from maskedlark.exact import VERSION as EXACT_VERSION
from maskedlark.exact.clip import Clip, Norm
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy, SquaredError
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import ACTIVATIONS, Activation, Dropout, Elu, LeakyRelu
from maskedlark.exact.quantise import Quantised
from maskedlark.functions.function import AnyFunction, Arguments, Partial, Query, Table, parse
from maskedlark.parameters.document import Document
from maskedlark.wire.message import Settings

GRADIENT = "gradient"
"""The function whose noise sets the norm that gradients are clipped in."""
MAX_LAYERS = 64
MAX_PARAMETERS = 1 << 22
"""The most numbers of a gradient; every step sends eight bytes each."""
NORMS: dict[Kind, Norm] = {"laplace": Norm.L1, "gaussian": Norm.L2}
"""Laplace noise covers a bound in L1, Gaussian noise one in L2."""
_ACTIVATIONS: dict[str, Callable[..., Activation]] = {kind.name: kind for kind in ACTIVATIONS}
_Slope = Annotated[int, Field(ge=0, le=1024)]


class DescribedLayer(Settings):
    """A linear layer, and the operations between it and the layer before."""

    outputs: Annotated[int, Field(ge=1, le=MAX_FEATURES)]
    bias: bool = True
    transposed: bool = False
    """Whether the weight is (inputs, outputs); sets the order of the gradient's numbers."""
    activation: str | None = None
    """The activation before this layer, by name; None for the first."""
    slope: _Slope | None = None
    """The slope of leaky_relu and elu, in units of 1/256."""
    dropout: Annotated[int, Field(ge=1, le=255)] | None = None
    """The probability that an input is dropped, in units of 1/256."""

    @model_validator(mode="after")
    def _fitting(self) -> "DescribedLayer":
        if self.activation not in (None, *_ACTIVATIONS):
            raise ValueError(f"an activation is one of {', '.join(_ACTIVATIONS)}")
        if (self.activation in ("leaky_relu", "elu")) != (self.slope is not None):
            raise ValueError("leaky_relu and elu have a slope, in units of 1/256; nothing else has")
        return self

    def layer(self, number: int, inputs: int) -> Layer:
        """Converted to the engine's type."""
        bias = f"b{number}" if self.bias else None
        linear = Linear(f"w{number}", bias, inputs, self.outputs, self.transposed)
        slope = () if self.slope is None else (self.slope,)
        activation = None if self.activation is None else _ACTIVATIONS[self.activation](*slope)
        return Layer(linear, activation, None if self.dropout is None else Dropout(self.dropout))


class DescribedLoss(Settings):
    """The loss of one label."""

    kind: Literal["bce", "mse", "softmax"]
    classes: Annotated[int, Field(ge=2, le=1 << 12)] | None = None

    @model_validator(mode="after")
    def _fitting(self) -> "DescribedLoss":
        if (self.kind == "softmax") != (self.classes is not None):
            raise ValueError("softmax has classes; no other loss has")
        return self

    def loss(self) -> Loss:
        """Converted to the engine's type."""
        if self.classes is not None:
            return SoftmaxCrossEntropy(self.classes)
        return BinaryCrossEntropy() if self.kind == "bce" else SquaredError()


class DescribedModel(Settings):
    """A network, and the clipping settings besides the declared bound."""

    features: Annotated[int, Field(ge=1, le=MAX_FEATURES)]
    layers: Annotated[tuple[DescribedLayer, ...], Field(min_length=1, max_length=MAX_LAYERS)]
    losses: Annotated[tuple[DescribedLoss, ...], Field(max_length=MAX_NAMES)] = ()
    """One per label; none where outputs are not of labels, but divide feature space into cells."""
    fraction: Annotated[int, Field(ge=1, le=30)] = 20
    """Fractional bits of a clipped error."""
    depth: Annotated[int, Field(ge=0, le=MAX_LAYERS)] = 0
    """For softmax: how many layers a candidate's error passes in the clear before it is masked."""

    @model_validator(mode="after")
    def _bounded(self) -> "DescribedModel":
        size = sum((inputs + layer.bias) * layer.outputs for inputs, layer in self._with_inputs())
        if size > MAX_PARAMETERS:
            raise ValueError(f"a model has at most {MAX_PARAMETERS} parameters, not {size}: make it smaller")
        return self

    @cached_property
    def network(self) -> Network:
        """Converted to the engine's type. Raises if the parts do not fit together."""
        layers = [layer.layer(number, inputs) for number, (inputs, layer) in enumerate(self._with_inputs())]
        return Network(tuple(layers), tuple(loss.loss() for loss in self.losses))

    def _with_inputs(self) -> Iterator[tuple[int, DescribedLayer]]:
        """Every layer with its number of inputs, which is the outputs of the one before."""
        return zip((self.features, *(layer.outputs for layer in self.layers)), self.layers, strict=False)

    def check(self, document: Document, tag: str) -> None:
        """Refuse a network that does not match this model's records and labels."""
        self.check_features(document, tag)
        declared = document.trained(tag)
        if len(declared.labels) != len(self.losses):
            raise BadArguments(
                f"{tag} has {len(declared.labels)} labels, the network {len(self.losses)} losses"
            )
        for label, loss in zip(declared.labels, self.network.losses, strict=True):
            values = label.space().values
            low, high = loss.label_range
            if not low <= min(values) <= max(values) <= high:
                raise BadArguments(f"{loss} takes labels {low} … {high}; {tag} declares {label.kind} ones")
            if isinstance(loss, SoftmaxCrossEntropy) and high > max(values):
                raise BadArguments(
                    f"softmax has an output per class, {loss.classes} here, and {tag} declares "
                    f"{label.kind} labels of {min(values):g} … {max(values):g}: give the last layer "
                    f"{max(values) + 1:g} outputs"
                )

    def check_features(self, document: Document, tag: str) -> None:
        """Refuse a network that does not match this model's records."""
        features = byte_features(document, tag)
        if features != self.features:
            raise BadArguments(f"{tag} has {features} features, the network takes {self.features}")


class ModelFunction(AnyFunction):
    """A function of a model and its training records."""

    purpose = Purpose.TRAIN

    @property
    def engine(self) -> str:
        """Includes the exact engine's version."""
        return f"{super().engine}, exact {EXACT_VERSION}"


@dataclass(frozen=True)
class ModelQuery(Query):
    """A query of one model at these weights: one row of vectors, each a sum over its records."""

    tag: str = dataclass_field()
    network: Network
    weights: Quantised

    def over(self, records: Records, device: str = "cpu") -> Partial:
        """One row; `release` checks k."""
        assert isinstance(records, TrainingRecords), "a model's records are reports to train"
        shares = tuple(share[None, :] for share in self.share_of(records, device))
        return [Table([()], np.array([len(records)]), shares)]

    @abstractmethod
    def share_of(self, records: TrainingRecords, device: str = "cpu") -> list[FieldArray]:
        """A helper's share of every vector, over the records of one shard."""


def byte_features(document: Document, tag: str) -> int:
    """The inputs of a network over this model's records. Refuses columns that the engine does not take."""
    declared = document.trained(tag)
    if not declared.only_bytes:
        raise BadArguments(f"{tag} has categories, and the engine computes on byte features so far")
    return declared.features


def clip(document: Document, tag: str, fraction: int, depth: int) -> Clip:
    """The declared bound, in the norm that the declared noise covers."""
    norm = NORMS[document.mechanism(GRADIENT).kind]
    return Clip(document.trained(tag).gradient_bound, norm, fraction, depth)


def decode(arguments: Arguments) -> DescribedModel:
    """Parse a description. Run by helpers."""
    described = parse(DescribedModel, arguments)
    described.network  # noqa: B018 - refuses parts that do not fit together
    return described


def describe(network: Network, fraction: int = 20, depth: int = 0) -> DescribedModel:
    """Describe an engine network for the wire. Run by the ad server."""
    return DescribedModel(
        features=network.features,
        layers=tuple(map(_described_layer, network.layers)),
        losses=tuple(map(_described_loss, network.losses)),
        fraction=fraction,
        depth=depth,
    )


def _described_layer(layer: Layer) -> DescribedLayer:
    linear, activation = layer.linear, layer.activation
    return DescribedLayer(
        outputs=linear.outputs,
        bias=linear.bias is not None,
        transposed=linear.transposed,
        activation=None if activation is None else activation.name,
        slope=activation.k if isinstance(activation, LeakyRelu | Elu) else None,
        dropout=layer.dropout.k if layer.dropout else None,
    )


def _described_loss(loss: Loss) -> DescribedLoss:
    if isinstance(loss, SoftmaxCrossEntropy):
        return DescribedLoss(kind="softmax", classes=loss.classes)
    return DescribedLoss(kind="bce" if isinstance(loss, BinaryCrossEntropy) else "mse")
