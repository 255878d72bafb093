"""Time as an argument: only commands, local clusters and `Client.from_config` take the machine's clock."""

import time
from dataclasses import dataclass
from typing import Protocol

SECONDS_AN_HOUR = 3600


class Clock(Protocol):
    """Passed to everything that depends on time."""

    def now(self) -> int:
        """Seconds since 1970-01-01 UTC."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        """Seconds since 1970-01-01 UTC."""
        return int(time.time())


@dataclass
class FixedClock:
    """A clock that is set by hand: for vectors, tests and simulations."""

    seconds: int

    def now(self) -> int:
        """Seconds since 1970-01-01 UTC."""
        return self.seconds


def hour_of(seconds: int) -> int:
    """The hour in a report's public part: coarse on purpose."""
    return seconds // SECONDS_AN_HOUR
