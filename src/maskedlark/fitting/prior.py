"""The ridge, from the release itself: how large coefficients are, by empirical Bayes. It costs nothing.

In coordinates in which the label-free curvature is diagonal, the slope at the mean model is nearly normal:
g_j ~ N(0, (H_j γ_j)² + N_j) with γ_j² = γ² (H_j / max H)^α the prior's variance of θ_j, and N_j that of helpers'
noise and of labels around their mean. Maximum likelihood finds γ and α; ρ_j = N_j / (H_j γ_j²) is the ridge
that gives θ's expectation. Run by the ad server.
"""

import numpy as np

from maskedlark.fitting.glm import Family
from maskedlark.fitting.maps import Floats

_GAMMAS = np.exp(np.linspace(np.log(3e-3), np.log(3.0), 40))
_ALPHAS = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
_DISPERSIONS = np.exp(np.linspace(np.log(1e-3), 0.0, 12))
_LEAST = 1e-9
"""Of a curvature, as a part of the largest."""
INTERCEPT = 1e-3
"""The intercept's ridge: practically none."""


def ridge(
    family: Family, phi: Floats, weights: Floats, clips: Floats, moments: Floats, noise: float, spread: float
) -> Floats:
    """ρ of every coefficient (outputs, width), the intercept last.

    `phi` with a last column of ones, in coordinates of diagonal curvature; `noise` the deviation of a moment;
    `spread` the width of the labels' range, whose square bounds how labels vary.
    """
    inner, total = phi[:, :-1], weights.sum()
    mean = weights @ inner / total
    means = family.mean(family.link(moments[:, -1] / total)[None])[0]
    slope = moments[:, :-1] - means[:, None] * (weights @ inner)
    centred = (inner - mean) ** 2
    variance = family.variance(means[None])[0][:, None]
    curve = np.maximum(variance * (weights @ centred), _LEAST * variance * (weights @ centred).max())
    sampled = variance * ((weights * clips) @ centred)
    shape = (curve / curve.max()) ** _ALPHAS[:, None, None]
    widest = (spread**2 / 4 / variance).max() if family.dispersed else 1.0
    dispersions = widest * _DISPERSIONS if family.dispersed else np.ones(1)
    best = (-np.inf, shape[0], 1.0, 1.0)
    for dispersion in dispersions:
        noises = noise**2 + dispersion * sampled
        for gamma in _GAMMAS * family.unit(spread):
            total_variance = (curve * gamma) ** 2 * shape + noises
            fits = -(np.log(total_variance) + slope**2 / total_variance).sum(axis=(1, 2))
            place = int(fits.argmax())
            best = max(best, (float(fits[place]), shape[place], gamma, dispersion), key=lambda each: each[0])
    _, chosen, gamma, dispersion = best
    found = (noise**2 + dispersion * sampled) / (curve * gamma**2 * chosen)
    return np.concatenate([found, np.full((len(found), 1), INTERCEPT * variance.max())], axis=1)
