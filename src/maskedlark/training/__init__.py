"""PyTorch training on labels that nobody holds: the user's model and loop, gradients from helpers.

Run by the ad server. `Client` is its client plus `client.training(...)`, which returns a `Training`, and
`client.evaluate(...)`; `read_onnx` makes a model of an ONNX file; `load` and `Predictor` are for serving a
trained model.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maskedlark.training.begin import begin as begin
    from maskedlark.training.centring import centred as centred
    from maskedlark.training.client import Client as Client
    from maskedlark.training.gradient_norms import gradient_bound as gradient_bound
    from maskedlark.training.network import read_onnx as read_onnx
    from maskedlark.training.plan import TrainingPlan as TrainingPlan
    from maskedlark.training.predictor import Predictor as Predictor
    from maskedlark.training.predictor import load as load
    from maskedlark.training.training import Step as Step
    from maskedlark.training.training import Training as Training

_HOMES = {
    "Client": "client",
    "Predictor": "predictor",
    "Step": "training",
    "Training": "training",
    "TrainingPlan": "plan",
    "begin": "begin",
    "centred": "centring",
    "gradient_bound": "gradient_norms",
    "load": "predictor",
    "read_onnx": "network",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever has that name
    # Imported on first use: torch takes seconds to load, and metrics do not need it.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
