"""The error shown with an answer: how far the noise of all helpers may have moved it.

A sum of N Laplace variables is neither Laplace nor normal. Its density is a polynomial times e^-|t| with only
positive terms, so its tail is computed without cancellation, however small it is.
"""

import math
from functools import lru_cache, reduce
from statistics import NormalDist

import numpy as np

from maskedlark.dp.gaussian import Gaussian
from maskedlark.dp.laplace import Laplace
from maskedlark.dp.mechanisms import Kind, Sensitivity, check_helpers, deviation, law
from maskedlark.errors import NotDeclared

MIN_DOUBT = 1e-13
_SUMMED = 10.0
"""Up to this deviation the law of the rounded sum is computed exactly; above, rounding is small."""
_SUMMED_HELPERS = 16
_FAR = 64
"""A Laplace variable is beyond this many scales with a probability of e^-64."""
_CLOSE = 1e-12


def standard_error(kind: Kind, noise: float, sensitivity: Sensitivity, helpers: int) -> float:
    """The standard deviation of the sum of all helpers' noise. Anyone who shows an answer."""
    check_helpers(helpers)
    return math.sqrt(helpers) * deviation(kind, noise, sensitivity)


def half_width(kind: Kind, noise: float, sensitivity: Sensitivity, helpers: int, confidence: float) -> float:
    """The truth is within this of the answer, with this confidence or more. Anyone who shows an answer.

    A whole number, never too narrow: where its law is not computed exactly, rounding counts at its worst.
    """
    check_helpers(helpers)
    doubt = 1 - confidence
    if not MIN_DOUBT <= doubt < 1:
        raise NotDeclared(f"a confidence is over 0, and at most 1 - {MIN_DOUBT:g}")
    noise_law = law(kind, noise, sensitivity)
    if noise_law.deviation <= _SUMMED and helpers <= _SUMMED_HELPERS:
        return _summed(noise_law, helpers, doubt)
    if isinstance(noise_law, Laplace):
        return float(math.floor(noise_law.scale * _laplace_quantile(helpers, doubt) + helpers / 2))
    # From the lower tail: near 1 a float has no digits left for the upper one.
    quantile = -NormalDist().inv_cdf(doubt / 2)
    return float(math.floor(math.sqrt(helpers) * noise_law.sigma * quantile + helpers * noise_law.off))


@lru_cache(maxsize=256)
def _laplace_quantile(helpers: int, doubt: float) -> float:
    """The t that |a sum of Laplace variables of scale 1| exceeds with this probability, from above."""
    from scipy.optimize import brentq  # noqa: PLC0415 - slow to import

    far = float(_FAR + 2 * helpers)
    root = brentq(lambda t: math.log(2 * _laplace_tail(helpers, t) / doubt), 0.0, far, xtol=_CLOSE)
    return float(root) + 2 * _CLOSE


def _laplace_tail(helpers: int, t: float) -> float:
    """P(a sum of N Laplace variables of scale 1 exceeds t), t >= 0: a mixture of Gamma tails.

    The density is the sum over j < N of C(2N-2-j, N-1) / 2^(2N-1-j) times that of Gamma(j + 1).
    """
    tail, gamma, term = 0.0, 0.0, math.exp(-t)
    for j in range(helpers):
        gamma += term  # P(Gamma(j + 1) > t) is e^-t times the first j + 1 terms of e^t.
        tail += math.comb(2 * helpers - 2 - j, helpers - 1) / 2 ** (2 * helpers - 1 - j) * gamma
        term *= t / (j + 1)
    return tail


@lru_cache(maxsize=256)
def _summed(noise_law: Laplace | Gaussian, helpers: int, doubt: float) -> float:
    """The least h that the rounded sum exceeds with at most this probability, by its exact law."""
    beyond = np.array([_beyond(noise_law, n - 0.5) for n in range(1, noise_law.tail(1) + 2)])
    side = beyond[:-1] - beyond[1:]
    one = np.concatenate([side[::-1], [1 - 2 * beyond[0]], side])
    total = reduce(np.convolve, [one] * helpers)
    # From the far end, so that small terms are added first.
    outside = 2 * np.cumsum(total[::-1])[: len(total) // 2 + 1]
    return float(len(total) // 2 - np.searchsorted(outside, doubt, side="right"))


def _beyond(noise_law: Laplace | Gaussian, x: float) -> float:
    """P(one helper's noise exceeds x), before rounding."""
    if isinstance(noise_law, Laplace):
        return math.exp(-x / noise_law.scale) / 2
    return math.erfc(x / noise_law.sigma / math.sqrt(2)) / 2
