"""Moments Σ φ(x) t(y): all that labels do in a linear model, with rows clipped to a bound, and its proof.

φ(x) is the input of a network's last layer: 8-bit integers of exponent e, the features themselves if it has
one layer, and a constant 1 if that layer has a bias. t(y) is the label's number, or its one-hot.

Proof of the bound. A row is f · φ · t with an integer factor 0 <= f <= R 2^(e + F) / N and N >= ‖φ‖, so
‖f φ‖ <= R 2^(e + F) in the same norm, whatever was rounded: N is the root of an exact integer, one of three
float64 operations with relative errors of at most 2^-53 each, which SAFETY covers, and f is rounded down.

Helpers run `share`. The ad server runs `rows` on its own rows: the factors are integers that it knows to the
bit, so clipping is a known weight f 2^-F of each row, and biases nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskedlark.core.field import FieldArray
from maskedlark.exact import device as devices
from maskedlark.exact import digits, products
from maskedlark.exact.clip import SAFETY, Norm
from maskedlark.exact.errors import RecordsDoNotFit
from maskedlark.exact.forward import Forward
from maskedlark.exact.gradient import check_features
from maskedlark.exact.layout import MAX_BITS, ForwardLayout, forward_layout
from maskedlark.exact.network import Network
from maskedlark.exact.operations import TOP
from maskedlark.exact.products import Limbs
from maskedlark.exact.quantise import Quantised

BLOCK = 2048
"""Records per block on a CPU: few enough that their features stay in a core's cache."""
_AT_ONCE = 1 << 24
"""Numbers of a block in memory."""
_EXACT_SUM = 256
"""So many squares of 8-bit numbers add up below 2^24, which float32 holds exactly."""


class Rows(NamedTuple):
    """φ as integers (n, width), with the constant if there is one, and the clip factors (n,)."""

    numbers: NDArray[np.int32]
    factors: NDArray[np.int64]


@dataclass(frozen=True)
class Representation:
    """φ of a network: everything before its last layer, whose weights are not used. Clipped to `bound`."""

    network: Network
    weights: Quantised
    bound: float
    """R: of φ's norm, in reals."""
    norm: Norm = Norm.L2
    fraction: int = 16
    """F: the bits of a clip factor; a row that is not clipped has 2^F."""

    def __post_init__(self) -> None:
        if not (1 <= self.fraction <= MAX_BITS and 1 <= self.top < 2.0**52):
            raise RecordsDoNotFit(
                f"a clip is R > 0 such that R times 2^(exponent + fraction) is 1 to 2^52, with a fraction of "
                f"1 to {MAX_BITS} bits"
            )

    @property
    def width(self) -> int:
        """How many numbers φ has, with the constant."""
        last = self.network.layers[-1].linear
        return last.inputs + (last.bias is not None)

    @cached_property
    def exponent(self) -> int:
        """φ is its integers times 2^-exponent."""
        return self._layout.layers[-1].input_exponent

    @property
    def unit(self) -> float:
        """Moments are their integers times this."""
        return 2.0 ** -(self.exponent + self.fraction)

    @property
    def top(self) -> float:
        """The bound on the norm of f · φ, in integers."""
        return self.bound * 2.0 ** (self.exponent + self.fraction)

    def rows(self, features: NDArray[np.uint8]) -> Rows:
        """φ and the clip factor of every row. Run by the ad server."""
        check_features(self.network, features)
        place, blocks = devices.ready("cpu"), [Rows(np.empty((0, self.width), np.int32), np.empty(0, int))]
        step = self._block(place)
        with devices.exact(place):
            represent = self._on(place)
            for start in range(0, len(features), step):
                numbers = represent(devices.tensor(features[start : start + step], place))
                whole = np.full((len(numbers), self.width), 1 << self.exponent, np.int32)
                whole[:, : numbers.shape[1]] = numbers.numpy()
                blocks.append(Rows(whole, self._factors(numbers).long().numpy()))
        return Rows(*map(np.concatenate, zip(*blocks, strict=True)))

    def share(
        self,
        features: NDArray[np.uint8],
        weighted: Callable[[slice], FieldArray],
        outputs: int,
        *,
        device: str = "cpu",
    ) -> FieldArray:
        """A helper's share of Σ f φ t(y): (outputs, width).

        `weighted` of a block of records: its share of t(y), (n, outputs).
        """
        check_features(self.network, features)
        place = devices.ready(device)
        answer = torch.zeros((outputs, self.width), dtype=torch.int64, device=place)
        step = self._block(place)
        with devices.exact(place):
            represent = self._on(place)
            for start in range(0, len(features), step):
                block = slice(start, start + step)
                numbers = represent(devices.tensor(features[block], place))
                shares = products.split(devices.tensor(weighted(block), place))
                limbs = products.scale(shares, self._factors(numbers)[:, None])
                answer = products.add(answer, self._contract(numbers, limbs))
        return answer.cpu().numpy()

    def _block(self, device: torch.device) -> int:
        """Records at a time: fewer of a wide network, whose numbers must fit in memory."""
        widest = max(max(layer.linear.inputs, layer.linear.outputs) for layer in self.network.layers)
        most = BLOCK if device.type == "cpu" else products.max_rows(TOP)
        return max(1, min(most, _AT_ONCE // widest))

    @cached_property
    def _layout(self) -> ForwardLayout:
        return forward_layout(self.network, self.weights)

    def _on(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """From features to φ without its constant: bytes as they are, else float32."""
        if len(self.network.layers) == 1 and self.network.layers[0].dropout is None:
            return lambda features: features
        return Forward(self._layout, device).last_input

    def _factors(self, numbers: Tensor) -> Tensor:
        """f of every row, float64."""
        power = torch.zeros(len(numbers), dtype=torch.float64, device=numbers.device)
        for start in range(0, numbers.shape[1], _EXACT_SUM):
            some = numbers[:, start : start + _EXACT_SUM].to(torch.float32, copy=True)
            power += (some.abs_() if self.norm is Norm.L1 else some.square_()).sum(dim=1)
        if self.network.layers[-1].linear.bias is not None:
            power += float(1 << self.exponent if self.norm is Norm.L1 else 1 << 2 * self.exponent)
        whole = torch.full_like(power, self.top)
        most = float(1 << self.fraction)
        return torch.div(whole, self.norm.root(power) * SAFETY).floor_().clamp_(max=most)

    def _contract(self, numbers: Tensor, limbs: Limbs) -> Tensor:
        """Σ over a block's records of f t(y) (n, outputs) times φ, canonical: (outputs, width)."""
        inner = numbers.shape[1]
        flat = Limbs(*limbs.low.new_empty((2, limbs.low.shape[1], inner + 1)))
        weight, bias = (Limbs(*(limb[:, place] for limb in flat)) for place in (slice(inner), inner))
        activation = self.network.layers[-1].activation
        in_bytes = inner < digits.MAX_INPUTS and not (activation is not None and activation.signed)
        if in_bytes and digits.can_contract(numbers.device):
            digits.contract(limbs, digits.with_ones(numbers), weight, bias, transposed=False)
        else:
            products.contract(limbs, numbers, weight, bias, transposed=False)
        joined = products.join(flat)
        joined[:, inner] = products.rotate(joined[:, inner], self.exponent)
        return joined[:, : self.width]
