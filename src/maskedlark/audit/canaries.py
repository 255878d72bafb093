"""Lower bounds on ε, from what canaries revealed. Run by anyone auditing releases or training.

A canary is a record whose secret the auditor chose by a coin from two neighbours, and guesses from the
answers. Any (ε, δ)-private answer keeps P(guess 1 | 1) <= e^ε P(guess 1 | 0) + δ, so the observed rates, each
at the unfavourable end of its exact interval, bound ε from below.

In training, a canary has one feature of its own, so that its gradient moves one number of the sum that no
other record moves: a run over n canaries is n trials. Its label is a fair coin, and the other label moves the
sum by the full sensitivity S. All sums here are in units of S: in a batch, a canary adds 1/2 if its coin is 1
and -1/2 if it is 0.

There are two attackers, one per ε figure. One knows the batches; its best score is the sum of a canary's
numbers over its steps. The other does not; its best score is the likelihood ratio of the two mixtures,
multiplied over the steps. Both guess 1 where their score is positive.

Why right guesses bound ε: nobody guesses a fair coin right more often than (1 + TV) / 2, where TV, the total
variation distance of the two runs, follows from the noise. So a noise that allows fewer right guesses than
the unfavourable end of their exact interval is refuted, and the actual noise has at least the ε of the
largest one refuted. For canaries of unequal odds, extreme counts are no likelier than for equal odds of the
same mean (Hoeffding, 1956), so the exact interval holds for them too.
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
"""Noise is searched from the declared one divided by this to the declared one times this."""
_HALVINGS = 16
_INTERVAL = 5e-3
"""The grid of losses, coarser for small noise, whose losses are large. An upper estimate."""


def lower_bound(coins: Flags, answers: ArrayLike, confidence: float, delta: float = 0.0) -> float:
    """The largest ε that the canaries refute. Larger answers indicate a coin of 1.

    The threshold is chosen on one half of the canaries and judged on the other, so choosing costs nothing.
    """
    scores, surer = np.asarray(answers, np.float64), 1 - (1 - confidence) / 2
    if coins.shape != scores.shape or coins.ndim != 1 or min(coins.sum(), (~coins).sum()) < 4:
        raise NotDeclared("an audit has one answer a coin, and several of both sides")

    def refuted(side: Flags, signed: Floats) -> float:
        def by(some: slice, threshold: float) -> float:
            return _log_ratio(*_rates(side[some], signed[some] >= threshold, surer), delta)

        return _judged(by, signed, np.linspace(0.01, 0.99, 99))

    # One threshold from above and one from below, each with half the doubt: either may reveal more.
    return max(refuted(coins, scores), refuted(~coins, -scores))


def signed_lower_bound(coins: Flags, scores: ArrayLike, confidence: float, delta: float = 0.0) -> float:
    """The same for scores whose sign is the guess, and whose size says how sure it is.

    Canaries with a small score are not guessed. For a fair coin any (ε, δ)-private answer keeps P(guessed
    right) <= e^ε P(guessed wrong) + δ, which needs half as many canaries as a one-sided test.
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
    """The same for Gaussian noise, which one threshold at a small δ hardly detects.

    For any threshold, Gaussian noise of multiplier m has Φ⁻¹(hits) - Φ⁻¹(false alarms) = 1/m: the rates bound
    m from above, and m determines ε at δ. `threshold` must be chosen before any answer is seen.
    """
    guesses = np.asarray(answers, np.float64) >= threshold
    hit, false = _rates(coins, guesses, confidence)
    if hit <= false:  # Also if all answers are on one side: Φ⁻¹ is infinite for rates of 0 and 1.
        return 0.0
    difference = float(norm.ppf(hit) - norm.ppf(false))
    return accountant.epsilon([Charge("gaussian", 1 / difference, 1)], delta)


def _judged(refuted: Callable[[slice, float], float], scores: Floats, quantiles: Floats) -> float:
    """What one half of the canaries refutes, by the threshold that refutes most on the other half.

    Chosen at the final confidence: a lower one would choose rare scores, of which few are judged.
    """
    chosen, judged = slice(0, None, 2), slice(1, None, 2)
    candidates: list[float] = np.quantile(scores[chosen], quantiles).tolist()
    return refuted(judged, max(candidates, key=lambda each: refuted(chosen, each)))


