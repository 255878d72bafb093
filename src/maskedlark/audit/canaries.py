"""Lower bounds on ε, from what canaries gave away. Run by anyone who audits helpers that answer or train.

A canary is a record whose secret the auditor chose by a coin: one of two that are neighbours. From the
answers the auditor guesses the coins. Any (ε, δ)-private answer keeps P(guess 1 | 1) <= e^ε P(guess 1 | 0)
+ δ, so the rates that were seen, each moved to the unlucky end of its exact interval, bound ε from below.

In training, a canary has one feature of its own, so that its gradient moves one number of the sum that no
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
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, norm

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


def lower_bound(coins: Flags, answers: ArrayLike, confidence: float, delta: float = 0.0) -> float:
    """The largest ε that the canaries refute. Larger answers speak for a coin of 1.

    The threshold is chosen on one half of the canaries and judged on the other: so choosing costs nothing.
    """
    scores, surer = np.asarray(answers, np.float64), 1 - (1 - confidence) / 2
    if coins.shape != scores.shape or coins.ndim != 1 or min(coins.sum(), (~coins).sum()) < 4:
        raise NotDeclared("an audit has one answer a coin, and several of both sides")

    def refuted(side: Flags, signed: Floats) -> float:
        def by(some: slice, threshold: float) -> float:
            return _log_ratio(*_rates(side[some], signed[some] >= threshold, surer), delta)

        return _judged(by, signed, np.linspace(0.01, 0.99, 99))

    # One threshold from above and one from below, each with half the doubt: either side may tell more.
    return max(refuted(coins, scores), refuted(~coins, -scores))


def signed_lower_bound(coins: Flags, scores: ArrayLike, confidence: float, delta: float = 0.0) -> float:
    """The same for scores whose sign is the guess, and whose size says how sure it is.

    A canary that is not sure enough is not guessed. Of a fair coin any (ε, δ)-private answer keeps P(guessed
    right) <= e^ε P(guessed wrong) + δ, which needs half as many canaries as a test of one side.
    """
    signed = np.asarray(scores, np.float64)
    if coins.shape != signed.shape or coins.ndim != 1 or len(coins) < 4:
        raise NotDeclared("an audit has one score a coin, and several of them")
    right, sure, doubt = (signed > 0) == coins, np.abs(signed), (1 - confidence) / 2

    def refuted(some: slice, threshold: float) -> float:
        guessed, of = right[some][sure[some] >= threshold], len(right[some])
        hit, false = _least(int(guessed.sum()), of, doubt), _most(int((~guessed).sum()), of, doubt)
        return _log_ratio(hit, false, delta)

    return _judged(refuted, sure, np.linspace(0, 0.99, 100))


def gaussian_lower_bound(
    coins: Flags, answers: ArrayLike, threshold: float, confidence: float, delta: float
) -> float:
    """The same for Gaussian noise, which one threshold at a small δ hardly sees.

    Whatever the threshold, Gaussian noise of multiplier m has Φ⁻¹(hits) - Φ⁻¹(false alarms) = 1/m: the rates
    bound m from above, and m has its ε at δ. `threshold` is chosen before any answer is seen.
    """
    guesses = np.asarray(answers, np.float64) >= threshold
    hit, false = _rates(coins, guesses, confidence)
    if hit <= false:  # Also where all answers are on one side: rates of 0 and 1 have no Φ⁻¹.
        return 0.0
    difference = float(norm.ppf(hit) - norm.ppf(false))
    return accountant.epsilon([Charge("gaussian", 1 / difference, 1)], delta)


def _judged(refuted: Callable[[slice, float], float], scores: Floats, quantiles: Floats) -> float:
    """What one half of the canaries refutes, by the threshold that refutes most on the other half.

    At the confidence that judges: at a lesser one, rare scores are chosen, of which few are judged.
    """
    chosen, judged = slice(0, None, 2), slice(1, None, 2)
    candidates: list[float] = np.quantile(scores[chosen], quantiles).tolist()
    return refuted(judged, max(candidates, key=lambda each: refuted(chosen, each)))


def _log_ratio(hit: float, false: float, delta: float) -> float:
    """What one test refutes."""
    return math.log((hit - delta) / false) if hit - delta > false else 0.0


def _rates(coins: Flags, guesses: Flags, confidence: float) -> tuple[float, float]:
    """Hits from below, false alarms from above: Clopper and Pearson's bounds, each with half the doubt."""
    doubt = (1 - confidence) / 2
    hit = _least(int((guesses & coins).sum()), int(coins.sum()), doubt)
    return hit, _most(int((guesses & ~coins).sum()), int((~coins).sum()), doubt)


