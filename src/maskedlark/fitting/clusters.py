"""Cells of feature space, found in the ad server's own rows without labels, as networks of the exact engine.

A cell is the rows nearest to a centroid z ↦ c·z - ‖c‖²/2: the network's last layer. Helpers get the network,
and the ad server runs the same one on its own rows, so that quantised weights cost nothing. Rows are points
of a space: principal components of the bytes, or what a network says of them. The same rows, seed and machine
make the same cells. Run by the ad server.
"""

import copy
import warnings
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from maskedlark.errors import BadArguments
from maskedlark.exact import cells as exact
from maskedlark.exact import device as devices
from maskedlark.exact.errors import ModelDoesNotFit, WeightsDoNotFit
from maskedlark.exact.forward import Forward
from maskedlark.exact.gradient import BLOCK
from maskedlark.exact.layout import forward_layout
from maskedlark.exact.network import FEATURE_EXPONENT, Network
from maskedlark.exact.quantise import Quantised, calibrate, quantise
from maskedlark.fitting.maps import MAX_WEIGHTS, Bytes, Floats, Map
from maskedlark.fitting.threads import alone
from maskedlark.training import network as networks

Points = NDArray[np.float32]
COMPONENTS = 50
SAMPLE = 100_000
"""Clusters and components are found on so many rows."""
_STEPS = 20
_TOP = 100
"""Weights of 8 bits reach 127."""
_EXACT = 256
"""So many products of bytes add up exactly in float32, in whatever order."""


