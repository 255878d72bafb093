"""Small networks and weights that several tests share."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from maskedlark.exact.losses import Loss
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import Activation, Relu


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
