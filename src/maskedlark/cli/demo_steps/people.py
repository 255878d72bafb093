"""Simulated people for the demo: what is known about them, what ads they saw and what they did."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskedlark.features import Encoder, OneHot, Scaled
from maskedlark.randomness import FixedRandomness

Columns = Mapping[str, NDArray[Any]]

CAMPAIGNS = np.array(("autumn", "spring", "winter", "summer"))
PULL = np.array((-0.6, 0.5, 0.0, 0.0))
"""How much each campaign adds to the log-odds of buying."""
RARE = 40
"""How many people saw the last campaign: fewer than k."""
DEVICES = np.array(("phone", "tablet", "desktop"))
EASE = np.array((-0.9, -0.3, 0.9))
"""How much each device adds to them."""
MAX_VISITS = 10


@dataclass(frozen=True)
class People:
    """One row per person."""

    campaign: NDArray[np.str_]
    known: Columns
    """What the ad server knows when it shows an ad: the features of a model."""
    bought: NDArray[np.int64]
    """Only their browsers know this and the next."""
    euros: NDArray[np.int64]

    def first_buyer(self) -> int:
        """The row of the first person who bought."""
        return int(np.argmax(self.bought))

    def without(self, row: int) -> "People":
        """Everyone else."""
        others = np.arange(len(self.bought)) != row
        known = {name: column[others] for name, column in self.known.items()}
        return People(self.campaign[others], known, self.bought[others], self.euros[others])


def people(count: int, seed: bytes = b"the people of the demo") -> People:
    """`count` people, determined by the seed; they buy by campaign, device, visits, age and hour."""
    rng = FixedRandomness(seed)
    campaign = rng.below(len(CAMPAIGNS) - 1, count)
    campaign[:RARE] = len(CAMPAIGNS) - 1
    visits = np.floor(-2.5 * np.log(1 - rng.unit(count))).astype(np.int64)
    known = {
        "age": 18 + rng.below(62, count),
        "device": DEVICES[np.array((0, 0, 0, 0, 0, 1, 2, 2, 2, 2))[rng.below(10, count)]],
        "hour": rng.below(24, count),
        "visits": np.minimum(visits, MAX_VISITS),
    }
    device = np.argmax(known["device"][:, None] == DEVICES, axis=1)
    odds = PULL[campaign] + EASE[device] + 0.42 * known["visits"] - 0.03 * known["age"] + 0.06 * known["hour"]
    bought = (rng.unit(count) < 1 / (1 + np.exp(2.15 - odds))).astype(np.int64)
    euros = bought * (1 + rng.below(200, count))
    return People(CAMPAIGNS[campaign], known, bought, euros)


def encoder(crowd: People) -> Encoder:
    """The encoder of what is known about a person, without labels."""
    visits = Scaled(0, MAX_VISITS)
    kinds = {"age": Scaled(18, 80), "device": OneHot(), "hour": Scaled(0, 23), "visits": visits}
    return Encoder.fit(crowd.known, kinds)
