"""PyTorch training on labels that nobody holds: the user's model and loop, gradients from helpers.

Run by the ad server. `Client` is its client plus `client.training(...)`, which returns a `Training`, and
`client.evaluate(...)`; `read_onnx` makes a model of an ONNX file; `load` and `Predictor` are for serving a
trained model.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maskedlark.training.begin import begin
    from maskedlark.training.centring import centred
    from maskedlark.training.client import Client
    from maskedlark.training.gradient_norms import gradient_bound
    from maskedlark.training.network import read_onnx
    from maskedlark.training.plan import TrainingPlan
    from maskedlark.training.predictor import Predictor, load
    from maskedlark.training.training import Step, Training

_HOMES = {
    "Step": "training",
    "TrainingPlan": "plan",
    "centred": "centring",
    "gradient_bound": "gradient_norms",
    "load": "predictor",
    "read_onnx": "network",
}
"""Modules of names that have another name."""
__all__ = [
    "Client",
    "Predictor",
    "Step",
    "Training",
    "TrainingPlan",
    "begin",
    "centred",
    "gradient_bound",
    "load",
    "read_onnx",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever has that name
    # Imported on first use: torch takes seconds to load, and metrics do not need it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, name.lower())}"), name)
