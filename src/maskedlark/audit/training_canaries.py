"""A lower bound on a training run's ε, from canary labels. Run by anyone who audits helpers that train.

A canary is a record with one feature of its own, so that its gradient moves one number of the sum that no
other record moves: a run over n canaries is n trials. Its label is a fair coin, and the other label moves the
sum by all of the sensitivity S. All sums here are in units of S: a canary adds 1/2 where it is in the batch
and its coin is 1, -1/2 where it is 0.

Two attackers, as there are two figures. One knows the batches; the best it can do is to add up a canary's
numbers of the steps that it was in. The other does not; the best it can do is the likelihood ratio of the
two mixtures, multiplied over the steps. Both guess 1 where their score is over 0.

Why right guesses bound ε: of a fair coin nobody guesses more than (1 + TV) / 2, where TV is how far the two
runs' distributions are apart, which follows from the noise. So a noise that allows fewer right guesses than
were made, unlucky end of their exact interval, is refuted; and the noise there is has at least the ε of the
largest that is refuted. Guesses about canaries of unequal odds are as many as equal ones of the same mean,
or rarer so many (Hoeffding, 1956): the exact interval holds for them too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm

from maskedlark.audit.canaries import Bound
from maskedlark.dp import accountant
from maskedlark.dp.accountant import Charge
from maskedlark.errors import NotDeclared

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]

_REACH = 16.0
"""Noise is searched from so much less than what was declared, to so much more."""
_HALVINGS = 16
_INTERVAL = 5e-3
"""Between two losses: coarser where noise is small, since losses are large then. An estimate from above."""


@dataclass(frozen=True)
class NoiseBound(Bound):
    """The same, and the multiplier of one helper's noise that was refuted."""

    noise: float


def features(count: int) -> NDArray[np.uint8]:
    """So many canaries, each with a feature of its own."""
    return np.eye(count, dtype=np.uint8) * np.uint8(255)


def with_batches(sums: Floats, drawn: Flags) -> Floats:
    """Scores of who knows which canaries (steps, n) each sum (steps, n) had."""
    counted = np.maximum(drawn.sum(axis=0), 1)
    found: Floats = (sums * drawn).sum(axis=0) / np.sqrt(counted)
    return found


def first(drawn: Flags, most: int) -> Flags:
    """So many batches of each canary, and no more: where all are guessed right, none says how much noise."""
    found: Flags = drawn & (drawn.cumsum(axis=0) <= most)
    return found


def judged(noise: float) -> int:
    """So many batches of a canary that about nine guesses in ten are right, by who knows them."""
    return max(1, round(6 * noise * noise))


def without_batches(sums: Floats, rate: float, noise: float) -> Floats:
    """Scores of who knows that canaries are in a batch at this rate, and the noise that it sees."""
    left = (1 - rate) / rate
    one, zero = (np.logaddexp(math.log(left) if left else -np.inf, _ratio(s, noise)) for s in (sums, -sums))
    found: Floats = (one - zero).sum(axis=0)
    return found


def _ratio(sums: Floats, noise: float) -> Floats:
    """How much likelier a sum is with 1/2 added than with nothing, as a logarithm."""
    ratio: Floats = (sums - 0.25) / (2 * noise * noise)
    return ratio


def bound_with_batches(
    coins: Flags, scores: Floats, batches: Counts, largest: int, noise: float, delta: float, confidence: float
) -> NoiseBound:
    """The ε, against who knows the batches, of a canary that was in the `largest` number of them.

    `batches`: how many of each canary its score is made of. `noise`: as declared.
    """

    def most(found: float) -> float:
        return float(norm.cdf(np.sqrt(batches) / (2 * found)).mean())

    refuted = _refuted(most, _least_right(coins, scores, confidence), noise)
    charges = [Charge("gaussian", refuted, largest)] if refuted else []
    return _bound(refuted, accountant.epsilon(charges, delta), confidence, coins)


def bound_without_batches(
    coins: Flags, scores: Floats, rate: float, steps: int, noise: float, delta: float, confidence: float
) -> NoiseBound:
    """The ε against who does not know the batches. `noise`: as declared."""

    def most(found: float) -> float:
        return (1 + most_advantage(found, rate, steps)) / 2

    refuted = _refuted(most, _least_right(coins, scores, confidence), noise)
    epsilon = float(_losses(refuted, rate, steps).get_epsilon_for_delta(delta)) if refuted else 0.0
    return _bound(refuted, epsilon, confidence, coins)


def most_advantage(noise: float, rate: float, steps: int) -> float:
    """The most by which anybody's guesses of one label may tell two runs apart: their δ at ε = 0."""
    return float(_losses(noise, rate, steps).get_delta_for_epsilon(0.0))


def _bound(noise: float, epsilon: float, confidence: float, coins: Flags) -> NoiseBound:
    return NoiseBound(epsilon, confidence, len(coins), noise)


def _least_right(coins: Flags, scores: Floats, confidence: float) -> float:
    """How many guesses are right at least, Clopper and Pearson's bound."""
    if coins.shape != scores.shape or coins.ndim != 1 or not len(coins):
        raise NotDeclared("an audit has one score a coin, and at least one")
    right = int(((scores > 0) == coins).sum())
    return float(beta.ppf(1 - confidence, right, len(coins) - right + 1)) if right else 0.0


def _refuted(most: Callable[[float], float], least: float, declared: float) -> float:
    """The least noise that allows fewer right guesses than there are for certain; 0 if none is refuted."""
    low, high = declared / _REACH, declared * _REACH
    if most(high) >= least:
        return 0.0
    if most(low) < least:
        return low
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if most(middle) >= least else (low, middle)
    return high


@lru_cache(maxsize=64)
def _losses(noise: float, rate: float, steps: int) -> Any:  # noqa: ANN401 - a library without types
    # Importing it takes seconds, which commands that audit nothing need not wait for.
    from dp_accounting import NeighboringRelation  # noqa: PLC0415
    from dp_accounting.pld import privacy_loss_distribution as losses  # noqa: PLC0415

    one = losses.from_gaussian_mechanism(
        standard_deviation=2 * noise,
        sampling_prob=rate,
        value_discretization_interval=_INTERVAL * max(1.0, 1 / noise),
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    )
    return one.self_compose(steps)
