"""A trained model with the encoder of its features: saved, loaded, and asked with the table's own columns.

The same encoder made the bytes that browsers sent, so training and serving see the same numbers.
"""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from maskedlark.exact.network import FEATURE_EXPONENT
from maskedlark.features.encoder import Encoder
from maskedlark.training.errors import NotAModel
from maskedlark.web import files

_FORMAT = 1


@dataclass(frozen=True)
class Predictor:
    """A model, ready to be asked."""

    model: nn.Module
    loss: str
    """bce, mse or softmax: what makes a prediction of an output."""
    tag: str
    encoder: Encoder | None = None

    def predict(self, table: Any) -> NDArray[np.float64]:  # noqa: ANN401 - a table, or bytes (n, d)
        """Probabilities (bce: n, softmax: n by classes) or values (mse: n), one a row of the table."""
        features = self._features(table)
        self.model.eval()
        with torch.inference_mode():
            outputs: torch.Tensor = self.model(features).double()
            if self.loss == "bce":
                outputs = torch.sigmoid(outputs.reshape(len(features)))
            elif self.loss == "softmax":
                outputs = torch.softmax(outputs, dim=1)
            else:
                outputs = outputs.reshape(len(features))
            found: NDArray[np.float64] = outputs.numpy()
            return found

    def _features(self, table: Any) -> torch.Tensor:  # noqa: ANN401
        if isinstance(table, np.ndarray) and table.dtype == np.uint8:
            encoded = table
        elif self.encoder is None:
            raise NotAModel("this model was saved without its encoder: ask it with bytes (n, features)")
        else:
            encoded = self.encoder.encode(table)
        first = next(self.model.parameters())
        scaled: torch.Tensor = torch.from_numpy(encoded).to(first.dtype) / 2**FEATURE_EXPONENT
        return scaled

    def save(self, path: str | Path) -> None:
        """Model, encoder and what they are for, in one file."""
        held = io.BytesIO()
        encoder = None if self.encoder is None else self.encoder.to_json()
        said = {"format": _FORMAT, "loss": self.loss, "tag": self.tag, "encoder": encoder}
        torch.save({"said": json.dumps(said), "state": self.model.state_dict()}, held)
        files.write(Path(path), held.getvalue())


def load(path: str | Path, model: nn.Module) -> Predictor:
    """A predictor as it was saved. `model` is one of the same shape: its weights are replaced."""
    try:
        found = torch.load(path, weights_only=True)
        said, state = json.loads(found["said"]), found["state"]
        if said["format"] != _FORMAT:
            raise NotAModel(f"{path} is of another version than this package knows")
        loss, tag, encoder = said["loss"], said["tag"], said["encoder"]
    except (RuntimeError, KeyError, TypeError, ValueError, EOFError) as error:
        raise NotAModel(f"{path} is no model saved by `Training.save`: {type(error).__name__}") from None
    try:
        model.load_state_dict(state)
    except RuntimeError:
        raise NotAModel(f"{path} holds the weights of a model of another shape") from None
    return Predictor(model, loss, tag, None if encoder is None else Encoder.from_json(encoder))
