"""A fitted model in one JSON file: all that serving needs. Read strictly; nothing of it is executed."""

from pathlib import Path
from typing import Annotated, Literal

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


class _Saved(Settings):
    """The file."""

    format: Literal["maskedlark linear model"] = "maskedlark linear model"
    version: Literal[1] = 1
    family: Literal["logistic", "softmax", "least squares", "poisson"]
    tag: str
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


def save(model: FittedModel, path: str | Path) -> None:
    """Write it to a file."""
    phi, encoder = model.phi, model.encoder
    saved = _Saved(
        family=model.family.name,  # type: ignore[arg-type]
        tag=model.tag,
        encoder=None if encoder is None else encoder.to_json(),
        model=described.describe(phi.network, phi.fraction),
        weights=weights.to_text(phi.weights),
        clip=phi.bound,
        norm=phi.norm.value,
        theta=_rows(model.theta),
        names=model.names,
        coefficients=_rows(model.coefficients),
        intercept=tuple(model.intercept.tolist()),
        errors=_rows(model.errors),
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
        theta, coefficients, errors = map(np.array, (saved.theta, saved.coefficients, saved.errors))
    except (ValidationError, MaskedLarkError, ValueError) as error:
        raise NotAModel(f"{path} is no model saved by `fitting`: {type(error).__name__}") from None
    outputs, names = len(saved.intercept), len(saved.names)
    shapes = (outputs, phi.width), (outputs, names), (outputs, names + 1)
    if (theta.shape, coefficients.shape, errors.shape) != shapes:
        raise NotAModel(f"{path} is no model saved by `fitting`: its parts are of different sizes")
    intercept, family = np.array(saved.intercept), FAMILIES[saved.family]
    return FittedModel(family, saved.tag, encoder, phi, theta, saved.names, coefficients, intercept, errors)


def _rows(numbers: Floats) -> _Numbers:
    return tuple(map(tuple, numbers.tolist()))
