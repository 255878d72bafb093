"""Maps φ from a record's bytes to what a linear model takes, as networks of the exact engine.

Fitted by the ad server to its own rows, without labels, and sent with the question: helpers compute the same
integers. Hidden layers hold columns, steps of columns, leaves or random features, each from 0 to 1; the last
one centres, standardises and whitens them with a ridge, so that noise falls evenly on what varies.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maskedlark.errors import BadArguments
from maskedlark.exact.clip import Norm
from maskedlark.exact.losses import Loss
from maskedlark.exact.moments import Representation
from maskedlark.exact.network import FEATURE_EXPONENT, Layer, Linear, Network
from maskedlark.exact.operations import TOP, Identity, Relu
from maskedlark.exact.quantise import quantise
from maskedlark.fitting.threads import alone

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]
KINDS = ("columns", "buckets", "trees", "random")
RIDGE = 4.0
"""Of the whitening, in units of a standardised column's variance: found on public tables."""
BUCKETS = 6
TREES = 24
RANDOM = 48
MAX_WEIGHTS = 2_000_000
"""So many 16-bit numbers, in base64, leave room for the rest of a request; of 8-bit ones twice as many."""
_ON = TOP / 2**FEATURE_EXPONENT
"""The largest number of a hidden unit, in reals."""
_STEP = 256.0
"""Times a byte's least difference: the engine's ReLU saturates, so that a unit is on or off."""
_LEAF = 4.0
_RARE = 1 / 32
"""A column that varies less is not blown up to variance 1: its weights would cost the others their digits."""
_CONSTANT = 1e-9
_BEYOND = 1e-3
"""The share of numbers that may be cut at ±255."""


class Units(NamedTuple):
    """Hidden layers as (weight, bias) in reals, first to last, and what the last one's units stand for."""

    layers: tuple[tuple[Floats, Floats], ...]
    names: tuple[str, ...]

    def __call__(self, rows: Bytes) -> Floats:
        """The units of rows, in floats: close to the engine's integers."""
        numbers = rows / 2.0**FEATURE_EXPONENT
        for weight, bias in self.layers:
            numbers = np.clip(numbers @ weight.T + bias, 0, _ON)
        return numbers


@dataclass(frozen=True, eq=False)
class Map:
    """Hidden units, and the linear map from them to φ. The same rows and seed make the same map."""

    kind: str
    units: Units
    weight: Floats
    """(width, units)."""
    bias: Floats
    exponent: int
    """φ is 8-bit integers times 2^-exponent."""

    @property
    def names(self) -> tuple[str, ...]:
        """What coefficients are of: each goes from 0 to 1."""
        return self.units.names

    @property
    def size(self) -> int:
        """How many weights are sent."""
        return _size(self.units) + self.weight.size

    @property
    def features(self) -> int:
        """How many bytes it takes."""
        return int((self.units.layers[0][0] if self.units.layers else self.weight).shape[1])

    def representation(
        self, losses: Sequence[Loss], bound: float, norm: Norm = Norm.L2, fraction: int = 16
    ) -> Representation:
        """φ as the engine computes it, under a last layer of zeros for these losses."""
        outputs, tensors = (
            sum(loss.outputs for loss in losses),
            [*self.units.layers, (self.weight, self.bias)],
        )
        tensors.append((np.zeros((outputs, len(self.bias))), np.zeros(outputs)))
        layers, parameters = [], dict[str, Floats]()
        for place, (weight, bias) in enumerate(tensors):
            linear = Linear(f"w{place}", f"b{place}", weight.shape[1], weight.shape[0])
            between = None if not place else Identity() if place == len(tensors) - 1 else Relu()
            layers.append(Layer(linear, between))
            parameters |= {f"w{place}": weight, f"b{place}": bias}
        network = Network(tuple(layers), tuple(losses))
        hidden = (FEATURE_EXPONENT,) * len(self.units.layers)
        weights = quantise(network, parameters, (*hidden, self.exponent), bits=16)
        return Representation(network, weights, bound, norm, fraction)

    def named(self, theta: Floats, intercept: Floats) -> tuple[Floats, Floats]:
        """Coefficients of φ (outputs, width) as those of the named units, each from 0 to 1."""
        return theta @ self.weight * _ON, intercept + theta @ self.bias


def fit(rows: Bytes, names: Sequence[str], kind: str, seed: int = 0, ridge: float = RIDGE) -> Map:
    """A map of this kind. Looks at no label. Refuses one whose hidden layers no request has room for."""
    _check_width(kind, rows.shape[1])
    units = make_units(rows, names, kind, seed)
    with alone():
        weight, bias, exponent = whitened(units(rows), ridge, MAX_WEIGHTS - _size(units))
    return Map(kind, units, weight, bias, exponent)


