"""The ridge, from the release itself: how large coefficients are, by empirical Bayes. It costs nothing.

In coordinates in which the label-free curvature H is diagonal, the slope at the mean model is nearly normal:
g_j ~ N(0, (H_j γ_j)² + N_j), with N_j the variance by the helpers' noise and by labels around their mean, and
γ_j² = γ² H_j / max H the prior's of θ_j. γ is one of a grid, with shares that maximum likelihood finds: few
large coefficients stay large among many small ones. The ridge ρ_j is what shrinks g_j to its expectation.
Run by the ad server.
"""

import numpy as np

from maskedlark.fitting.glm import Family, Rows
from maskedlark.fitting.maps import Floats

_GAMMAS = np.exp(np.linspace(np.log(3e-3), np.log(3.0), 16))
_DISPERSIONS = np.exp(np.linspace(np.log(1e-3), 0.0, 12))
_ROUNDS = 60
_LEAST = 1e-9
"""Of a curvature, as a part of the largest."""
INTERCEPT = 1e-3
"""The intercept's ridge: practically none."""


def ridge(family: Family, rows: Rows, sums: Floats, moments: Floats, noise: float, spread: float) -> Floats:
    """ρ of every coefficient (outputs, width), the intercept last.

    `rows` in coordinates of diagonal curvature; `sums` of all rows, Σ c φ; `noise` the deviation of a moment;
    `spread` the width of the labels' range, whose square bounds how labels vary.
    """
    means = family.mean(family.link(moments[:, -1] / sums[-1])[None])[0]
    slope = moments[:, :-1] - means[:, None] * sums[:-1]
    centred = (rows.phi[:, :-1] - sums[:-1] / sums[-1]) ** 2
    variance = family.variance(means[None])[0][:, None]
    curve = rows.weights @ centred
    curve = variance * np.maximum(curve, _LEAST * curve.max())
    sampled = variance * ((rows.weights * rows.clips) @ centred)
    sizes = family.unit(spread) * curve * np.sqrt(curve / curve.max())
    # How labels of classes vary is known; that of numbers is bounded by their range.
    widest = np.ones(1) if family.is_class else (spread**2 / 4 / variance).max() * _DISPERSIONS
    tried = [_shrunk(slope, sizes, noise**2 + each * sampled) for each in widest]
    best = max(tried, key=lambda each: each[0])
    ridges = curve * (1 / best[1] - 1)
    return np.concatenate([ridges, np.full((len(ridges), 1), INTERCEPT * variance.max())], axis=1)


def _shrunk(slope: Floats, sizes: Floats, noises: Floats) -> tuple[float, Floats]:
    """The likelihood of slopes, and which part of each is expected to be signal: EM for the grid's shares."""
    signal = (sizes[..., None] * _GAMMAS) ** 2
    variances = signal + noises[..., None]
    logs = -(np.log(variances) + (slope * slope)[..., None] / variances) / 2
    top = logs.max(axis=-1, keepdims=True)
    fits, shares = np.exp(logs - top), np.full(len(_GAMMAS), 1 / len(_GAMMAS))
    for _ in range(_ROUNDS):
        parts = fits * shares
        parts /= parts.sum(axis=-1, keepdims=True)
        shares = (parts.sum(axis=(0, 1)) + 1 / len(_GAMMAS)) / (slope.size + 1)
    likelihood = float((np.log(fits @ shares) + top[..., 0]).sum())
    return likelihood, np.clip((parts * signal / variances).sum(axis=-1), 1e-9, 1 - 1e-9)
