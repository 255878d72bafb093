"""A torch model as a network of ours: traced, so that it may be written as people write models.

Parameters keep their names, so that a gradient finds its way back into `param.grad`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx, nn
from torch.nn import functional

from maskedlark.exact.errors import ModelDoesNotFit
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy, SquaredError
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.operations import Activation, Dropout, Elu, Identity, LeakyRelu, Relu, Sigmoid, Tanh

_UNITS = 256
_OTHER_NAMES = {"ce": "softmax", "cross_entropy": "softmax"}
_TRACED = {
    functional.relu: Relu(),
    torch.relu: Relu(),
    torch.sigmoid: Sigmoid(),
    functional.sigmoid: Sigmoid(),
    torch.tanh: Tanh(),
    functional.tanh: Tanh(),
}
_METHODS = {"relu": Relu(), "sigmoid": Sigmoid(), "tanh": Tanh()}
_ADVICE = {
    nn.BatchNorm1d: "statistics of a batch make one record's gradient depend on others; drop it",
    nn.LayerNorm: "it is not in the table of operations; drop it",
    nn.Embedding: "features are bytes; give a category a column of 0 and 255 for each of its values",
    nn.Conv2d: "convolution is not in the table of operations; use Linear",
    nn.Softmax: "end at the logits: the loss has its own",
}


def network(model: nn.Module, losses: Sequence[Loss], features: int) -> Network:
    """What helpers compute for this model. Raises what they cannot, by its name. Run by the ad server."""
    reader = _Reader(model, features)
    if isinstance(model, nn.Linear):  # A logistic regression: there is nothing in it to be traced.
        reader.linear("", model)
        return Network(tuple(reader.layers), tuple(losses))
    try:
        graph = fx.Tracer().trace(model)
    except (fx.proxy.TraceError, TypeError) as error:
        raise ModelDoesNotFit(
            "the model", f"does not always do the same: {error}; write forward without conditions"
        ) from None
    for node in graph.nodes:
        reader.take(node)
    reader.end(losses)
    return Network(tuple(reader.layers), tuple(losses))


def names(loss: str | Sequence[str]) -> tuple[str, ...]:
    """The names of losses as we write them, one a label."""
    found = tuple(_OTHER_NAMES.get(name, name) for name in ([loss] if isinstance(loss, str) else loss))
    for name in found:
        if name not in ("bce", "mse", "softmax"):
            raise ModelDoesNotFit(repr(name), "is no loss; there are bce, mse and softmax")
    if "softmax" in found and len(found) > 1:
        raise ModelDoesNotFit("softmax", "takes all outputs, and stands alone; give every label a model")
    return found


def losses(loss: str | Sequence[str], model: nn.Module) -> tuple[Loss, ...]:
    """Losses by their names: bce, mse, or softmax, which takes all outputs of the last layer."""
    made: dict[str, Callable[[], Loss]] = {
        "bce": BinaryCrossEntropy,
        "mse": SquaredError,
        "softmax": lambda: SoftmaxCrossEntropy(_outputs(model)),
    }
    return tuple(made[name]() for name in names(loss))


def parameters(network: Network, model: nn.Module) -> dict[str, NDArray[np.float64]]:
    """The model's weights as they are now, by name."""
    named = dict(model.named_parameters())
    return {
        entry.name: named[entry.name].detach().to("cpu", torch.float64).numpy()
        for entry in network.parameters
    }


def fill(network: Network, model: nn.Module, gradient: NDArray[np.float64]) -> None:
    """Put a flat gradient into `param.grad`, added to what is there as `backward` does."""
    named = dict(model.named_parameters())
    for entry in network.parameters:
        parameter = named[entry.name]
        found = torch.from_numpy(gradient[entry.place].reshape(entry.shape).copy())
        own = found.to(parameter.device, parameter.dtype)
        parameter.grad = own if parameter.grad is None else parameter.grad + own


