"""Maps φ from a network of the caller's own, learnt without labels: its outputs, whitened as far as fits.

Fitted by the ad server to its own rows. Helpers get the network and compute the same integers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from maskedlark.errors import BadArguments
from maskedlark.exact.clip import Norm
from maskedlark.exact.losses import Loss
from maskedlark.exact.moments import Representation
from maskedlark.exact.quantise import quantise
from maskedlark.fitting import maps
from maskedlark.fitting.clusters import Space, linear
from maskedlark.fitting.maps import Bytes, Floats
from maskedlark.fitting.threads import alone
from maskedlark.training import network as networks

_TOP = 100
"""Weights of 8 bits reach 127."""
_FINEST = 10


@dataclass(frozen=True, eq=False)
class NetworkMap:
    """A network, and the linear map from its outputs to φ, which is its last layer."""

    space: Space
    """With that layer."""
    weight: Floats
    """(width, outputs of the network)."""
    bias: Floats
    features: int
    """How many bytes it takes."""
    kind: str = "network"

    @property
    def names(self) -> tuple[str, ...]:
        """What coefficients are of: the network's outputs, which are centred where a Linear makes them."""
        return tuple(f"output {place}" for place in range(self.weight.shape[1]))

    def representation(
        self, losses: Sequence[Loss], bound: float, norm: Norm = Norm.L2, fraction: int = 16
    ) -> Representation:
        """φ as the engine computes it, under a last layer of zeros for these losses."""
        outputs = sum(loss.outputs for loss in losses)
        last = linear(np.zeros((outputs, len(self.bias))), np.zeros(outputs))
        module = nn.Sequential(self.space.module, last)
        network = networks.network(module, losses, self.features)
        parameters = networks.parameters(network, module)
        weights = quantise(network, parameters, self.space.activations, self.space.bits)
        return Representation(network, weights, bound, norm, fraction)

    def named(self, theta: Floats, intercept: Floats) -> tuple[Floats, Floats]:
        """Coefficients of φ (outputs, width) as those of the network's outputs."""
        return theta @ self.weight, intercept + theta @ self.bias


def fit(given: nn.Module, rows: Bytes) -> list[NetworkMap]:
    """Its outputs, whitened; cut to the top components where all do not fit, and then also as they are."""
    space = Space.of(given, rows)
    own, width = sum(each.numel() for each in space.module.parameters()), space.width
    # 16 bits if all of it fits so, else 8.
    bits = 16 if own + width**2 <= maps.MAX_WEIGHTS else 8
    room = maps.MAX_WEIGHTS * 16 // bits - own
    if room < 0:
        raise BadArguments(f"the network has {own:,} weights, and {own + room:,} fit into a request")
    space, made = replace(space, bits=bits), []
    if room >= width:
        made.append(_whitened(space, rows, room))
    if room < width**2:
        made.append(NetworkMap(space, np.eye(width), np.zeros(width), rows.shape[1]))
    return made


def _whitened(space: Space, rows: Bytes, room: int) -> NetworkMap:
    with alone():
        weight, bias, exponent = maps.whitened(space.points(rows).astype(np.float64), maps.RIDGE, room)
    if space.bits == 8:
        # Another scale of φ makes no other model, and brings its weights into range.
        halvings = max(0, int(np.ceil(np.log2(max(np.abs(weight).max(), np.abs(bias).max()) / _TOP))))
        weight, bias = weight * 2.0**-halvings, bias * 2.0**-halvings
        exponent = min(_FINEST, exponent + halvings)
    module = nn.Sequential(space.module, linear(weight, bias))
    longer = replace(space, module=module, activations=(*space.activations, exponent))
    return NetworkMap(longer, weight, bias, rows.shape[1])
