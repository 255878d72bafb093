"""What the candidates of a record give away when they are not the whole label space.

A helper that knows how labels are distributed sees two candidates, 0 and c. Either c happened, or nothing
did and c was drawn at random. Where conversions are skewed, a common c is likely the truth and a rare one
likely a fake; the masks need not be touched.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Leak:
    """How often the best guess of a record's label is right."""

    without: float
    """From the distribution of labels alone: all that the policy `all` leaves."""
    expected: float
    """From the record's two candidates too, by Bayes' rule."""
    measured: float
    """The same, counted on records."""


def leak(prior: NDArray[np.float64], labels: NDArray[np.int64], candidates: NDArray[np.int64]) -> Leak:
    """The leak of `pair` for labels 0 … L-1 that occur as `prior` says. Run by a curious helper."""
    fakes = prior[0] / (len(prior) - 1)  # P(nothing happened, and this label was drawn as the fake)
    shown = candidates.max(axis=1)  # the other candidate is 0
    guesses = np.where(prior[shown] > fakes, shown, 0)
    return Leak(
        without=float(prior.max()),
        expected=float(np.maximum(prior[1:], fakes).sum()),
        measured=float((guesses == labels).mean()),
    )
