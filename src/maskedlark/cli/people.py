"""Simulated people for the demo: what ads they saw and what they did. The same people every time."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskedlark.randomness import FixedRandomness

CAMPAIGNS = ("autumn", "spring", "winter", "summer")
BUYING_RATE = (0.08, 0.22, 0.14, 0.14)
RARE = 40
"""So many people saw the last campaign: fewer than k."""
FEATURES = 4


@dataclass(frozen=True)
class People:
    """One row a person. Only the first two columns ever leave the browser readable, and only to helpers."""

    campaign: list[str]
    features: NDArray[np.uint8]
    bought: NDArray[np.int64]
    euros: NDArray[np.int64]

    def first_buyer(self) -> int:
        """The row of the first person who bought."""
        return int(np.argmax(self.bought))

    def without(self, row: int) -> "People":
        """Everybody else."""
        campaign = self.campaign[:row] + self.campaign[row + 1 :]
        features = np.delete(self.features, row, axis=0)
        return People(campaign, features, np.delete(self.bought, row), np.delete(self.euros, row))


def people(count: int) -> People:
    """So many people, four campaigns, and purchases that depend on campaign and features."""
    rng = FixedRandomness(b"the people of the demo")
    campaign = rng.below(len(CAMPAIGNS) - 1, count)
    campaign[:RARE] = len(CAMPAIGNS) - 1
    features = rng.below(256, count * FEATURES).reshape(count, -1).astype(np.uint8)
    rate = np.array(BUYING_RATE)[campaign] * features[:, 0] / 128
    bought = (rng.unit(count) < rate).astype(np.int64)
    euros = bought * (1 + rng.below(200, count))
    return People([CAMPAIGNS[i] for i in campaign], features, bought, euros)
