"""A chain of torch modules, checked and converted to a `Network`. Errors name the offending module.

Run by the ad server, for models that are traced (`training/network`) and for ONNX files (`onnx_model`).
"""

from collections.abc import Sequence

from torch import nn

from maskedlark.exact.errors import ModelDoesNotFit
from maskedlark.exact.losses import BinaryCrossEntropy, Loss
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import ACTIVATIONS, Activation, Dropout, Identity, Sigmoid

_UNITS = 256
_MAX_SLOPE = 4
ONE_CHAIN = (
    "helpers compute one chain of layers: leave one path out, or train any model, as it is, on labels from "
    "one release (docs/CELLS.md)"
)
KNOWN = "there are Linear, ReLU, LeakyReLU, ELU, Sigmoid, Tanh, Dropout, Flatten, Identity"
NOT_IN_TABLE = f"is not in the table of operations; {KNOWN}"
EMBEDDING = "features are bytes; give a category a column of 0 and 255 for each of its values"
RECURRENT = "recurrent layers are not in the table of operations; give every moment columns of its own"
ATTENTION = "attention is not in the table of operations; use Linear"
CONVOLUTION = "convolution is not in the table of operations; use Linear"
OF_A_BATCH = "statistics of a batch make one record's gradient depend on others; drop it"
_ADVICE: dict[tuple[type[nn.Module], ...], str] = {
    (nn.BatchNorm1d,): OF_A_BATCH,
    (nn.LayerNorm,): "it is not in the table of operations; drop it",
    (nn.Embedding, nn.EmbeddingBag): EMBEDDING,
    (nn.RNNBase, nn.RNNCellBase): RECURRENT,
    (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer): ATTENTION,
    (nn.Conv1d, nn.Conv2d): CONVOLUTION,
    (nn.Softmax,): "end at the logits: the loss has its own",
}


def advice(module: nn.Module) -> str | None:
    """What to do about a module that never fits; None for any other."""
    return next((text for kinds, text in _ADVICE.items() if isinstance(module, kinds)), None)


class Chain:
    """Modules in order, features first: linear layers, and the operations between them."""

    def __init__(self, features: int | None = None) -> None:
        self._features = features
        self._layers: list[Layer] = []
        self._activation: Activation | None = None
        self._dropout: Dropout | None = None
        self._last = ""

    def add(self, name: str, module: nn.Module) -> None:
        """Append a module. Parameters of a Linear are named as in torch: after the module."""
        match module:
            case nn.Linear():
                self._linear(f"{name}." if name else "", module)
            case nn.ReLU() | nn.Sigmoid() | nn.Tanh():
                self._activate(name, module)
            case nn.LeakyReLU(negative_slope=slope) | nn.ELU(alpha=slope):
                self._activate(name, module, slope_units(name, slope))
            case nn.Dropout():
                if module.p > 0:
                    self._drop(name, Dropout(_in_units(name, module.p, 1 - 1 / _UNITS)))
            case nn.Identity() | nn.Flatten():
                pass
            case _:
                raise ModelDoesNotFit(f"{name} ({type(module).__name__})", advice(module) or KNOWN)

    def network(self, losses: Sequence[Loss]) -> Network:
        """The network of the modules added, with one loss per label."""
        self.end(all(isinstance(loss, BinaryCrossEntropy) for loss in losses))
        return Network(tuple(self._layers), tuple(losses))

    def end(self, binary: bool) -> None:
        """Refuse anything after the last layer but a sigmoid for binary labels, which the loss includes."""
        if not self._layers:
            raise ModelDoesNotFit("the model", "has no linear layer; give it at least one")
        own = binary and isinstance(self._activation, Sigmoid)
        if self._dropout is not None or (self._activation is not None and not own):
            raise ModelDoesNotFit(
                self._last, "stands after the last linear layer; end at the logits, the loss does the rest"
            )

    def _linear(self, place: str, module: nn.Linear) -> None:
        inputs = self._layers[-1].linear.outputs if self._layers else self._features
        if inputs is not None and module.in_features != inputs:
            raise ModelDoesNotFit(
                f"{place}weight", f"takes {module.in_features} numbers, and gets {inputs}; make them equal"
            )
        bias = f"{place}bias" if "bias" in dict(module.named_parameters()) else None
        linear = Linear(f"{place}weight", bias, module.in_features, module.out_features)
        activation = self._activation or (Identity() if self._layers else None)
        self._layers.append(Layer(linear, activation, self._dropout))
        self._activation = self._dropout = None

    def _activate(self, name: str, module: nn.Module, *slope: int) -> None:
        if not self._layers:
            raise ModelDoesNotFit(name, "stands before the first linear layer; features come as they are")
        if self._activation is not None:
            raise ModelDoesNotFit(name, "is the second activation between two linear layers; keep one")
        if self._dropout is not None:
            raise ModelDoesNotFit(name, "stands after its dropout; drop after the activation")
        kind = next(kind for kind in ACTIVATIONS if isinstance(module, kind.module))
        self._activation, self._last = kind(*slope), name

    def _drop(self, name: str, dropout: Dropout) -> None:
        if not self._layers:
            raise ModelDoesNotFit(name, "drops features; drop after the first linear layer")
        if self._dropout is not None:
            raise ModelDoesNotFit(name, "is the second dropout between two linear layers; keep one")
        self._dropout, self._last = dropout, name


def slope_units(name: str, slope: float) -> int:
    """A slope, rounded to units of 1/256."""
    return _in_units(name, slope, _MAX_SLOPE)


def _in_units(name: str, number: float, most: float) -> int:
    """A slope or a rate, rounded to units of 1/256."""
    if not 0 <= number <= most:  # NaN fails this too.
        raise ModelDoesNotFit(name, f"has {number:g}; choose a number of 0 … {most:.3g}")
    units = round(number * _UNITS)
    if number > 0 and units == 0:
        raise ModelDoesNotFit(name, f"has {number:g}, which is below 1/512; make it larger, or drop it")
    return units
