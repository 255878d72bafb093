"""Does a model fit? Said before anything is sent, with what to change. Run by the ad server."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import field
from maskedlark.exact.clip import Clip
from maskedlark.exact.errors import ModelDoesNotFit
from maskedlark.exact.local import calibrate, stand_in
from maskedlark.exact.losses import Loss
from maskedlark.exact.network import Network
from maskedlark.exact.onnx_model import read
from maskedlark.exact.plan import plan
from maskedlark.exact.quantise import Quantised, quantise


@dataclass(frozen=True)
class Fit:
    """A model that fits: what a helper registers, its weights as they would travel, and the room left."""

    network: Network
    weights: Quantised
    exponent: int
    """The gradient's: its integers times 2^-exponent."""
    most_records: int
    """So many records a batch stay inside the field, noise included."""


def check(
    model: bytes,
    losses: Sequence[Loss],
    clip: Clip,
    *,
    features: int,
    records: int,
    noise_tail: int = 0,
    bits: int = 8,
    sample: NDArray[np.uint8] | None = None,
    output: str | None = None,
) -> Fit:
    """Refuse a model that does not fit, by the name of its node; else say what it leaves room for.

    `features` is the declared number of feature bytes, `records` the largest batch. The sample calibrates the
    activations; without one, records of equal bytes stand in.
    """
    found = read(model, losses, output)
    if found.network.features != features:
        first = found.network.layers[0].linear.weight
        raise ModelDoesNotFit(
            first, f"takes {found.network.features} features, {features} are declared; make them equal"
        )
    if sample is None:
        sample = stand_in(features)
    weights = quantise(
        found.network, found.parameters, calibrate(found.network, found.parameters, sample), bits
    )
    step = plan(found.network, weights, clip)
    step.check_range(records, noise_tail)
    return Fit(found.network, weights, step.exponent, (field.HALF - noise_tail) // step.row_top)
