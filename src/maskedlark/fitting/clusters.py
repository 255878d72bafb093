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
from threadpoolctl import threadpool_limits
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
    """A linear map of the bytes, or a network, and how its weights are sent."""

    module: nn.Module
    activations: tuple[int, ...] | None = None
    """Exponents; None: from the rows."""
    bits: int = 8
    collapsed: bool = False
    """Whether the module is one linear layer that the centroids' layer takes in: it is not sent."""

    @classmethod
    def components(cls, rows: Bytes) -> "Space":
        """Principal components of the bytes."""
        some = rows[:: -(-len(rows) // SAMPLE)]
        mean, square = some.mean(axis=0), np.zeros((rows.shape[1], rows.shape[1]))
        for start in range(0, len(some), _EXACT):
            block = some[start : start + _EXACT].astype(np.float32)
            square += block.T @ block
        with _alone():
            vectors = np.linalg.eigh(square / len(some) - np.outer(mean, mean))[1]
        axes = vectors[:, ::-1][:, :COMPONENTS].T
        scale = 2.0**-FEATURE_EXPONENT
        return cls(_linear(axes, -axes @ mean * scale), collapsed=True)

    @classmethod
    def of(cls, given: nn.Module | Map | None, rows: Bytes) -> "Space":
        """The space that a caller gave. Refuses one of another size, and numbers that are not finite."""
        if given is None:
            return cls.components(rows)
        if isinstance(given, Map):
            layers = [each for pair in given.units.layers for each in (_linear(*pair), nn.ReLU())]
            exponents = (*[FEATURE_EXPONENT] * len(given.units.layers), given.exponent)
            module = nn.Sequential(*layers, _linear(given.weight, given.bias))
            return cls(module, exponents, bits=16)._checked(rows)
        if not isinstance(given, nn.Module):
            raise BadArguments("space= takes a torch module of linear layers, or a map of fitting")
        return cls(given)._checked(rows)._centred(rows)

    def _checked(self, rows: Bytes) -> "Space":
        for name, parameter in self.module.named_parameters():
            if not bool(parameter.isfinite().all()):
                raise WeightsDoNotFit(
                    f"{name} of the space holds a number that is not finite: train it again"
                )
        networks.network(self._under(1, None), (), rows.shape[1])
        return self

    def _centred(self, rows: Bytes) -> "Space":
        """Points around 0, where their 8 bits are finest: distances stay. Only after a last Linear."""
        module = copy.deepcopy(self.module).cpu().double().eval()
        last = [each for each in module.modules() if not [*each.children()]][-1]
        if isinstance(last, nn.Linear) and last.bias is not None:
            some = rows[:: -(-len(rows) // BLOCK)]
            with torch.no_grad():
                last.bias -= module(torch.tensor(some).double() * 2.0**-FEATURE_EXPONENT).mean(dim=0)
        return replace(self, module=module)

    @property
    def width(self) -> int:
        """How many numbers a point has."""
        linear = [each for each in self.module.modules() if isinstance(each, nn.Linear)]
        if not linear:
            raise ModelDoesNotFit("the space", "has no Linear layer")
        return linear[-1].out_features

    @property
    def inputs(self) -> int:
        """How many numbers the centroids' layer takes."""
        return self.module.in_features if self.collapsed else self.width  # type: ignore[return-value]

    def most_cells(self) -> int:
        """How many cells fit into a request."""
        hidden = 0 if self.collapsed else sum(each.numel() for each in self.module.parameters())
        room = MAX_WEIGHTS * 16 // self.bits - hidden
        if room <= self.inputs:
            raise BadArguments(
                f"the space has {hidden:,} weights, and {MAX_WEIGHTS * 16 // self.bits:,} fit into a request"
            )
        return room // (self.inputs + 1)

    def points(self, rows: Bytes) -> Points:
        """The rows in this space; of a network as helpers compute them, up to its scale."""
        blocks = [np.empty((0, self.width), np.float32)]
        if self.collapsed:
            weight, bias = (each.detach().float().numpy() for each in self.module.parameters())
            for start in range(0, len(rows), BLOCK):
                some = rows[start : start + BLOCK].astype(np.float32)
                with _alone():
                    blocks.append(some @ (weight.T * np.float32(2.0**-FEATURE_EXPONENT)) + bias)
            return np.concatenate(blocks)
        layout = forward_layout(*self.sent(np.zeros((1, self.width)), rows))
        place, unit = devices.ready("cpu"), 2.0 ** -layout.layers[-1].input_exponent
        forward = Forward(layout, place)
        with devices.exact(place):
            for start in range(0, len(rows), BLOCK):
                block = forward.last_input(devices.tensor(rows[start : start + BLOCK], place))
                blocks.append(block.mul(unit).numpy())
        return np.concatenate(blocks)

    def sent(self, centroids: Floats, rows: Bytes) -> tuple[Network, Quantised]:
        """The network whose largest output is the cell."""
        module = self._under(len(centroids), centroids)
        network = networks.network(module, (), rows.shape[1])
        named, some = networks.parameters(network, module), rows[:: -(-len(rows) // BLOCK)]
        activations = calibrate(network, named, some) if self.activations is None else self.activations
        return network, quantise(network, named, activations, self.bits)

    def _under(self, cells: int, centroids: Floats | None) -> nn.Module:
        """The space's network under the centroids' layer."""
        if centroids is None:
            return nn.Sequential(self.module, nn.Linear(self.width, cells))
        weight, bias = centroids, -(centroids**2).sum(axis=1) / 2
        if self.collapsed:
            axes, offset = (each.detach().double().numpy() for each in self.module.parameters())
            weight, bias = weight @ axes, bias + weight @ offset
        # Another origin or scale of all outputs makes no other cells, and gives the bias finer steps.
        bias = bias - (bias.min() + bias.max()) / 2
        scale = max(1.0, np.abs(bias).max() / _TOP, np.abs(weight).max() / _TOP)
        last = _linear(weight / scale, bias / scale)
        return last if self.collapsed else nn.Sequential(self.module, last)


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
        with _alone(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # Of equal rows: empty clusters are dropped.
            means = KMeans(count, init="random", n_init=1, max_iter=_STEPS, random_state=seed).fit(some)
        network, weights = space.sent(means.cluster_centers_.astype(np.float64), rows)
        found = cls(network, weights, run(network, weights, rows))
        keep = found.sizes >= min(least, found.sizes.max())
        return found if keep.all() else found._without(~keep, rows)

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


def _alone() -> threadpool_limits:
    """On one thread: the order of sums must not make another question."""
    return threadpool_limits(1)


def _linear(weight: Floats, bias: Floats) -> nn.Linear:
    made = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
    with torch.no_grad():
        made.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight)))
        made.bias.copy_(torch.from_numpy(np.ascontiguousarray(bias)))
    return made
