"""A lower bound on ε, from what canaries gave away. Run by anyone who audits helpers that answer.

A canary is a record whose secret the auditor chose by a coin: one of two that are neighbours. From the
answers the auditor guesses the coins. Any (ε, δ)-private answer keeps P(guess 1 | 1) <= e^ε P(guess 1 | 0)
+ δ, so the rates that were seen, each moved to the unlucky end of its exact interval, bound ε from below.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta

from maskedlark.dp import accountant
from maskedlark.dp.accountant import Charge
from maskedlark.errors import NotDeclared


@dataclass(frozen=True)
class Bound:
    """What an audit found: ε is at least this, with this confidence, from so many canaries."""

    epsilon: float
    confidence: float
    trials: int


def lower_bound(coins: NDArray[np.bool_], answers: ArrayLike, confidence: float, delta: float = 0.0) -> Bound:
    """The largest ε that the canaries refute. Larger answers speak for a coin of 1.

    The threshold is chosen on one half of the canaries and judged on the other: so choosing costs nothing.
    """
    scores = np.asarray(answers, np.float64)
    if coins.shape != scores.shape or coins.ndim != 1 or min(coins.sum(), (~coins).sum()) < 4:
        raise NotDeclared("an audit has one answer a coin, and several of both sides")
    chosen, judged = np.arange(len(coins)) % 2 == 0, np.arange(len(coins)) % 2 == 1
    found, each = 0.0, 1 - (1 - confidence) / 2
    # One threshold from above and one from below: either side of the answer may tell more.
    for sign in (1.0, -1.0):
        side = coins if sign > 0 else ~coins
        threshold = _best_threshold(side[chosen], sign * scores[chosen], each, delta)
        guesses = sign * scores[judged] >= threshold
        found = max(found, _epsilon(side[judged], guesses, each, delta))
    return Bound(found, confidence, len(coins))


def signed_lower_bound(
    coins: NDArray[np.bool_], scores: ArrayLike, confidence: float, delta: float = 0.0
) -> Bound:
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
        return math.log((hit - delta) / false) if hit - delta > false else 0.0

    chosen, judged = slice(0, None, 2), slice(1, None, 2)
    candidates = np.quantile(sure[chosen], np.linspace(0, 0.99, 100))
    threshold = float(max(candidates, key=lambda each: refuted(chosen, float(each))))
    return Bound(refuted(judged, threshold), confidence, len(coins))


def gaussian_lower_bound(
    coins: NDArray[np.bool_], answers: ArrayLike, threshold: float, confidence: float, delta: float
) -> Bound:
    """The same for Gaussian noise, which one threshold at a small δ hardly sees.

    Whatever the threshold, Gaussian noise of multiplier m has Φ⁻¹(hits) - Φ⁻¹(false alarms) = 1/m: the rates
    bound m from above, and m has its ε at δ. `threshold` is chosen before any answer is seen.
    """
    guesses = np.asarray(answers, np.float64) >= threshold
    hit, false = _rates(coins, guesses, confidence)
    if hit <= false:  # Also where all answers are on one side: rates of 0 and 1 have no Φ⁻¹.
        return Bound(0.0, confidence, len(coins))
    difference = NormalDist().inv_cdf(hit) - NormalDist().inv_cdf(false)
    found = accountant.epsilon([Charge("gaussian", 1 / difference, 1)], delta)
    return Bound(found, confidence, len(coins))


def _best_threshold(
    coins: NDArray[np.bool_], scores: NDArray[np.float64], confidence: float, delta: float
) -> float:
    """Where most is refuted, among the scores' own quantiles.

    At the confidence that judges: at a lesser one, rare scores are chosen, of which few are judged.
    """
    candidates = np.quantile(scores, np.linspace(0.01, 0.99, 99))
    return float(max(candidates, key=lambda each: _epsilon(coins, scores >= each, confidence, delta)))


def _epsilon(coins: NDArray[np.bool_], guesses: NDArray[np.bool_], confidence: float, delta: float) -> float:
    """What one test refutes."""
    hit, false = _rates(coins, guesses, confidence)
    return math.log((hit - delta) / false) if hit - delta > false else 0.0


def _rates(coins: NDArray[np.bool_], guesses: NDArray[np.bool_], confidence: float) -> tuple[float, float]:
    """Hits from below, false alarms from above: Clopper and Pearson's bounds, each with half the doubt."""
    doubt = (1 - confidence) / 2
    hit = _least(int((guesses & coins).sum()), int(coins.sum()), doubt)
    return hit, _most(int((guesses & ~coins).sum()), int((~coins).sum()), doubt)


def _least(successes: int, trials: int, doubt: float) -> float:
    return float(beta.ppf(doubt, successes, trials - successes + 1)) if successes else 0.0


def _most(successes: int, trials: int, doubt: float) -> float:
    return float(beta.ppf(1 - doubt, successes + 1, trials - successes)) if successes < trials else 1.0
