"""Generalised linear models from moments: minimise Σ c A(θ·φ) - θ·s + ½ Σ ρ θ². Run by the ad server.

The first part needs the rows and no label; s is the release. Whatever is fitted from it is post-processing.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax

from maskedlark.fitting.maps import Floats

_LARGEST = 60.0
"""An exponent beyond which a Poisson model's line search is steered by a straight line."""
_CLOSE = 1e-12
_STEEP = 1e-7
_MOST = 2000


class Family(ABC):
    """A, its gradient and its curvature. Scores are (n, outputs)."""

    name: ClassVar[str]
    dispersed: ClassVar[bool] = False
    """Whether labels vary around their mean by an unknown factor of A''."""

    @abstractmethod
    def value(self, scores: Floats) -> Floats:
        """A of every row."""

    @abstractmethod
    def mean(self, scores: Floats) -> Floats:
        """A': what a label is expected to be; (n, outputs)."""

    @abstractmethod
    def link(self, mean: Floats) -> Floats:
        """The scores of a mean, which may be out of range by noise."""

    def unit(self, spread: float) -> float:  # noqa: ARG002
        """What a large coefficient is, for labels of a range this wide."""
        return 1.0

    def curvature(self, means: Floats) -> Floats:
        """A'' at these means, of every row: (n, outputs, outputs)."""
        return self.variance(means)[:, :, None]

    @abstractmethod
    def variance(self, means: Floats) -> Floats:
        """The diagonal of A''."""


class Logistic(Family):
    """Labels 0 and 1."""

    name = "logistic"

    def value(self, scores: Floats) -> Floats:
        """log(1 + e^z)."""
        return np.logaddexp(0, scores[:, 0])

    def mean(self, scores: Floats) -> Floats:
        """The probability of 1."""
        return expit(scores)  # type: ignore[no-any-return]

    def link(self, mean: Floats) -> Floats:
        """Its logit."""
        inside = np.clip(mean, 1e-3, 1 - 1e-3)
        return np.log(inside / (1 - inside))

    def variance(self, means: Floats) -> Floats:
        """p (1 - p)."""
        return means * (1 - means)


class Softmax(Logistic):
    """One of several classes: an output each."""

    name = "softmax"

    def value(self, scores: Floats) -> Floats:
        """log Σ e^z."""
        return logsumexp(scores, axis=1)  # type: ignore[no-any-return]

    def mean(self, scores: Floats) -> Floats:
        """The probability of every class."""
        return softmax(scores, axis=1)  # type: ignore[no-any-return]

    def link(self, mean: Floats) -> Floats:
        """Logarithms, around 0."""
        scores = np.log(np.maximum(mean, 1e-3))
        return scores - scores.mean()

    def curvature(self, means: Floats) -> Floats:
        """diag(p) - p pᵀ."""
        return means[:, :, None] * (np.eye(means.shape[1]) - means[:, None, :])


class LeastSquares(Family):
    """Any number."""

    name = "least squares"
    dispersed = True

    def value(self, scores: Floats) -> Floats:
        """z² / 2."""
        return scores[:, 0] ** 2 / 2

    def unit(self, spread: float) -> float:
        """In the label's units."""
        return spread / 2

    def mean(self, scores: Floats) -> Floats:
        """z."""
        return scores

    def link(self, mean: Floats) -> Floats:
        """Itself."""
        return mean

    def variance(self, means: Floats) -> Floats:
        """1."""
        return np.ones_like(means)


class Poisson(Family):
    """Counts, and other numbers of 0 or more."""

    name = "poisson"
    dispersed = True

    def value(self, scores: Floats) -> Floats:
        """e^z."""
        return self.mean(scores)[:, 0] * (1 + np.maximum(scores[:, 0] - _LARGEST, 0))

    def mean(self, scores: Floats) -> Floats:
        """e^z."""
        return np.exp(np.minimum(scores, _LARGEST))

    def link(self, mean: Floats) -> Floats:
        """Its logarithm."""
        return np.log(np.maximum(mean, 1e-3))

    def variance(self, means: Floats) -> Floats:
        """The mean."""
        return means


@dataclass(frozen=True, eq=False)
class Problem:
    """The label-free part: φ with a last column of ones, and every row's weight."""

    family: Family
    phi: Floats
    weights: Floats
    """c, times how many records stand behind one row."""

    def solve(self, moments: Floats, ridge: Floats) -> Floats:
        """θ (outputs, width), to convergence. `moments` (outputs, width), `ridge` broadcasts to it."""
        phi, weights, shape = self.phi, self.weights, moments.shape
        start = np.zeros(shape)
        start[:, -1] = self.family.link(moments[:, -1] / weights.sum())
        means = self.family.mean(start[:, -1:].T)
        curve = self.family.variance(means).T * (weights @ (phi * phi)) + ridge
        # In these coordinates all directions are about equally steep, and L-BFGS needs few steps.
        scale = 1 / np.sqrt(curve)

        def objective(flat: Floats) -> tuple[float, Floats]:
            theta = flat.reshape(shape) * scale
            scores = phi @ theta.T
            value = weights @ self.family.value(scores) - (theta * moments).sum()
            means = self.family.mean(scores) * weights[:, None]
            slope = means.T @ phi - moments + ridge * theta
            return float(value + (ridge * theta * theta).sum() / 2), (slope * scale).ravel()

        options = {"maxiter": _MOST, "maxfun": 2 * _MOST, "ftol": _CLOSE, "gtol": _STEEP, "maxcor": 20}
        begin = (start / scale).ravel()
        found = minimize(objective, begin, jac=True, method="L-BFGS-B", options=options)
        return np.asarray(found.x, np.float64).reshape(shape) * scale

    def curvature(self, theta: Floats) -> Floats:
        """The Hessian of the label-free part at θ: (outputs, width, outputs, width)."""
        means = self.family.mean(self.phi @ theta.T)
        each = self.family.curvature(means) * self.weights[:, None, None]
        outputs, width = theta.shape
        hessian = np.empty((outputs, width, outputs, width))
        for one in range(outputs):
            for other in range(one + 1):
                block = (self.phi * each[:, one, other, None]).T @ self.phi
                hessian[one, :, other], hessian[other, :, one] = block, block.T
        return hessian


FAMILIES: dict[str, Family] = {each.name: each for each in (Logistic(), Softmax(), LeastSquares(), Poisson())}