def _log_ratio(hit: float, false: float, delta: float) -> float:
    """The ε that one test refutes."""
    return math.log((hit - delta) / false) if hit - delta > false else 0.0


def _rates(coins: Flags, guesses: Flags, confidence: float) -> tuple[float, float]:
    """Clopper-Pearson bounds, hits from below and false alarms from above, each with half the doubt."""
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
    """A lower bound on ε, and the refuted multiplier of one helper's noise."""

    epsilon: float
    noise: float


def features(count: int) -> NDArray[np.uint8]:
    """The features of `count` canaries, each with one of its own."""
    return np.eye(count, dtype=np.uint8) * np.uint8(255)


def with_batches(sums: Floats, drawn: Flags) -> Floats:
    """Scores by an attacker who knows which canaries (steps, n) each sum (steps, n) has."""
    counted = np.maximum(drawn.sum(axis=0), 1)
    scores: Floats = (sums * drawn).sum(axis=0) / np.sqrt(counted)
    return scores


def first_batches(drawn: Flags, most: int) -> Flags:
    """The first `most` batches of each canary: if all are guessed right, they do not show the noise."""
    return drawn & (drawn.cumsum(axis=0) <= most)


def telling_batches(noise: float) -> int:
    """With this many batches, an attacker who knows them guesses about nine canaries in ten right."""
    return max(1, round(6 * noise * noise))


def without_batches(sums: Floats, rate: float, noise: float) -> Floats:
    """Scores by an attacker who knows only the sampling rate and the noise."""
    left = math.log((1 - rate) / rate) if rate < 1 else -np.inf
    # The log-likelihood ratio of a sum with 1/2 added against nothing: (s - 1/4) / 2 noise².
    one, zero = (np.logaddexp(left, (s - 0.25) / (2 * noise * noise)) for s in (sums, -sums))
    scores: Floats = (one - zero).sum(axis=0)
    return scores


def bound_with_batches(
    coins: Flags, scores: Floats, batches: Counts, largest: int, noise: float, delta: float, confidence: float
) -> NoiseBound:
    """The ε, against an adversary who knows the batches, of a canary in `largest` of them.

    `batches`: how many batches each canary's score uses. `noise`: as declared.
    """

    def most(refuted: float) -> float:
        return float(norm.cdf(np.sqrt(batches) / (2 * refuted)).mean())

    refuted = _refuted(most, _min_right(coins, scores, confidence), noise)
    charges = [Charge("gaussian", refuted, largest)] if refuted else []
    return NoiseBound(accountant.epsilon(charges, delta), refuted)


def bound_without_batches(
    coins: Flags, scores: Floats, rate: float, steps: int, noise: float, delta: float, confidence: float
) -> NoiseBound:
    """The ε against an adversary who does not know the batches. `noise`: as declared."""

    def most(refuted: float) -> float:
        return (1 + max_advantage(refuted, rate, steps)) / 2

    refuted = _refuted(most, _min_right(coins, scores, confidence), noise)
    epsilon = float(_losses(refuted, rate, steps).get_epsilon_for_delta(delta)) if refuted else 0.0
    return NoiseBound(epsilon, refuted)


def max_advantage(noise: float, rate: float, steps: int) -> float:
    """The largest advantage of guessing one label: the δ of the two runs at ε = 0."""
    return float(_losses(noise, rate, steps).get_delta_for_epsilon(0.0))


def _min_right(coins: Flags, scores: Floats, confidence: float) -> float:
    """The Clopper-Pearson lower bound on the share of right guesses."""
    if coins.shape != scores.shape or coins.ndim != 1 or not len(coins):
        raise NotDeclared("an audit has one score a coin, and at least one")
    return _least(int(((scores > 0) == coins).sum()), len(coins), 1 - confidence)


def _refuted(most: Callable[[float], float], least: float, declared: float) -> float:
    """The smallest noise that allows fewer right guesses than the lower bound; 0 if none is refuted."""
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
    # Imported here because it takes seconds.
    from dp_accounting import NeighboringRelation  # noqa: PLC0415
    from dp_accounting.pld import privacy_loss_distribution as losses  # noqa: PLC0415

    one = losses.from_gaussian_mechanism(
        standard_deviation=2 * noise,
        sampling_prob=rate,
        value_discretization_interval=_INTERVAL * max(1.0, 1 / noise),
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    )
    return one.self_compose(steps)
