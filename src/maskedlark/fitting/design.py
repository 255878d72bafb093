"""Which map and clip, before anything is spent: a Bayesian experiment that looks at no label.

Assume a truth of a stated spread: a third of its variance linear in the columns, a third in steps of them, a
third in leaves of pairs. A release with the plan's noise then explains a share of that variance, which has a
closed form (all is linear and normal). The map and clip that explain most are taken. Run by the ad server.
"""

import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from maskedlark.fitting import maps
from maskedlark.fitting.maps import Floats

SAMPLE = 5000
"""So many rows decide."""
QUANTILES = (0.25, 0.5, 0.9)
"""Of the norms of φ: candidates for the clip."""
_SHARES = (1 / 3, 1 / 3, 1 / 3)
_TRUTHS, _DRAWS, _POINTS = 8, 8, 161


@dataclass(frozen=True)
class Assumed:
    """What a design assumes of the labels."""

    variance: float
    """A'' at the mean."""
    spread: float
    """The deviation of the true scores."""
    dispersion: float = 1.0
    rate: float = 0.5
    """The mean of a binary label."""
    rounding: float = 0.0
    """The most that browsers' rounding adds to a label's variance."""


class Reference:
    """Truths over these rows: standardised units and the prior variance of their coefficients."""

    def __init__(self, rows: NDArray[np.uint8], names: tuple[str, ...], seed: int) -> None:
        groups, blocks, variances = ("columns", "buckets", "trees"), [], []
        for kind, share in zip(groups, _SHARES, strict=True):
            numbers = maps.make_units(rows, names, kind, seed + 1)(rows)
            numbers = numbers if kind == "columns" else numbers[:, rows.shape[1] :]
            deviation = numbers.std(axis=0)
            varying = deviation > 1e-9
            if varying.any():
                blocks.append(((numbers - numbers.mean(axis=0)) / np.maximum(deviation, 1e-9))[:, varying])
                variances.append(np.full(int(varying.sum()), share / varying.sum()))
        self.units = np.concatenate(blocks, axis=1) if blocks else np.zeros((len(rows), 1))
        shares = np.concatenate(variances) if blocks else np.ones(1)
        self.variances = shares / shares.sum()

    @cached_property
    def covariance(self) -> Floats:
        """Of the units."""
        covariance: Floats = self.units.T @ self.units / len(self.units)
        return covariance


class Experiment:
    """A release of the moments of φ with noise, under a reference's truths."""

    def __init__(
        self,
        reference: Reference,
        phi: Floats,
        weights: Floats,
        clips: Floats,
        noise: float,
        assumed: Assumed,
    ) -> None:
        self._reference, self._assumed = reference, assumed
        centred = phi - weights @ phi / weights.sum()
        self._cross = reference.units.T @ (centred * weights[:, None]) * assumed.variance
        sampled = centred.T @ (centred * (weights * clips)[:, None]) * assumed.variance * assumed.dispersion
        self._sampled, self._released, self._total = sampled, noise, weights.sum()
        self._rows = centred * np.sqrt(weights * assumed.variance)[:, None]
        self._prior = reference.variances * assumed.spread**2

    def noisier(self, times: float) -> "Experiment":
        """The same with so many times the noise."""
        if times == 1:
            return self
        other = copy.copy(self)
        other._released = self._released * times
        for cached in ("_gain", "explained", "error_root"):
            vars(other).pop(cached, None)
        return other

    @property
    def _noise(self) -> Floats:
        noise: Floats = self._sampled + self._released**2 * np.eye(len(self._sampled))
        return noise

    @cached_property
    def _gain(self) -> Floats:
        """From a release to the expected coefficients of the truth."""
        covariance = self._cross.T @ (self._prior[:, None] * self._cross) + self._noise
        gain: Floats = np.linalg.solve(covariance, self._cross.T * self._prior).T
        return gain

    @cached_property
    def explained(self) -> float:
        """The expected share of the truth's variance, 0 to 1."""
        product = self._gain @ (self._cross.T * self._prior)
        return float((product * self._reference.covariance).sum()) / self._assumed.spread**2

    @cached_property
    def error_root(self) -> Floats:
        """A root of the covariance of φ's coefficients, rows (any, width), under a ridge for the noise.

        By noise, and by rounding as if no row were clipped.
        """
        values, vectors = np.linalg.eigh(self._rows.T @ self._rows)
        values = np.maximum(values, 1e-12 * values.max())
        # As in `prior`: variances in proportion to curvature, which add up to what is explained.
        spread = self.explained * self._assumed.spread**2 * self._assumed.variance * self._total
        ridge = self._released**2 * (values**2).sum() / (values**2 * spread)
        off = np.sqrt(self._released**2 + self._assumed.rounding / self._assumed.variance * values)
        root: Floats = vectors * (off / (values + ridge))
        return root.T

    def auc(self, seed: int) -> tuple[float, float]:
        """The expected AUC, and its deviation by noise and labels, by simulating truths and releases."""
        rng = np.random.Generator(np.random.PCG64(seed))
        root, reference = np.linalg.cholesky(self._noise), self._reference.covariance
        aucs = np.empty((_TRUTHS, _DRAWS))
        for one, truth in enumerate(rng.standard_normal((_TRUTHS, len(self._prior))) * np.sqrt(self._prior)):
            noise = root @ rng.standard_normal((len(root), _DRAWS))
            guesses = self._gain @ ((truth @ self._cross)[:, None] + noise)
            both = truth @ reference @ guesses
            spreads = truth @ reference @ truth, (guesses * (reference @ guesses)).sum(axis=0)
            share = np.clip(both / np.sqrt(spreads[0] * spreads[1] + 1e-300), 0, 1) ** 2
            aucs[one] = [_auc(float(each), float(np.sqrt(spreads[0])), self._assumed.rate) for each in share]
        return float(aucs.mean()), float(aucs.std(axis=1).mean())


def _auc(share: float, spread: float, rate: float) -> float:
    """The AUC of normal scores that explain a share of a normal logit's variance."""
    at = np.linspace(-5, 5, _POINTS)
    density = np.exp(-(at**2) / 2)
    density /= density.sum()
    logits = np.log(rate / (1 - rate)) - spread**2 / 4 + spread * np.sqrt(share) * at
    chance = expit(logits[:, None] + spread * np.sqrt(1 - share) * at[None, :]) @ density
    ones, zeros = density * chance, density * (1 - chance)
    below = np.cumsum(zeros) - zeros / 2
    return float((ones @ below) / (ones.sum() * zeros.sum()))
