"""The same gradient on cleartext: exact, with the engine itself, and in plain floats. For comparison.

Run by whoever has the labels, in experiments and tests; no helper ever does. Both give the sum of clipped
gradients in reals, flat, in the order of `Network.parameters`, from the same arguments.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskedlark.core import field
from maskedlark.exact import device as devices
from maskedlark.exact.clip import Clip, Norm
from maskedlark.exact.gradient import Records, gradient
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SquaredError
from maskedlark.exact.network import FEATURE_EXPONENT, Network
from maskedlark.exact.operations import Activation, Elu, Identity, LeakyRelu, Relu, Sigmoid, Tanh
from maskedlark.exact.plan import plan
from maskedlark.exact.quantise import Quantised, activation_exponent

Labels = Sequence[NDArray[np.int64]]
"""One array a label: (n,)."""
Floats = Mapping[str, NDArray[np.floating]]


def exact_gradient(
    network: Network, weights: Quantised, features: NDArray[np.uint8], labels: Labels, clip: Clip
) -> NDArray[np.float64]:
    """Through the engine: the truth is the only candidate, and its mask is 1."""
    candidates = [np.asarray(column, np.int64)[:, None] for column in labels]
    masks = np.ones((len(features), len(candidates)), np.int64)
    share = gradient(network, weights, Records(features, candidates, masks), clip)
    return lift(network, weights, clip, share)


def lift(network: Network, weights: Quantised, clip: Clip, total: field.FieldArray) -> NDArray[np.float64]:
    """The sum of all helpers' shares as a gradient in reals. Run by the ad server."""
    return field.to_signed(total).astype(np.float64) * 2.0 ** -plan(network, weights, clip).exponent


def float_gradient(
    network: Network, parameters: Floats, features: NDArray[np.uint8], labels: Labels, clip: Clip
) -> NDArray[np.float64]:
    """In float32, with one clip by the layer formula and no gradient a record; one row a label and record."""
    with torch.inference_mode():
        weights = [_weights(network, parameters, index) for index in range(len(network.layers))]
        trace = _float_forward(network, weights, _tensor(features))
        parts = [
            _float_label(network, weights, trace, index, _tensor(np.asarray(column)), clip)
            for index, column in enumerate(labels)
        ]
        return torch.stack(parts).sum(dim=0).double().numpy()


