"""A fitted model in one JSON file: all that serving needs. Read strictly; nothing of it is executed."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from maskedlark.errors import MaskedLarkError
from maskedlark.exact.clip import Norm
from maskedlark.exact.moments import Representation
from maskedlark.features.encoder import Encoder
from maskedlark.fitting.fitted import FittedModel
from maskedlark.fitting.glm import FAMILIES
from maskedlark.fitting.maps import Floats
from maskedlark.functions import model as described
from maskedlark.functions import weights
from maskedlark.functions.model import DescribedModel
from maskedlark.training.errors import NotAModel
from maskedlark.web import files
from maskedlark.wire.message import Settings

_Numbers = tuple[tuple[float, ...], ...]


class _Fitted(Settings):
    """What a recalibration changes of a model."""

    theta: _Numbers
    coefficients: _Numbers
    intercept: tuple[float, ...]
    errors: _Numbers


class _Saved(Settings):
    """The file."""

    format: Literal["maskedlark linear model"] = "maskedlark linear model"
    version: Literal[1] = 1
    family: Literal["logistic", "softmax", "least squares", "poisson"]
    tag: str
    label: Annotated[int, Field(ge=0)] = 0
    encoder: str | None
    model: DescribedModel
    weights: str
    clip: Annotated[float, Field(gt=0)]
    norm: Literal["l1", "l2"]
    theta: _Numbers
    names: tuple[str, ...]
    coefficients: _Numbers
    intercept: tuple[float, ...]
    errors: _Numbers
    """None of a model that has no intervals."""
    before: _Fitted | None = None
    """The same of the model that it was recalibrated from."""


def save(model: FittedModel, path: str | Path) -> None:
    """Write it to a file."""
    phi, encoder = model.phi, model.encoder
    saved = _Saved(
        family=model.family.name,  # type: ignore[arg-type]
        tag=model.tag,
        label=model.label,
        encoder=None if encoder is None else encoder.to_json(),
        model=described.describe(phi.network, phi.fraction),
        weights=weights.to_text(phi.weights),
        clip=phi.bound,
        norm=phi.norm.value,
        names=model.names,
        before=None if model.before is None else _Fitted(**_fitted(model.before)),
        **_fitted(model),
    )
    files.write(Path(path), saved.model_dump_json(indent=1).encode() + b"\n")


def load(path: str | Path) -> FittedModel:
    """Read it: its `means` and `scores` are the saved model's."""
    try:
        saved = _Saved.model_validate_json(Path(path).read_bytes())
        network = saved.model.network
        phi = Representation(
            network,
            weights.from_text(network, saved.weights),
            saved.clip,
            Norm(saved.norm),
            saved.model.fraction,
        )
        phi.exponent  # noqa: B018 - refuses weights out of range
        encoder = None if saved.encoder is None else Encoder.from_json(saved.encoder)
        now, before = _arrays(saved), None if saved.before is None else _arrays(saved.before)
    except (ValidationError, MaskedLarkError, ValueError) as error:
        raise NotAModel(
            f"{path} is no model saved by `maskedlark fit`: {type(error).__name__}. One that `maskedlark "
            "train` saved is loaded in Python, by maskedlark.training.load"
        ) from None
    outputs, names = len(saved.intercept), len(saved.names)
    if [loss.outputs for loss in network.losses][saved.label :][:1] != [outputs]:
        raise NotAModel(f"{path} is no model saved by `fitting`: it has no such label")
    shapes = [(outputs, phi.width), (outputs, names), (outputs,), (outputs, names + 1)]
    for arrays in (now, before):
        if arrays is not None and [each.shape for each in arrays.values()] != shapes:
            raise NotAModel(f"{path} is no model saved by `fitting`: its parts are of different sizes")
    now |= {"names": saved.names, "label": saved.label}
    model = FittedModel(FAMILIES[saved.family], saved.tag, encoder, phi, **now)
    return model if before is None else replace(model, before=replace(model, **before))


def is_recalibrated(path: str | Path, model: FittedModel) -> bool:
    """Whether the file holds this very model, recalibrated: to save it again would undo that."""
    try:
        return load(path).is_recalibrated_from(model)
    except (OSError, NotAModel):
        return False


def _fitted(model: FittedModel) -> dict[str, Any]:
    return {
        "theta": _rows(model.theta),
        "coefficients": _rows(model.coefficients),
        "intercept": tuple(model.intercept.tolist()),
        "errors": () if np.isnan(model.errors).any() else _rows(model.errors),
    }


def _arrays(saved: _Saved | _Fitted) -> dict[str, Any]:
    parts = saved.theta, saved.coefficients, saved.intercept, saved.errors
    arrays = dict(zip(("theta", "coefficients", "intercept", "errors"), map(np.array, parts), strict=True))
    if not arrays["errors"].size:  # It has no intervals.
        arrays["errors"] = np.full(arrays["coefficients"].shape + np.array([0, 1]), np.nan)
    return arrays


def _rows(numbers: Floats) -> _Numbers:
    return tuple(map(tuple, numbers.tolist()))
