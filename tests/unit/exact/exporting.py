"""Models as a user of torch exports them."""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch


def exported(module: torch.nn.Module, shape: tuple[int, ...], **options: Any) -> bytes:
    """As a user of torch exports it. The exporters warn about themselves; that is theirs."""
    path = Path(tempfile.mkdtemp()) / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.zeros(shape),), path, verbose=False, external_data=False, **options)
    return path.read_bytes()


def exported_beside(module: torch.nn.Module, shape: tuple[int, ...], path: Path) -> None:
    """PyTorch's default: the model, and its weights in another file beside it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.zeros(shape),), path, verbose=False)


def fitted(name: str, features: int, classes: int = 2) -> Any:
    """One of scikit-learn's models of random rows, as a user has it."""
    from sklearn import linear_model, neural_network

    kind = getattr(neural_network if name.startswith("MLP") else linear_model, name)
    options = (
        {"hidden_layer_sizes": (6, 5), "max_iter": 3, "random_state": 0} if name.startswith("MLP") else {}
    )
    rng = np.random.default_rng(0)
    x, y = rng.random((60, features)), rng.random(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(**options).fit(x, rng.integers(0, classes, 60) if hasattr(kind, "predict_proba") else y)


def exported_by_sklearn(model: Any, features: int, dtype: Any = np.float32, **options: Any) -> bytes:
    """As a user of scikit-learn exports it."""
    import skl2onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = skl2onnx.to_onnx(model, np.zeros((1, features), dtype), options=options or None)
    return bytes(made.SerializeToString())


class Residual(torch.nn.Module):
    """x + f(x), then the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(x + torch.relu(self.inner(x)))
        return found


class WideAndDeep(torch.nn.Module):
    """A linear part of the features beside a network of them, added or joined."""

    def __init__(self, joined: bool) -> None:
        super().__init__()
        self.joined = joined
        self.wide, self.deep = torch.nn.Linear(4, 1), torch.nn.Linear(4, 3)
        self.last = torch.nn.Linear(7 if joined else 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        deep = torch.relu(self.deep(x))
        if self.joined:
            deep = torch.cat([x, deep], 1)
        scores: torch.Tensor = self.last(deep) if self.joined else self.wide(x) + self.last(deep)
        return scores
