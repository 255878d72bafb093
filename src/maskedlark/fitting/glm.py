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
_TINY = 1e-300
_FLAT = 1e-3
"""The largest slope at a solution, as a part of the largest moment: most have less than 1e-6."""
_ENDLESS = 1e3
"""Logits, and logarithms of means, that are further off were stopped by nothing but the ridge."""
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


def consistent(family: Family, moments: Floats, total: Floats) -> Floats:
    """Moments whose classes add up to `total`, which is known: that of all labels. So there is a solution."""
    if family is not SOFTMAX:
        return moments
    known: Floats = moments - (moments.sum(axis=0) - total) / len(moments)
    return known


@dataclass(frozen=True, eq=False)
class Rows:
    """φ with a last column of ones, and how much every row counts."""

    phi: Floats
    clips: Floats
    """c: the helpers' clip factors."""
    behind: float = 1.0
    """How many records stand behind one row."""

    @property
    def weights(self) -> Floats:
        """Of the rows in sums over records."""
        return self.clips * self.behind

    def rounding_root(self, columns: Floats, variance: float) -> Floats:
        """A root of the covariance of Σ c x y over records, x these columns, if every y varies this much."""
        return root((columns * (variance * self.weights * self.clips)[:, None]).T @ columns)


@dataclass(frozen=True, eq=False)
class Problem:
    """The label-free part, in an orthogonal basis in which its curvature is about diagonal."""

    family: Family
    rows: Rows
    basis: Floats
    """(width, width)."""
    squares: Floats
    """Σ c φ² in these coordinates, about: it scales them."""

    def solve(self, moments: Floats, ridge: Floats) -> Floats:
        """θ (outputs, width), to convergence. `moments` (outputs, width), `ridge` broadcasts to it."""
        family, shape = self.family, moments.shape
        start = np.zeros(shape)
        start[:, -1] = family.link(moments[:, -1] / self.rows.weights.sum())
        curve = family.variance(family.mean(start[:, -1:].T)).T * self.squares + ridge
        # In these coordinates all directions are about equally steep, and L-BFGS needs few steps.
        scale = 1 / np.sqrt(curve)

        def objective(flat: Floats) -> tuple[float, Floats]:
            theta = flat.reshape(shape) * scale
            scores, slope = self._slope(theta, moments, ridge)
            value = self.rows.weights @ family.value(scores) + (theta * (ridge * theta / 2 - moments)).sum()
            return float(value), (slope * scale).ravel()

        begin = (start / scale).ravel()
        solution = minimize(objective, begin, jac=True, method="L-BFGS-B", options=_OPTIONS)
        theta = np.asarray(solution.x, np.float64).reshape(shape) * scale
        if family is SOFTMAX:
            # What all classes share moves the ridge alone, too little for L-BFGS to see: its best is known.
            theta -= (ridge * theta).sum(axis=0) / np.maximum((ridge + 0 * theta).sum(axis=0), _TINY)
        return theta

    def is_solved(self, theta: Floats, moments: Floats, ridge: Floats) -> bool:
        """Whether it is flat at θ, and noise put the moments not so far out that θ would have no end."""
        scores, slope = self._slope(theta, moments, ridge)
        if self.family is not SOFTMAX:
            scores = np.concatenate([0 * scores, scores], axis=1)
        # Of classes, the likeliest two: noise may well say that there are none of a rare third.
        second, first = np.sort(scores, axis=1)[:, -2:].T
        near = self.family is LEAST_SQUARES or (first - second).max() < _ENDLESS
        return bool(near and np.abs(slope).max() <= _FLAT * np.abs(moments).max())

    def _slope(self, theta: Floats, moments: Floats, ridge: Floats) -> tuple[Floats, Floats]:
        """The scores of all rows, and the slope."""
        scores = self.rows.phi @ (self.basis @ theta.T)
        sums = (self.family.mean(scores) * self.rows.weights[:, None]).T @ self.rows.phi @ self.basis
        return scores, sums - moments + ridge * theta


def root(covariance: Floats) -> Floats:
    """R, of which R Rᵀ is this."""
    values, vectors = np.linalg.eigh(covariance)
    rooted: Floats = vectors * np.sqrt(np.maximum(values, 0))
    return rooted


def hessian(family: Family, rows: Rows, theta: Floats) -> Floats:
    """Of the label-free part at θ: (outputs · width, outputs · width)."""
    means, (outputs, width) = family.mean(rows.phi @ theta.T), theta.shape
    variances, whole = family.variance(means), np.empty((outputs, width, outputs, width))
    for one in range(outputs):
        for other in range(one + 1):
            each = variances[:, one] if one == other else -means[:, one] * means[:, other]
            block = (rows.phi * (each * rows.weights)[:, None]).T @ rows.phi
            whole[one, :, other], whole[other, :, one] = block, block.T
    return whole.reshape(theta.size, theta.size)
