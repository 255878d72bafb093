"""A trained model with the encoder of its features. Run by anyone who serves it.

The same encoder made the bytes that browsers sent, so training and serving see the same numbers.
"""

import copy
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, ValidationError
from torch import nn

from maskedlark.core.declared import MAX_NAMES
from maskedlark.errors import BadArguments
from maskedlark.exact.network import FEATURE_EXPONENT
from maskedlark.features.encoder import Encoder
from maskedlark.parameters.settings import TrainedModel
from maskedlark.training import network as networks
from maskedlark.training.checkpoint import UNREADABLE, read_saved
from maskedlark.training.errors import NO_ENCODER, NO_ROWS, NotAModel, RowsDoNotFit
from maskedlark.web import files
from maskedlark.wire.message import Settings


class _Said(Settings):
    """What a file holds besides the weights."""

    format: Literal[1] = 1
    losses: Annotated[tuple[Literal["bce", "mse", "softmax"], ...], Field(min_length=1, max_length=MAX_NAMES)]
    tag: str
    encoder: str | None


@dataclass(frozen=True)
class Predictor:
    """A model ready to predict."""

    model: nn.Module
    loss: str | Sequence[str]
    """bce, mse or softmax: how outputs become predictions; one per label."""
    tag: str
    encoder: Encoder | None = None
    before: "Predictor | None" = None
    """The model that this one was recalibrated from: its evaluation is a question that was answered."""

    def is_recalibrated_from(self, model: nn.Module) -> bool:
        """Whether it is that model, but for intercepts and slopes."""
        if self.before is None:
            return False
        was, now = self.before.model.state_dict(), model.state_dict()
        return was.keys() == now.keys() and all(torch.equal(was[name], now[name]) for name in was)

    def predict(self, table: Any) -> NDArray[np.float64]:  # noqa: ANN401 - a table, or bytes (n, d)
        """Per row, probabilities (bce; softmax: of every class) or values (mse); a column per label."""
        features = self._features(table)
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.inference_mode():
                outputs = self.model(features).double().reshape(len(features), -1)
        finally:
            self.model.train(was_training)
        losses = networks.names(self.loss)
        if losses == ("softmax",):
            return torch.softmax(outputs, dim=1).numpy()
        is_logit = not networks.ends_in_sigmoid(self.model)
        columns = [
            torch.sigmoid(column) if loss == "bce" and is_logit else column
            for loss, column in zip(losses, outputs.T, strict=True)
        ]
        return (columns[0] if len(losses) == 1 else torch.stack(columns, dim=1)).numpy()

    def _features(self, table: Any) -> torch.Tensor:  # noqa: ANN401
        if isinstance(table, np.ndarray) and table.dtype == np.uint8:
            encoded = table
        elif self.encoder is None:
            raise RowsDoNotFit(NO_ENCODER)
        else:
            encoded = self.encoder.encode(table)
        if not len(encoded):
            raise RowsDoNotFit(NO_ROWS)
        first = next(self.model.parameters())
        scaled: torch.Tensor = torch.from_numpy(encoded).to(first.device, first.dtype) / 2**FEATURE_EXPONENT
        return scaled

    def save(self, path: str | Path) -> None:
        """Save weights, encoder, losses and tag in one file."""
        held = io.BytesIO()
        encoder = None if self.encoder is None else self.encoder.to_json()
        said = _Said(losses=networks.names(self.loss), tag=self.tag, encoder=encoder)  # type: ignore[arg-type]
        parts = {"said": said.model_dump_json(), "state": self.model.state_dict()}
        if self.before is not None:
            parts["before"] = self.before.model.state_dict()
        torch.save(parts, held)
        files.write(Path(path), held.getvalue())


def check_encoder(declared: TrainedModel, encoder: Encoder | None) -> None:
    """Refuse another encoder than the document names: its bytes are not those that browsers sent."""
    if encoder is not None and declared.encoder not in (None, encoder.digest.hex()):
        raise BadArguments(
            f"{declared.tag} is declared with the encoder {str(declared.encoder)[:8]}…, by which browsers "
            f"reported, and this one is {encoder.digest.hex()[:8]}…: take that one (`maskedlark simulate` "
            "writes a deleted encoder.json anew), or declare this one in a new document"
        )
    if encoder is not None and len(encoder) != declared.features:
        raise BadArguments(f"this encoder makes {len(encoder)} bytes, not {declared.features}: take another")


def load(path: str | Path, model: nn.Module) -> Predictor:
    """Load a saved predictor. `model` must have the same shape; its weights are replaced."""
    saved = read_saved(Path(path))
    try:
        said = _Said.model_validate_json(saved["said"])
        states = [saved[name] for name in ("state", "before") if name == "state" or name in saved]
    except ValidationError:
        raise NotAModel(f"{path} is of another version than this package knows, or is damaged") from None
    except UNREADABLE as error:
        raise NotAModel(f"{path} is no model saved by `Training.save`: {type(error).__name__}") from None
    encoder = None if said.encoder is None else Encoder.from_json(said.encoder)
    loaded = [model, *(copy.deepcopy(model) for _ in states[1:])]
    try:
        for each, state in zip(loaded, states, strict=True):
            each.load_state_dict(state)
    except UNREADABLE:
        raise NotAModel(f"{path} holds the weights of a model of another shape") from None
    before = [Predictor(each, said.losses, said.tag, encoder) for each in loaded[1:]]
    return Predictor(model, said.losses, said.tag, encoder, *before)