def float_outputs(network: Network, parameters: Floats, features: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The output's sums in float32, without dropout."""
    with torch.inference_mode():
        weights = [_weights(network, parameters, index) for index in range(len(network.layers))]
        return _float_forward(network, weights, _tensor(features))[2].numpy()


def stand_in(features: int) -> NDArray[np.uint8]:
    """Rows of equal bytes, to calibrate with where there is no public sample of features."""
    return np.repeat(np.array([[0], [85], [170], [255]], np.uint8), features, axis=1)


def calibrate(
    network: Network, parameters: Floats, features: NDArray[np.uint8], most: int = 10
) -> tuple[int, ...]:
    """The activations' exponents for these weights, from a sample of features. Run by the ad server."""
    with torch.inference_mode():
        weights = [_weights(network, parameters, index) for index in range(len(network.layers))]
        inputs, _, _ = _float_forward(network, weights, _tensor(features))
    found = []
    for layer, numbers in zip(network.layers[1:], inputs[1:], strict=True):
        assert layer.activation is not None
        raised = layer.dropout.raised if layer.dropout else 0
        chosen = activation_exponent(float(numbers.abs().max()) if len(features) else 1.0, most)
        fixed = layer.activation.fixed_exponent
        found.append(max(chosen, raised) if fixed is None else fixed)
    return tuple(found)


_Weights = tuple[Tensor, Tensor]
_Trace = tuple[list[Tensor], list[Tensor], Tensor]


def _tensor(array: NDArray[Any]) -> Tensor:
    return devices.tensor(array, torch.device("cpu"))


def _weights(network: Network, parameters: Floats, index: int) -> _Weights:
    linear = network.layers[index].linear
    weight = _tensor(np.asarray(parameters[linear.weight], np.float32))
    bias = np.zeros(linear.outputs) if linear.bias is None else parameters[linear.bias]
    return weight.T if linear.transposed else weight, _tensor(np.asarray(bias, np.float32))


def _float_forward(network: Network, weights: Sequence[_Weights], features: Tensor) -> _Trace:
    """Without dropout."""
    numbers = features.float() * 2.0**-FEATURE_EXPONENT
    inputs, slopes = [numbers], []
    for (weight, bias), above in zip(weights, (*network.layers[1:], None), strict=True):
        sums = torch.addmm(bias, numbers, weight.T)
        if above is not None and above.activation is not None:
            numbers, slope = _FLOAT[type(above.activation)](above.activation, sums)
            inputs.append(numbers)
            slopes.append(slope)
    return inputs, slopes, sums


def _float_label(
    network: Network, weights: Sequence[_Weights], trace: _Trace, index: int, label: Tensor, clip: Clip
) -> Tensor:
    inputs, slopes, sums = trace
    columns, top = network.columns[index], len(weights) - 1
    errors = [_float_error(network.losses[index], sums[:, columns], label)]
    for layer in range(top, 0, -1):
        weight = weights[layer][0][columns] if layer == top else weights[layer][0]
        errors.insert(0, (errors[0] @ weight).mul_(slopes[layer - 1]))
    length = sum(
        clip.norm.power(error) * (clip.norm.power(numbers) + float(layer.linear.bias is not None))
        for layer, error, numbers in zip(network.layers, errors, inputs, strict=True)
    )
    assert isinstance(length, Tensor)
    length = length if clip.norm is Norm.L1 else length.sqrt()
    factor = (clip.share(len(network.losses)) / length).clamp_(max=1.0).float()[:, None]
    return torch.cat(_float_rows(network, [error * factor for error in errors], inputs, columns))


def _float_rows(
    network: Network, errors: Sequence[Tensor], inputs: Sequence[Tensor], columns: slice
) -> list[Tensor]:
    found = []
    for place, (layer, error, numbers) in enumerate(zip(network.layers, errors, inputs, strict=True)):
        own = error
        if place == len(errors) - 1:
            own = torch.zeros((len(error), layer.linear.outputs))
            own[:, columns] = error
        found.append((numbers.T @ own if layer.linear.transposed else own.T @ numbers).flatten())
        found.extend([] if layer.linear.bias is None else [own.sum(dim=0)])
    return found


def _float_error(loss: Loss, sums: Tensor, label: Tensor) -> Tensor:
    if isinstance(loss, BinaryCrossEntropy):
        return torch.sigmoid(sums) - label[:, None]
    if isinstance(loss, SquaredError):
        return sums - label[:, None]
    error = torch.softmax(sums, dim=1)
    error[torch.arange(len(label)), label] -= 1.0
    return error


def _leaky(k: float, z: Tensor) -> tuple[Tensor, Tensor]:
    return torch.where(z > 0, z, z * k), torch.where(z > 0, 1.0, k)


def _elu(k: float, z: Tensor) -> tuple[Tensor, Tensor]:
    power = z.clamp(max=0.0).exp() * k
    return torch.where(z > 0, z, power - k), torch.where(z > 0, torch.ones_like(z), power)


def _smooth(value: Tensor, slope: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    return value, slope(value)


_FLOAT: dict[type[Activation], Callable[..., tuple[Tensor, Tensor]]] = {
    Relu: lambda _, z: (z.clamp(min=0.0), (z > 0).float()),
    Identity: lambda _, z: (z, torch.ones_like(z)),
    LeakyRelu: lambda own, z: _leaky(own.k / 256, z),
    Elu: lambda own, z: _elu(own.k / 256, z),
    Sigmoid: lambda _, z: _smooth(torch.sigmoid(z), lambda s: s * (1 - s)),
    Tanh: lambda _, z: _smooth(torch.tanh(z), lambda s: 1 - s * s),
}
"""The operations in floats, by the vendor's functions: close to the integer ones, not equal."""
