"""Generalised linear models from moments: minimise Σ c A(θ·φ) - θ·s + ½ Σ ρ θ². Run by the ad server.

The first part needs the rows and no label; s is the release. Whatever is fitted from it is post-processing.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special
from scipy.optimize import minimize

from maskedlark.fitting.maps import Floats

_FAR = 60.0
"""A Poisson model's line search goes on straight from here."""
_LEAST = 1e-3
"""Means that noise put out of range are moved to this distance from its end."""
_OPTIONS = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-12, "gtol": 1e-7, "maxcor": 20}


@dataclass(frozen=True)
class Family:
    """A, its slope and its curvature. Scores and means are (n, outputs)."""

    name: str
    value: Callable[[Floats], Floats]
    """A of every row."""
    mean: Callable[[Floats], Floats]
    """A': what a label is expected to be."""
    link: Callable[[Floats], Floats]
    """The scores of means, which noise may have put out of range."""
    variance: Callable[[Floats], Floats]
    """The diagonal of A'', from means."""
    is_class: bool = False
    """Whether means are probabilities."""

    @property
    def is_binary(self) -> bool:
        """Whether the label is 0 or 1."""
        return self is LOGISTIC

    def unit(self, spread: float) -> float:
        """What a large coefficient is, for labels of a range this wide."""
        return spread / 2 if self is LEAST_SQUARES else 1.0


LOGISTIC = Family(
    "logistic",
    lambda z: np.logaddexp(0, z[:, 0]),
    special.expit,
    lambda p: special.logit(np.clip(p, _LEAST, 1 - _LEAST)),
    lambda p: p * (1 - p),
    is_class=True,
)
SOFTMAX = Family(
    "softmax",
    lambda z: special.logsumexp(z, axis=1),
    lambda z: special.softmax(z, axis=1),
    lambda p: np.log(np.maximum(p, _LEAST)),
    lambda p: p * (1 - p),
    is_class=True,
)
LEAST_SQUARES = Family(
    "least squares",
    lambda z: z[:, 0] ** 2 / 2,
    lambda z: z,
    lambda mean: mean,
    np.ones_like,
)
POISSON = Family(
    "poisson",
    lambda z: (np.exp(np.minimum(z, _FAR)) * (1 + np.maximum(z - _FAR, 0)))[:, 0],
    lambda z: np.exp(np.minimum(z, _FAR)),
    lambda mean: np.log(np.maximum(mean, _LEAST)),
    lambda mean: mean,
)
FAMILIES = {each.name: each for each in (LOGISTIC, SOFTMAX, LEAST_SQUARES, POISSON)}


@dataclass(frozen=True, eq=False)
class Problem:
    """The label-free part: φ with a last column of ones, and every row's weight."""

    family: Family
    phi: Floats
    weights: Floats
    """c, times how many records stand behind one row."""

    def solve(self, moments: Floats, ridge: Floats) -> Floats:
        """θ (outputs, width), to convergence. `moments` (outputs, width), `ridge` broadcasts to it."""
        phi, weights, family, shape = self.phi, self.weights, self.family, moments.shape
        start = np.zeros(shape)
        start[:, -1] = family.link(moments[:, -1] / weights.sum())
        curve = family.variance(family.mean(start[:, -1:].T)).T * (weights @ (phi * phi)) + ridge
        # In these coordinates all directions are about equally steep, and L-BFGS needs few steps.
        scale = 1 / np.sqrt(curve)

        def objective(flat: Floats) -> tuple[float, Floats]:
            theta = flat.reshape(shape) * scale
            scores = phi @ theta.T
            value = weights @ family.value(scores) + (theta * (ridge * theta / 2 - moments)).sum()
            slope = (family.mean(scores) * weights[:, None]).T @ phi - moments + ridge * theta
            return float(value), (slope * scale).ravel()

        begin = (start / scale).ravel()
        found = minimize(objective, begin, jac=True, method="L-BFGS-B", options=_OPTIONS)
        return np.asarray(found.x, np.float64).reshape(shape) * scale

    def hessian(self, theta: Floats) -> Floats:
        """Of the label-free part at θ: (outputs · width, outputs · width)."""
        means, (outputs, width) = self.family.mean(self.phi @ theta.T), theta.shape
        variances, whole = self.family.variance(means), np.empty((outputs, width, outputs, width))
        for one in range(outputs):
            for other in range(one + 1):
                each = variances[:, one] if one == other else -means[:, one] * means[:, other]
                block = (self.phi * (each * self.weights)[:, None]).T @ self.phi
                whole[one, :, other], whole[other, :, one] = block, block.T
        return whole.reshape(theta.size, theta.size)
