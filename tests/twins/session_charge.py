"""What a sampled Gaussian sum costs, from its two densities alone: no accountant, no library of losses.

Densities are laid on a grid, the loss is rounded to another, and steps are composed by one Fourier transform.
"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_POINTS = 1 << 19
_TAILS = 11
"""Deviations at which the grid of answers ends."""


def pair(x: Array, sigma: float, rate: float, half: float = 0.5) -> tuple[Array, Array]:
    """The densities of one sum, for a record at either end of its range: `half` the sensitivity from 0."""

    def density(mean: float) -> Array:
        return np.exp(-((x - mean) ** 2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))

    rest = (1 - rate) * density(0.0)
    return rest + rate * density(half), rest + rate * density(-half)


def delta(epsilon: float, sigma: float, rate: float) -> float:
    """The hockey-stick divergence of one sum, by integration."""
    x = np.linspace(-_TAILS * sigma - 0.5, _TAILS * sigma + 0.5, _POINTS)
    first, second = pair(x, sigma, rate)
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum() * (x[1] - x[0]))


def epsilon(sigma: float, rate: float, steps: int, delta: float, widest: float) -> float:
    """The ε of so many sums at δ. `widest`: no loss of all together is beyond it."""
    x = np.linspace(-_TAILS * sigma - 0.5, _TAILS * sigma + 0.5, _POINTS)
    first, second = pair(x, sigma, rate)
    loss, mass = np.log(first / second), first * (x[1] - x[0])
    width = 2 * widest / _POINTS
    # A loss lies between two points of the grid: its mass is shared so that the mean is kept.
    place = loss / width
    low = np.floor(place).astype(np.int64)
    grid = np.zeros(_POINTS)
    np.add.at(grid, low % _POINTS, mass * (low + 1 - place))
    np.add.at(grid, (low + 1) % _POINTS, mass * (place - low))
    composed = np.fft.irfft(np.fft.rfft(grid) ** steps, _POINTS)
    losses: Array = np.fft.fftfreq(_POINTS, 1 / (_POINTS * width)).astype(np.float64)
    return _root(losses, composed, delta)


def _root(losses: Array, mass: Array, delta: float) -> float:
    low, high = 0.0, float(losses.max())
    for _ in range(60):
        middle = (low + high) / 2
        over = losses > middle
        found = float((mass[over] * -np.expm1(middle - losses[over])).sum())
        low, high = (middle, high) if found > delta else (low, middle)
    return high