@dataclass(frozen=True, eq=False)
class Space:
    """A network from bytes to points, and how it is sent: under a layer of centroids."""

    module: nn.Module
    activations: tuple[int, ...]
    """The exponents of its layers' outputs."""
    bits: int = 8

    @classmethod
    def of(cls, given: nn.Module | Map | None, rows: Bytes) -> "Space":
        """The space that a caller gave. Refuses one of another size, and numbers that are not finite."""
        if isinstance(given, Map):
            layers = [each for pair in given.units.layers for each in (linear(*pair), nn.ReLU())]
            exponents = (*[FEATURE_EXPONENT] * len(given.units.layers), given.exponent)
            space = cls(nn.Sequential(*layers, linear(given.weight, given.bias)), exponents, bits=16)
            space._traced(rows.shape[1])
            return space
        if given is None:
            given = components(rows)
        if not isinstance(given, nn.Module):
            raise BadArguments("space= takes a torch module of linear layers, or a map of fitting")
        for name, parameter in given.named_parameters():
            if not bool(parameter.isfinite().all()):
                raise WeightsDoNotFit(f"{name} of the space has numbers that are not finite: train it again")
        cls(given, ())._traced(rows.shape[1])
        some = rows[:: -(-len(rows) // BLOCK)]
        with alone():
            module = _centred(given, some)
            return cls(module, calibrate(*cls(module, ())._traced(rows.shape[1]), some))

    @property
    def width(self) -> int:
        """How many numbers a point has."""
        return self._linears[-1].out_features

    @property
    def most_cells(self) -> int:
        """How many cells fit into a request."""
        own, fitting = sum(each.numel() for each in self.module.parameters()), MAX_WEIGHTS * 16 // self.bits
        if own + self.width >= fitting:
            raise BadArguments(f"the space has {own:,} weights, and {fitting:,} fit into a request")
        return (fitting - own) // (self.width + 1)

    def points(self, rows: Bytes) -> Points:
        """The rows in this space, as helpers compute them."""
        layout = forward_layout(*self.sent(np.zeros((1, self.width))))
        place, unit = devices.ready("cpu"), 2.0 ** -layout.layers[-1].input_exponent
        forward, blocks = Forward(layout, place), [np.empty((0, self.width), np.float32)]
        with devices.exact(place):
            for start in range(0, len(rows), BLOCK):
                block = forward.last_input(devices.tensor(rows[start : start + BLOCK], place))
                blocks.append(block.mul(unit).numpy())
        return np.concatenate(blocks)

    def sent(self, centroids: Floats) -> tuple[Network, Quantised]:
        """The network whose largest output is the cell."""
        network, parameters = self._traced(self._linears[0].in_features, centroids)
        return network, quantise(network, parameters, self.activations, self.bits)

    def _traced(self, features: int, given: Floats | None = None) -> tuple[Network, dict[str, Floats]]:
        """The network under a layer of centroids. Refuses what the engine cannot run."""
        centroids = np.zeros((1, self.width)) if given is None else given
        bias = -(centroids**2).sum(axis=1) / 2
        # Another origin or scale of all outputs makes no other cells, and gives the bias finer steps.
        bias = bias - (bias.min() + bias.max()) / 2
        scale = max(1.0, np.abs(bias).max() / _TOP, np.abs(centroids).max() / _TOP)
        module = nn.Sequential(self.module, linear(centroids / scale, bias / scale))
        network = networks.network(module, (), features)
        return network, networks.parameters(network, module)

    @property
    def _linears(self) -> list[nn.Linear]:
        linears = [each for each in self.module.modules() if isinstance(each, nn.Linear)]
        if not linears:
            raise ModelDoesNotFit("the space", "has no Linear layer")
        return linears


def components(rows: Bytes) -> nn.Linear:
    """Principal components of the bytes."""
    some = rows[:: -(-len(rows) // SAMPLE)]
    mean, square = some.mean(axis=0), np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, len(some), _EXACT):
        block = some[start : start + _EXACT].astype(np.float32)
        square += block.T @ block
    with alone():
        vectors = np.linalg.eigh(square / len(some) - np.outer(mean, mean))[1]
    axes = vectors[:, ::-1][:, :COMPONENTS].T
    return linear(axes, -axes @ mean * 2.0**-FEATURE_EXPONENT)


def _centred(given: nn.Module, some: Bytes) -> nn.Module:
    """Points around 0 that reach 1 or further, where 8 bits are fine: nearest stays nearest.

    Only after a last Linear; an activation's outputs stay as they are.
    """
    module = copy.deepcopy(given).cpu().double().eval()
    last = [each for each in module.modules() if not [*each.children()]][-1]
    if isinstance(last, nn.Linear) and last.bias is not None:
        with torch.no_grad():
            points = module(torch.tensor(some).double() * 2.0**-FEATURE_EXPONENT)
            last.bias.sub_(points.mean(dim=0))
            reach = float((points - points.mean(dim=0)).abs().max())
            for each in (last.weight, last.bias):
                each.div_(min(1.0, reach) or 1.0)
    return module


@dataclass(frozen=True, eq=False)
class Clusters:
    """Cells as helpers compute them, and the caller's rows in them."""

    network: Network
    weights: Quantised
    cells: exact.Cells
    """Of every row."""

    @property
    def count(self) -> int:
        """How many there are."""
        return self.network.layers[-1].linear.outputs

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """How many rows are in each."""
        return np.bincount(self.cells, minlength=self.count)

    @classmethod
    def find(
        cls, space: Space, rows: Bytes, points: Points, count: int, least: float, seed: int
    ) -> "Clusters":
        """So many clusters, without those of fewer than `least` rows: their rows move to the next nearest."""
        some = points[:: -(-len(points) // SAMPLE)]
        # Random starts make cells of more even sizes than k-means++, which begins at outliers.
        with alone(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # Of equal rows: empty clusters are dropped.
            start = seed % 2**32  # All that scikit-learn takes.
            means = KMeans(count, init="random", n_init=1, max_iter=_STEPS, random_state=start).fit(some)
        network, weights = space.sent(means.cluster_centers_.astype(np.float64))
        clusters = cls(network, weights, run(network, weights, rows))
        keep = clusters.sizes >= min(least, clusters.sizes.max())
        return clusters if keep.all() else clusters._without(~keep, rows)

    def _without(self, dropped: NDArray[np.bool_], rows: Bytes) -> "Clusters":
        last, keep = self.network.layers[-1], ~dropped
        inputs, outputs = last.linear.inputs, int(keep.sum())
        hidden, own = np.split(self.weights.values, [-(inputs + 1) * self.count])
        weight, bias = np.split(own, [inputs * self.count])
        values = np.concatenate([hidden, weight.reshape(-1, inputs)[keep].ravel(), bias[keep]])
        layer = replace(last, linear=replace(last.linear, outputs=outputs))
        network = replace(self.network, layers=(*self.network.layers[:-1], layer))
        weights = replace(self.weights, values=values)
        cells, moved = (np.cumsum(keep) - 1)[self.cells], dropped[self.cells]
        cells[moved] = run(network, weights, rows[moved])
        return Clusters(network, weights, cells)


def run(network: Network, weights: Quantised, rows: Bytes) -> exact.Cells:
    """The cell of every row, as helpers compute it."""
    return exact.cells(network, weights, rows, [exact.Largest(0, network.layers[-1].linear.outputs)])[0]


def linear(weight: Floats, bias: Floats) -> nn.Linear:
    """A layer of these numbers."""
    made = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
    with torch.no_grad():
        made.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight)))
        made.bias.copy_(torch.from_numpy(np.ascontiguousarray(bias)))
    return made
