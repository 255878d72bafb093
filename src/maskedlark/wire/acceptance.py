"""Which parts of reports a helper accepts into a dataset, and its verdict on each. Run by a helper."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from maskedlark.clock import SECONDS_AN_HOUR, hour_of
from maskedlark.errors import FromTheFuture, OtherOrigin, OtherParameters, PastLifetime
from maskedlark.wire.columns import HASH_BYTES
from maskedlark.wire.report import ID_BYTES, Opener, PublicPart

MAX_HOURS_AHEAD = 48
"""Clocks differ by less than two days."""
MIN_LIFE_S = 86_400
"""A report must have this much of its lifetime left, or a quarter of it if that is less: a dataset expires
with its oldest report."""


@dataclass(frozen=True)
class Terms:
    """A dataset's ad server, document and report lifetime, and the current time."""

    origin: str
    parameters: bytes
    """The digest of the parameter document."""
    lifetime_s: int
    now: int
    """Seconds since 1970. One time for all parts of a dataset, so that their order does not matter."""

    @property
    def min_life_s(self) -> int:
        """What must be left of a report's lifetime."""
        return min(MIN_LIFE_S, self.lifetime_s // 4)

    def check(self, public: PublicPart) -> None:
        """Refuse a report of another dataset, or one that is too old."""
        if public.origin != self.origin:
            raise OtherOrigin("a report for another ad server than the dataset's")
        if public.parameters != self.parameters:
            raise OtherParameters("a report made under another parameter document than the dataset's")
        left_s = (public.hour + 1) * SECONDS_AN_HOUR + self.lifetime_s - self.now
        if left_s <= self.min_life_s:
            raise PastLifetime(f"a report of hour {public.hour}, older than its document lets reports come")
        if public.hour > hour_of(self.now) + MAX_HOURS_AHEAD:
            raise FromTheFuture(f"a report of hour {public.hour}, more than {MAX_HOURS_AHEAD} ahead of us")


@dataclass(frozen=True)
class DatasetOpener(Opener):
    """Opens a helper's parts of one dataset. Refuses reports that do not meet its terms."""

    terms: Terms

    def check(self, public: PublicPart) -> None:
        """Check the purpose, then the dataset's terms."""
        super().check(public)
        self.terms.check(public)

    @cached_property
    def example(self) -> PublicPart:
        """A public part from which all others differ only in id, hour and column hash."""
        return PublicPart(
            bytes(ID_BYTES), 0, self.terms.origin, self.purpose, self.terms.parameters, bytes(HASH_BYTES)
        )


class Verdicts:
    """A helper's verdict on every part that it was sent, in order: accepted, or the error's name."""

    def __init__(self, parts: int) -> None:
        self.accepted = np.ones(parts, np.bool_)
        """One boolean per part: True until it is refused."""
        self._errors: dict[int, str] = {}

    def refuse(self, part: int, error: Exception) -> None:
        """Record why a part is not used; only the first reason counts."""
        self.accepted[part], self._errors[part] = False, type(error).__name__

    @property
    def refused(self) -> Counter[str]:
        """How many were refused, by error name."""
        return Counter(self._errors.values())

    def __getitem__(self, part: int) -> str | None:
        """The name of the error, or None for an accepted part."""
        return self._errors.get(part)
