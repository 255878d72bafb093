"""Which parts of reports a helper accepts into a dataset, and its verdict on each. Run by a helper."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskedlark.clock import SECONDS_AN_HOUR, hour_of
from maskedlark.errors import DecodeError, Refused
from maskedlark.wire.errors import FromTheFuture, PastLifetime

MAX_HOURS_AHEAD = 48
"""Clocks differ by less than two days."""
MIN_LIFE_S = 86_400
"""A report must have this much of its lifetime left, or a quarter of it if that is less: a dataset expires
with its oldest report."""


@dataclass(frozen=True)
class Terms:
    """The lifetime of a dataset's reports, and the current time."""

    lifetime_s: int
    now: int
    """Seconds since 1970. One time for all parts of a dataset, so that their order does not matter."""

    @property
    def hours(self) -> range:
        """The hours that a report may be of."""
        least_life_s = min(MIN_LIFE_S, self.lifetime_s // 4)
        # Of the hour's end plus lifetime, more than the least must be left.
        first = (self.now + least_life_s - self.lifetime_s) // SECONDS_AN_HOUR
        return range(first, hour_of(self.now) + MAX_HOURS_AHEAD + 1)

    def check(self, hour: int) -> None:
        """Refuse a report that is too old, or too far ahead."""
        if hour < self.hours.start:
            raise PastLifetime(f"a report of hour {hour}, older than its document lets reports come")
        if hour >= self.hours.stop:
            raise FromTheFuture(f"a report of hour {hour}, more than {MAX_HOURS_AHEAD} ahead of us")


class Verdicts:
    """A helper's verdict on every part that it was sent, in order: accepted, or the error's name."""

    def __init__(self, parts: int) -> None:
        self.accepted = np.ones(parts, np.bool_)
        """One boolean per part: True until it is refused."""
        self._errors: dict[int, str] = {}

    def refuse(self, part: int, error: type[DecodeError | Refused]) -> None:
        """Record why a part is not used."""
        self.accepted[part], self._errors[part] = False, error.__name__

    def keep(
        self, parts: NDArray[np.intp], valid: NDArray[np.bool_], error: type[DecodeError | Refused]
    ) -> NDArray[np.intp]:
        """Of these parts, those that are valid; the others are refused with this error."""
        for part in parts[~valid].tolist():
            self.refuse(part, error)
        return parts[valid]

    @property
    def refused(self) -> Counter[str]:
        """How many were refused, by error name."""
        return Counter(self._errors.values())

    def __getitem__(self, part: int) -> str | None:
        """The name of the error, or None for an accepted part."""
        return self._errors.get(part)