def make_units(rows: Bytes, names: Sequence[str], kind: str, seed: int) -> Units:
    """The hidden units of a kind of map."""
    rng = np.random.Generator(np.random.PCG64(seed))
    if kind == "columns":
        return Units((), tuple(names))
    if kind == "random":
        return _random_units(rows, names, rng)
    width, room = rows.shape[1], _hidden_room()
    if kind == "buckets":
        return _bucket_units(rows, names, room // width)
    # Columns and steps are units of both hidden layers: u · width + (u + leaves) · u have room.
    most = math.isqrt(((width + 4 * TREES) ** 2) // 4 + room) - (width + 4 * TREES) // 2 - 1
    return _tree_units(rows, _bucket_units(rows, names, most), rng)


def _size(units: Units) -> int:
    return sum(weight.size for weight, _ in units.layers)


def _check_width(kind: str, width: int) -> None:
    """Refuse a kind of which, with two steps, hidden layers have no room."""
    some = width + 2
    least = {
        "columns": 0,
        "buckets": some * width,
        "trees": some * width + (some + 4 * TREES) * some,
        "random": (width + RANDOM) * width,
    }[kind]
    if least > _hidden_room():
        raise BadArguments(
            f"map={kind!r} of {width:,} columns has {least:,} weights or more in hidden layers, and "
            f"{_hidden_room():,} fit into a request: take map='columns', or fewer columns"
        )


def _hidden_room() -> int:
    """For hidden layers: as much is left to whiten them."""
    return MAX_WEIGHTS // 2


def _bucket_units(rows: Bytes, names: Sequence[str], most: int) -> Units:
    """Beside the columns, whether a number is over each of its quantiles: curves from few steps.

    Steps are thinned evenly to at most so many units; one is kept.
    """
    width, cuts = rows.shape[1], []
    for place, column in enumerate(rows.T):
        edges = np.unique(np.quantile(column, np.arange(1, BUCKETS) / BUCKETS, method="lower"))
        if np.unique(column).size > 2:
            cuts += [(place, int(edge)) for edge in edges if edge < column.max()]
    cuts = cuts[:: max(1, -(-len(cuts) // max(1, most - width)))]
    places, thresholds = np.array(cuts, int).reshape(-1, 2).T
    weight = np.vstack([np.eye(width), np.zeros((len(cuts), width))])
    weight[width + np.arange(len(cuts)), places] = _STEP
    bias = np.concatenate([np.zeros(width), -thresholds * _STEP / 2**FEATURE_EXPONENT])
    named = (f"{names[place]} > {edge}/255" for place, edge in cuts)
    return Units(((weight, bias),), (*names, *named))


def _tree_units(rows: Bytes, steps: Units, rng: np.random.Generator) -> Units:
    """Beside columns and steps, leaves of trees of two columns, split at random ones of their steps."""
    weight, bias = steps.layers[0]
    columns, count = weight.argmax(axis=1), len(bias)
    # A column that is 0 or 255 is its own step.
    is_step = np.concatenate(
        [((rows == 0) | (rows == TOP)).all(axis=0), np.full(count - rows.shape[1], True)]
    )
    splits = [np.flatnonzero(is_step & (columns == place)) for place in np.unique(columns[is_step])]
    if len(splits) < 2:
        return steps
    leaves, offsets, named = np.zeros((4 * TREES, count)), np.empty(4 * TREES), list(steps.names)
    for tree in range(TREES):
        pair = [rng.choice(splits[place]) for place in rng.choice(len(splits), 2, replace=False)]
        for leaf, signs in enumerate(((1, 1), (1, -1), (-1, 1), (-1, -1)), 4 * tree):
            leaves[leaf, pair] = np.array(signs) * _LEAF
            offsets[leaf] = (0.5 - signs.count(1)) * _ON * _LEAF
            said = (
                f"{'not ' * (sign < 0)}({steps.names[unit]})" for unit, sign in zip(pair, signs, strict=True)
            )
            named.append(" and ".join(said))
    second = np.vstack([np.eye(count), leaves]), np.concatenate([np.zeros(count), offsets])
    return Units((steps.layers[0], second), tuple(named))


def _random_units(rows: Bytes, names: Sequence[str], rng: np.random.Generator) -> Units:
    """Beside the columns, ReLUs of random directions."""
    width, numbers = rows.shape[1], rows / 2.0**FEATURE_EXPONENT
    directions = rng.standard_normal((RANDOM, width)) / np.maximum(numbers.std(axis=0), _RARE)
    directions *= 0.25 / np.sqrt(width)
    bias = 0.25 * (1 + rng.standard_normal(RANDOM)) - directions @ numbers.mean(axis=0)
    weight = np.vstack([np.eye(width), directions])
    named = (f"random feature {number}" for number in range(RANDOM))
    return Units(((weight, np.concatenate([np.zeros(width), bias])),), (*names, *named))


def whitened(numbers: Floats, ridge: float, room: int) -> tuple[Floats, Floats, int]:
    """(C + ridge)^-1/2 of the standardised units: smooth in the rows, so that rounding changes no map.

    The top principal components where all would be too many to send. Callers run it `alone`: those that tie
    are any base of what they span, by the order of sums.
    """
    mean, deviation = numbers.mean(axis=0), numbers.std(axis=0)
    scale = np.where(deviation < _CONSTANT, 0.0, 1 / np.maximum(deviation, _RARE))
    standard = (numbers - mean) * scale
    values, vectors = np.linalg.eigh(standard.T @ standard / max(1, len(numbers)))
    factors = np.sqrt((1 + ridge) / (np.maximum(values, 0) + ridge))
    most = max(1, room // len(mean))
    if most < len(mean):
        top = vectors[:, ::-1][:, :most]
        signs = np.sign(top[np.abs(top).argmax(axis=0), np.arange(most)])
        weight = (top * signs * factors[::-1][:most]).T * scale
    else:
        weight = (vectors * factors) @ vectors.T * scale
    phi = (numbers - mean) @ weight.T
    largest = max(float(np.quantile(np.abs(phi), 1 - _BEYOND)), 2.0**-10) if phi.size else 1.0
    return weight, -weight @ mean, int(np.clip(np.floor(np.log2(TOP / largest)), 0, 10))


def lengths(numbers: Floats, norm: Norm) -> Floats:
    """The norm of every row."""
    norms: Floats = np.linalg.norm(numbers, 1 if norm is Norm.L1 else 2, axis=1)
    return norms
