"""How much better than chance an attacker guesses, and how far chance alone could have carried it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Advantage:
    """P(guess 1 | truth 1) - P(guess 1 | truth 0): 0 for a blind attacker, 1 for one that reads the truth."""

    value: float
    error: float
    """One standard deviation of `value` for a blind attacker, at most."""
    trials: int

    @property
    def deviations(self) -> float:
        """How many standard deviations the advantage is away from 0."""
        return self.value / self.error

    def __str__(self) -> str:
        return f"{self.value:+.3f} ± {self.error:.3f}"


def advantage(guesses: NDArray[np.bool_], truth: NDArray[np.bool_]) -> Advantage:
    """The advantage of a guess about one bit of every record."""
    ones, zeros = int(truth.sum()), int((~truth).sum())
    value = float(guesses[truth].mean() - guesses[~truth].mean())
    # A blind guess is a coin whose variance is at most 1/4, whatever its bias.
    return Advantage(value, 0.5 * float(np.sqrt(1 / ones + 1 / zeros)), ones + zeros)
