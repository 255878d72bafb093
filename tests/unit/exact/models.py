"""Small networks and weights that several tests share."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from maskedlark.exact.clip import Clip, Norm
from maskedlark.exact.gradient import Records, gradient, lift
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SquaredError
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import Activation, Elu, Identity, LeakyRelu, Relu, Sigmoid, Tanh
from maskedlark.exact.quantise import Quantised

MODULES: dict[Activation, torch.nn.Module] = {
    Relu(): torch.nn.ReLU(),
    Identity(): torch.nn.Identity(),
    LeakyRelu(26): torch.nn.LeakyReLU(26 / 256),
    Elu(256): torch.nn.ELU(),
    Sigmoid(): torch.nn.Sigmoid(),
    Tanh(): torch.nn.Tanh(),
}


def dense(sizes: Sequence[int], *losses: Loss, activation: Activation | None = None) -> Network:
    """Fully connected, one activation between all layers."""
    layers = [
        Layer(Linear(f"w{k}", f"b{k}", inputs, outputs), (activation or Relu()) if k else None)
        for k, (inputs, outputs) in enumerate(pairwise(sizes))
    ]
    return Network(tuple(layers), losses)


def random_parameters(network: Network, seed: int) -> dict[str, NDArray[np.float64]]:
    """Uniform within ±1/√inputs, as torch starts a linear layer."""
    rng, found = np.random.default_rng(seed), {}
    for layer in network.layers:
        bound = 1 / np.sqrt(layer.linear.inputs)
        found[layer.linear.weight] = rng.uniform(-bound, bound, (layer.linear.outputs, layer.linear.inputs))
        if layer.linear.bias is not None:
            found[layer.linear.bias] = rng.uniform(-bound, bound, layer.linear.outputs)
    return found


def exact_gradient(
    network: Network,
    weights: Quantised,
    features: NDArray[np.uint8],
    labels: Sequence[NDArray[np.int64]],
    clip: Clip,
) -> NDArray[np.float64]:
    """Through the engine on cleartext: the truth is the only candidate, and its mask is 1."""
    candidates = [np.asarray(column, np.int64)[:, None] for column in labels]
    masks = np.ones((len(features), len(candidates)), np.int64)
    return lift(
        network, weights, clip, gradient(network, weights, Records(features, candidates, masks), clip)
    )


def float_gradient(
    network: Network,
    parameters: Mapping[str, NDArray[np.float64]],
    features: NDArray[np.uint8],
    labels: NDArray[np.int64],
    clip: Clip,
) -> NDArray[np.float64]:
    """By autograd, a row for every record, each clipped: for a network of one label."""
    tensors = {name: torch.tensor(value) for name, value in parameters.items()}
    rows = torch.func.vmap(torch.func.grad(partial(_loss, network)), (None, 0, 0))(
        tensors, torch.tensor(features / 256), torch.tensor(labels)
    )
    flat = torch.cat([rows[entry.name].flatten(1) for entry in network.parameters], dim=1)
    lengths = flat.norm(1 if clip.norm is Norm.L1 else 2, dim=1, keepdim=True)
    total: NDArray[np.float64] = (flat * (clip.psi / lengths).clamp(max=1.0)).sum(dim=0).numpy()
    return total


def _loss(
    network: Network, tensors: dict[str, torch.Tensor], a: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    for layer in network.layers:
        if layer.activation is not None:
            a = MODULES[layer.activation](a)
        assert layer.linear.bias is not None
        a = tensors[layer.linear.weight] @ a + tensors[layer.linear.bias]
    match network.losses[0]:
        case BinaryCrossEntropy():
            return functional.binary_cross_entropy_with_logits(a[0], y.double())
        case SquaredError():
            return (a[0] - y) ** 2 / 2
        case _:
            return functional.cross_entropy(a, y)
