"""How long a record's gradient can be, from public rows and a network, without labels: how to choose ψ.

The bound ψ is declared before anybody reports. If it is too small, rare labels are cut more than common
ones, which pulls probabilities away from them; noise grows in proportion to it. Half of the rows may be cut
in the worst case: in tests that left mean predictions within a few percent of the truth, and less noise than
a bound that cuts nobody. Run by the ad server, in floats.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from maskedlark.exact.clip import Norm
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy
from maskedlark.exact.network import FEATURE_EXPONENT, Network
from maskedlark.exact.quantise import FloatArrays
from maskedlark.training import network as networks
from maskedlark.training.public_rows import Bytes

QUANTILE = 0.5
_DIGITS = 2
_ROWS, _VALUES = 2000, 16
"""The most rows and label values that are looked at."""
Floats = NDArray[np.float64]


def gradient_bound(
    model: nn.Module,
    loss: str | Sequence[str],
    rows: Bytes,
    *,
    values: Sequence[float] = (0, 1),
    norm: str = "l2",
    quantile: float = QUANTILE,
) -> float:
    """ψ for this network at its present weights: `gradient_bound` of the declared model, to two digits.

    `rows`: bytes (n, features) as the encoder makes them. `values`: that a label of loss mse can have.
    `norm`: l2 for Gaussian noise, l1 for Laplace.
    """
    network = networks.network(model, networks.losses(loss, model), rows.shape[1])
    spaces = [values] * len(network.losses)
    return typical(network, networks.parameters(network, model), rows, spaces, Norm(norm), quantile)


def typical(
    network: Network,
    parameters: FloatArrays,
    rows: Bytes,
    values: Sequence[Sequence[float]],
    norm: Norm,
    quantile: float = QUANTILE,
) -> float:
    """The quantile of the longest gradients; several labels share a bound, so each gets its part of it."""
    lengths = [
        np.quantile(
            _lengths(network, parameters, rows[:: -(-len(rows) // _ROWS)], place, own, norm), quantile
        )
        for place, own in enumerate(values)
    ]
    return float(f"{len(lengths) * max(lengths):.{_DIGITS}g}")


def _lengths(
    network: Network, parameters: FloatArrays, rows: Bytes, label: int, values: Sequence[float], norm: Norm
) -> Floats:
    """The norm of the gradient of every row and candidate label."""
    inputs, sums = _forward(network, parameters, rows)
    outputs = sums[-1][:, network.columns[label]]
    norms = []
    for error in _errors(network.losses[label], outputs.detach(), values):
        back = torch.autograd.grad((outputs * error).sum(), sums, retain_graph=True)
        powers = [
            norm.power(own) * (norm.power(given) + (layer.linear.bias is not None))
            for own, given, layer in zip(back, inputs, network.layers, strict=True)
        ]
        norms.append(norm.root(torch.stack(powers).sum(dim=0)))
    return torch.stack(norms).numpy()


def _errors(loss: Loss, outputs: Tensor, values: Sequence[float]) -> Iterator[Tensor]:
    """Of every candidate label, its error at the outputs.

    A class counts as if it were given no chance, as a rare one is once the model has learnt that it is rare.
    """
    if isinstance(loss, BinaryCrossEntropy):
        yield torch.ones_like(outputs)
    elif isinstance(loss, SoftmaxCrossEntropy):
        chance = torch.softmax(outputs, dim=1)
        for one in torch.eye(loss.classes, dtype=torch.float64):
            yield (chance - one) / (1 - chance @ one)[:, None].clamp(min=1e-6)
    else:
        for value in values[:: -(-len(values) // _VALUES)]:
            yield outputs - float(value)


def _forward(network: Network, parameters: FloatArrays, rows: Bytes) -> tuple[list[Tensor], list[Tensor]]:
    """Every layer's inputs and sums, without dropout."""
    numbers = torch.from_numpy(rows.astype(np.float64)) / 2**FEATURE_EXPONENT
    inputs, sums = list[Tensor](), list[Tensor]()
    for layer in network.layers:
        if layer.activation is not None:
            numbers = layer.activation.in_floats(sums[-1])
        weight = torch.tensor(parameters[layer.linear.weight], dtype=torch.float64)
        made = numbers @ (weight if layer.linear.transposed else weight.T)
        if layer.linear.bias is not None:
            made = made + torch.tensor(parameters[layer.linear.bias], dtype=torch.float64)
        inputs.append(numbers.detach())
        sums.append(made if sums else made.requires_grad_())
    return inputs, sums
