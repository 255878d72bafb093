"""How finely a run's gradients are computed, so that no step can leave the field. Run by the ad server.

A step's sum, with all helpers' noise, must fit the field whatever the weights have become: a session is
charged when it is opened, and a step that helpers refuse would be lost. Small weights have the largest
exponents, so the step that needs most of the field is the one at weights of 0. The fraction is the largest
at which that one fits; where it would be coarse, a softmax takes layers in the clear (`Clip.depth`).
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from math import frexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskedlark.errors import FieldOverflow
from maskedlark.exact.clip import Clip
from maskedlark.exact.errors import OutOfField
from maskedlark.exact.forward import Seed
from maskedlark.exact.layout import StepLayout
from maskedlark.exact.losses import SoftmaxCrossEntropy
from maskedlark.exact.network import Network
from maskedlark.exact.precision import truncation
from maskedlark.exact.quantise import finest
from maskedlark.functions import model as described
from maskedlark.functions.gradient import GradientQuery
from maskedlark.parameters import randomised
from maskedlark.parameters.document import Document
from maskedlark.release.checks import check_range

FRACTION = 20
"""The fraction where the field has room: finer errors than the engine's own, 2^-20, do not exist."""
_ENOUGH = 16
"""Coarser errors could be seen beside 8-bit weights, so a softmax takes another layer in the clear."""
_COARSE = 0.05
"""A loss of this share of ψ deserves advice."""
_ROWS = 512


@dataclass(frozen=True)
class Precision:
    """The clip of a run, and what its gradients lose to it."""

    clip: Clip
    most: int
    """Records in a step: no batch has more."""
    lost: float
    """How far a record's gradient may be off, as a share of ψ: the most of all rows that were looked at."""
    is_of_sample: bool
    """Whether they were the ad server's rows, else made up."""

    def figures(self) -> dict[str, Any]:
        """For programs."""
        return {
            "fraction": self.clip.fraction,
            "depth": self.clip.depth,
            "batch_at_most": self.most,
            "truncation": self.lost,
        }

    def lines(self, noise: float) -> Iterator[str]:
        """In words, where it is not the usual one. `noise`: on a step's mean gradient, as a share of ψ."""
        clip = self.clip
        if clip.depth:
            yield f"errors pass {clip.depth} layers in the clear, which takes longer but loses nothing"
        if clip.fraction >= FRACTION:
            return
        rows = "of these rows" if self.is_of_sample else "of made-up rows"
        line = (
            f"errors have {clip.fraction} binary digits after the point, not {FRACTION}, so that sums of up "
            f"to {self.most} records fit the field: at these weights, the gradient {rows} is off by at most "
            f"{self.lost:.2g} ψ"
        )
        if noise:
            line += f", and the noise of a step's mean gradient is about {noise:.2g} ψ long"
        if self.lost > _COARSE:
            line += ". Smaller batches or a smaller gradient_bound leave more digits"
        yield line


def choose(
    document: Document,
    tag: str,
    network: Network,
    bits: int,
    noise: float | None,
    records: int,
    fraction: int | None,
    depth: int | None,
) -> Clip:
    """The finest clip at which no step over so many records leaves the field. What was given stays."""
    weights, declared = finest(network, bits), document.trained(tag)
    growth = 1 if noise else randomised.growth(declared)

    def fits(own: Clip) -> bool:
        try:
            (column,) = GradientQuery(tag, network, weights, own).columns
            check_range(document, described.GRADIENT, column, noise, records, growth)
        except FieldOverflow:
            return False
        return True

    most = min(FRACTION, 31 - frexp(declared.gradient_bound)[1]) if fraction is None else fraction
    enough = min(most, _ENOUGH) if fraction is None else fraction
    is_softmax = any(isinstance(loss, SoftmaxCrossEntropy) for loss in network.losses)
    deepest = len(network.layers) - 1 if is_softmax else 0
    best = 0, 0
    for deep in range(deepest + 1) if depth is None else (depth,):
        tried = [described.clip(document, tag, each, deep) for each in range(most, 0, -1)]
        finest_fraction = most - bisect_left(tried, True, key=fits)
        if finest_fraction >= enough:
            return described.clip(document, tag, finest_fraction, deep)
        best = max(best, (finest_fraction, -deep))
    return _best(document, tag, records, fraction, depth, best)


def _best(
    document: Document, tag: str, records: int, fraction: int | None, depth: int | None, best: tuple[int, int]
) -> Clip:
    """The best where none is fine enough; refuses if there is none, or another was asked for."""
    finest_fraction, deep = best[0], -best[1]
    if finest_fraction and fraction is None:
        return described.clip(document, tag, finest_fraction, deep)
    what = f"sums of up to {records} records, with this noise, could leave the field"
    if finest_fraction:
        raise OutOfField(f"fraction={fraction}: {what}; leave it out, or take {finest_fraction} or less")
    clear = "" if depth is None else "leave depth out, "
    raise OutOfField(
        f"{what}, however coarse they are: {clear}take smaller batches or less noise, or declare a smaller "
        "gradient_bound"
    )


def precision(step: StepLayout, most: int, rows: NDArray[np.uint8], is_of_sample: bool) -> Precision:
    """What a step at these weights loses, on some of these rows."""
    rows = np.ascontiguousarray(rows[:: -(-len(rows) // _ROWS)])
    seed = Seed(bytes(16), np.zeros((len(rows), 16), np.uint8)) if step.network.has_dropout else None
    return Precision(step.clip, most, float(truncation(step, rows, seed).max()), is_of_sample)