def _least(successes: int, trials: int, doubt: float) -> float:
    return float(beta.ppf(doubt, successes, trials - successes + 1)) if successes else 0.0


def _most(successes: int, trials: int, doubt: float) -> float:
    return float(beta.ppf(1 - doubt, successes + 1, trials - successes)) if successes < trials else 1.0


# Training.


@dataclass(frozen=True)
class NoiseBound:
    """What an audit of training found: ε is at least this; and the multiplier of noise that was refuted."""

    epsilon: float
    noise: float
    """Of one helper."""


def features(count: int) -> NDArray[np.uint8]:
    """So many canaries, each with a feature of its own."""
    return np.eye(count, dtype=np.uint8) * np.uint8(255)


def with_batches(sums: Floats, drawn: Flags) -> Floats:
    """Scores of who knows which canaries (steps, n) each sum (steps, n) had."""
    counted = np.maximum(drawn.sum(axis=0), 1)
    scores: Floats = (sums * drawn).sum(axis=0) / np.sqrt(counted)
    return scores


def first(drawn: Flags, most: int) -> Flags:
    """So many batches of each canary, and no more: where all are guessed right, none says how much noise."""
    return drawn & (drawn.cumsum(axis=0) <= most)


def judged(noise: float) -> int:
    """So many batches of a canary that about nine guesses in ten are right, by who knows them."""
    return max(1, round(6 * noise * noise))


def without_batches(sums: Floats, rate: float, noise: float) -> Floats:
    """Scores of who knows that canaries are in a batch at this rate, and the noise that it sees."""
    left = math.log((1 - rate) / rate) if rate < 1 else -np.inf
    # How much likelier a sum is with 1/2 added than with nothing, as a logarithm: (s - 1/4) / 2 noise².
    one, zero = (np.logaddexp(left, (s - 0.25) / (2 * noise * noise)) for s in (sums, -sums))
    scores: Floats = (one - zero).sum(axis=0)
    return scores


def bound_with_batches(
    coins: Flags, scores: Floats, batches: Counts, largest: int, noise: float, delta: float, confidence: float
) -> NoiseBound:
    """The ε, against who knows the batches, of a canary that was in the `largest` number of them.

    `batches`: how many of each canary its score is made of. `noise`: as declared.
    """

    def most(refuted: float) -> float:
        return float(norm.cdf(np.sqrt(batches) / (2 * refuted)).mean())

    refuted = _refuted(most, _least_right(coins, scores, confidence), noise)
    charges = [Charge("gaussian", refuted, largest)] if refuted else []
    return NoiseBound(accountant.epsilon(charges, delta), refuted)


def bound_without_batches(
    coins: Flags, scores: Floats, rate: float, steps: int, noise: float, delta: float, confidence: float
) -> NoiseBound:
    """The ε against who does not know the batches. `noise`: as declared."""

    def most(refuted: float) -> float:
        return (1 + most_advantage(refuted, rate, steps)) / 2

    refuted = _refuted(most, _least_right(coins, scores, confidence), noise)
    epsilon = float(_losses(refuted, rate, steps).get_epsilon_for_delta(delta)) if refuted else 0.0
    return NoiseBound(epsilon, refuted)


def most_advantage(noise: float, rate: float, steps: int) -> float:
    """The most by which anybody's guesses of one label may tell two runs apart: their δ at ε = 0."""
    return float(_losses(noise, rate, steps).get_delta_for_epsilon(0.0))


def _least_right(coins: Flags, scores: Floats, confidence: float) -> float:
    """How many guesses are right at least, Clopper and Pearson's bound."""
    if coins.shape != scores.shape or coins.ndim != 1 or not len(coins):
        raise NotDeclared("an audit has one score a coin, and at least one")
    return _least(int(((scores > 0) == coins).sum()), len(coins), 1 - confidence)


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