@dataclass
class _Reader:
    """Takes what was traced, node by node: linear layers, and what stands between them."""

    model: nn.Module
    features: int
    layers: list[Layer] = field(default_factory=list)
    _activation: Activation | None = None
    _dropout: Dropout | None = None

    def take(self, node: fx.Node) -> None:
        match node.op:
            case "placeholder" | "output":
                self._check_one_way(node)
            case "call_module":
                self._check_one_way(node)
                self._module(str(node.target), self.model.get_submodule(str(node.target)))
            case "call_function":
                self._check_one_way(node)
                self._function(node)
            case "call_method":
                self._check_one_way(node)
                self._method(node)
            case _:
                raise ModelDoesNotFit(node.name, "uses a tensor by itself; use nn.Linear for every weight")

    def end(self, losses: Sequence[Loss]) -> None:
        """Nothing may stand behind the last layer, but the sigmoid that the loss has of its own."""
        own = isinstance(self._activation, Sigmoid) and all(isinstance(x, BinaryCrossEntropy) for x in losses)
        if self._dropout is not None or (self._activation is not None and not own):
            raise ModelDoesNotFit(
                "the model", "does not end with a Linear layer; end at the logits, the loss does the rest"
            )

    def _check_one_way(self, node: fx.Node) -> None:
        if node.op != "output" and len(node.users) != 1:
            raise ModelDoesNotFit(node.name, "is used more than once, or never; write one chain of layers")

    def _module(self, name: str, module: nn.Module) -> None:
        match module:
            case nn.Linear():
                self.linear(f"{name}.", module)
            case nn.ReLU():
                self._between(name, Relu())
            case nn.Sigmoid():
                self._between(name, Sigmoid())
            case nn.Tanh():
                self._between(name, Tanh())
            case nn.LeakyReLU():
                self._between(name, LeakyRelu(_in_units(name, module.negative_slope)))
            case nn.ELU():
                self._between(name, Elu(_in_units(name, module.alpha)))
            case nn.Dropout():
                if module.p > 0:
                    self._drop(name, Dropout(_in_units(name, module.p)))
            case nn.Identity() | nn.Flatten():
                pass
            case _:
                advice = next((text for kind, text in _ADVICE.items() if isinstance(module, kind)), None)
                known = "there are Linear, ReLU, LeakyReLU, ELU, Sigmoid, Tanh, Dropout, Flatten, Identity"
                raise ModelDoesNotFit(f"{name} ({type(module).__name__})", advice or known)

    def _function(self, node: fx.Node) -> None:
        name = getattr(node.target, "__name__", str(node.target))
        if node.target is torch.flatten:
            return
        if node.target not in _TRACED:
            raise ModelDoesNotFit(name, "is not in the table of operations; replace or drop it")
        self._between(name, _TRACED[node.target])

    def _method(self, node: fx.Node) -> None:
        if node.target in ("flatten", "view", "reshape", "squeeze"):
            return
        if node.target not in _METHODS:
            raise ModelDoesNotFit(str(node.target), "is not in the table of operations; replace or drop it")
        self._between(str(node.target), _METHODS[str(node.target)])

    def linear(self, place: str, module: nn.Linear) -> None:
        """The next layer: its parameters are named by its place in the model."""
        inputs = self.layers[-1].linear.outputs if self.layers else self.features
        if module.in_features != inputs:
            raise ModelDoesNotFit(
                f"{place}weight", f"takes {module.in_features} numbers, and gets {inputs}; make them equal"
            )
        has_bias = "bias" in dict(module.named_parameters())
        bias = f"{place}bias" if has_bias else None
        linear = Linear(f"{place}weight", bias, module.in_features, module.out_features)
        activation = self._activation or (Identity() if self.layers else None)
        self.layers.append(Layer(linear, activation, self._dropout))
        self._activation = self._dropout = None

    def _between(self, name: str, activation: Activation) -> None:
        if not self.layers:
            raise ModelDoesNotFit(name, "stands before the first Linear; features come as they are")
        if self._activation is not None:
            raise ModelDoesNotFit(name, "is the second activation between two Linear layers; keep one")
        if self._dropout is not None:
            raise ModelDoesNotFit(name, "stands behind its dropout; drop after the activation")
        self._activation = activation

    def _drop(self, name: str, dropout: Dropout) -> None:
        if not self.layers:
            raise ModelDoesNotFit(name, "drops features; drop after the first Linear")
        self._dropout = dropout


def _in_units(name: str, number: float) -> int:
    """A slope or a rate in units of 1/256: the nearest that there is."""
    found = round(number * _UNITS)
    if number > 0 and found == 0:
        raise ModelDoesNotFit(name, f"has {number:g}, which is below 1/512; make it larger, or drop it")
    return found


def _outputs(model: nn.Module) -> int:
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ModelDoesNotFit("the model", "has no Linear layer")
    return linear[-1].out_features
