"""Traces a torch model into a `Network`, so that models can be written as usual. Run by the ad server.

Parameters keep their names, by which gradients are put into `param.grad`.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx, nn
from torch.nn import functional

from maskedlark.errors import BadArguments
from maskedlark.exact.chain import NOT_IN_TABLE, ONE_CHAIN, Chain, advice
from maskedlark.exact.errors import ModelDoesNotFit
from maskedlark.exact.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy, SquaredError
from maskedlark.exact.network import Network
from maskedlark.exact.quantise import Quantised, calibrate, quantise, stand_in
from maskedlark.features.encoder import Encoder

Bytes = NDArray[np.uint8]
_OTHER_NAMES = {"ce": "softmax", "cross_entropy": "softmax"}
_TRACED: dict[type[nn.Module], tuple[object, ...]] = {
    nn.ReLU: (torch.relu, functional.relu, "relu"),
    nn.Sigmoid: (torch.sigmoid, functional.sigmoid, "sigmoid"),
    nn.Tanh: (torch.tanh, functional.tanh, "tanh"),
    nn.Flatten: (torch.flatten, "flatten", "view", "reshape", "squeeze"),
}
"""Modules, and the functions and methods, by name, that are equivalent."""


def network(model: nn.Module, losses: Sequence[Loss], features: int) -> Network:
    """The network that helpers compute for this model. Refuses operations they cannot compute, by name."""
    chain = Chain(features)
    if isinstance(model, nn.Linear):  # A logistic regression: nothing to trace.
        chain.add("", model)
        return chain.network(losses)
    try:
        for node in _traced(model).nodes:
            _add(chain, model, node)
    except ModelDoesNotFit:
        # A layer that never fits is named before what forward does with its outputs.
        for name, module in model.named_modules():
            if (change := advice(module)) is not None:
                raise ModelDoesNotFit(f"{name or 'the model'} ({type(module).__name__})", change) from None
        raise
    return chain.network(losses)


def check_module(model: object, also: str = "") -> None:
    """Refuse what is no module of torch, or hides one. `also`: what else could be meant."""
    if not isinstance(model, nn.Module):
        raise BadArguments(
            f"the model is a {type(model).__name__}: give a torch.nn.Module; of an ONNX file, "
            f"maskedlark.training.read_onnx(path, loss) makes one{also}"
        )
    if hasattr(model, "_orig_mod"):  # By which torch itself finds it.
        raise BadArguments("give the module itself, not what torch.compile returns: it has no forward")


def check_sample(sample: object, features: int) -> None:
    """Refuse what is no rows of bytes: tables, lists, bytes of another width, and no row at all."""
    shape = sample.shape if isinstance(sample, np.ndarray) and sample.dtype == np.uint8 else (0,)
    if sample is not None and (shape[:1] == (0,) or shape[1:] != (features,)):
        raise BadArguments(
            f"a sample is rows of {features} bytes, as the encoder makes them: sample=encoder.encode(people)"
        )


def _traced(model: nn.Module) -> fx.Graph:
    """Its forward as a graph. That is the user's own code, so its own message is shown."""
    try:
        return fx.Tracer().trace(model)
    except fx.proxy.TraceError as error:
        raise ModelDoesNotFit(
            "the model", f"does not always do the same: {error}; write forward without conditions"
        ) from None
    except Exception as error:
        said = f"cannot be traced: {type(error).__name__}: {error}"
        raise ModelDoesNotFit("the model", f"{said}; write forward as a chain of modules") from error


def _add(chain: Chain, model: nn.Module, node: fx.Node) -> None:
    if node.op == "get_attr":
        raise ModelDoesNotFit(node.name, "uses a tensor by itself; use nn.Linear for every weight")
    if node.op != "output" and len(node.users) != 1:
        raise ModelDoesNotFit(node.name, f"is used more than once, or never; {ONE_CHAIN}")
    if node.op == "call_module":
        chain.add(str(node.target), model.get_submodule(str(node.target)))
    elif node.op in ("call_function", "call_method"):
        name = getattr(node.target, "__name__", str(node.target))
        kind = next((kind for kind, same in _TRACED.items() if node.target in same), None)
        if kind is None:
            raise ModelDoesNotFit(name, NOT_IN_TABLE)
        chain.add(name, kind())


def read_onnx(path: str | Path, loss: str | Sequence[str], output: str | None = None) -> nn.Sequential:
    """The model of an ONNX file, to be trained with this loss. `output`: of a file that has several."""
    from maskedlark.exact import onnx_model  # noqa: PLC0415 - models that are written in torch need no onnx

    return onnx_model.load(Path(path), names(loss), output)


def ends_in_sigmoid(model: nn.Module) -> bool:
    """Whether its outputs are probabilities: a sigmoid may follow the last layer, as the loss has it too."""
    try:
        nodes = list(_traced(model).nodes)
    except ModelDoesNotFit:
        return False
    last = next(node for node in reversed(nodes) if node.op != "output")
    if last.op == "call_module":
        return isinstance(model.get_submodule(str(last.target)), nn.Sigmoid)
    return last.target in _TRACED[nn.Sigmoid]


def names(loss: str | Sequence[str]) -> tuple[str, ...]:
    """The names of losses, normalised, one per label."""
    losses_named = tuple(_OTHER_NAMES.get(name, name) for name in ([loss] if isinstance(loss, str) else loss))
    for name in losses_named:
        if name not in ("bce", "mse", "softmax"):
            raise ModelDoesNotFit(repr(name), "is no loss; there are bce, mse and softmax")
    if "softmax" in losses_named and len(losses_named) > 1:
        raise ModelDoesNotFit("softmax", "takes all outputs, and stands alone; give every label a model")
    return losses_named


def losses(loss: str | Sequence[str], model: nn.Module) -> tuple[Loss, ...]:
    """Losses by name: bce, mse, or softmax, which uses all outputs of the last layer."""
    simple = {"bce": BinaryCrossEntropy(), "mse": SquaredError()}
    return tuple(simple.get(name) or SoftmaxCrossEntropy(_outputs(model)) for name in names(loss))


def parameters(network: Network, model: nn.Module) -> dict[str, NDArray[np.float64]]:
    """The model's current weights, by name."""
    return {
        entry.name: model.get_parameter(entry.name).detach().to("cpu", torch.float64).numpy()
        for entry in network.parameters
    }


def scaling_rows(network: Network, sample: Bytes | None, encoder: Encoder | None) -> Bytes:
    """Rows that scale the activations: the sample, else made up, with the columns of the encoder if any."""
    if sample is not None:
        return sample
    return stand_in((1,) * network.features if encoder is None else encoder.widths)


def quantised(network: Network, model: nn.Module, rows: Bytes, bits: int, clamp: bool = True) -> Quantised:
    """The model's quantised weights; public rows of features scale the activations."""
    named = parameters(network, model)
    return quantise(network, named, calibrate(network, named, rows, clamp), bits)


def fill(network: Network, model: nn.Module, gradient: NDArray[np.float64]) -> None:
    """Add a flat gradient to `param.grad`, as `backward` does; not of what the caller has fixed."""
    for entry in network.parameters:
        parameter = model.get_parameter(entry.name)
        if not parameter.requires_grad:
            continue
        flat = torch.from_numpy(gradient[entry.place].reshape(entry.shape).copy())
        own = flat.to(parameter.device, parameter.dtype)
        parameter.grad = own if parameter.grad is None else parameter.grad + own


def _outputs(model: nn.Module) -> int:
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ModelDoesNotFit("the model", "has no Linear layer")
    return linear[-1].out_features
