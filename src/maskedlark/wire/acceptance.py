"""Which parts of reports a helper accepts into a dataset, by its terms, and what it says of every part."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from maskedlark.clock import SECONDS_AN_HOUR, hour_of
from maskedlark.errors import FromTheFuture, OtherOrigin, OtherParameters, PastLifetime
from maskedlark.wire.columns import HASH_BYTES
from maskedlark.wire.report import ID_BYTES, Opener, PublicPart

MAX_HOURS_AHEAD = 48
"""Clocks differ, by less than two days."""
MIN_LIFE_S = 86_400
"""A report has so much of its lifetime left when it comes, or a quarter of it if that is less.

A dataset ends with its oldest report: one that is nearly past its lifetime would end all the others."""


@dataclass(frozen=True)
class Terms:
    """The ad server and the document that a dataset is of, the lifetime of its reports, and the moment."""

    origin: str
    parameters: bytes
    """The digest of the parameter document."""
    lifetime_s: int
    now: int
    """Seconds since 1970. One moment for all parts of a dataset, so that order decides nothing."""

    @property
    def least_life_s(self) -> int:
        """What must be left of a report's lifetime."""
        return min(MIN_LIFE_S, self.lifetime_s // 4)

    def check(self, public: PublicPart) -> None:
        """Refuse a report that does not belong here, or not any more."""
        if public.origin != self.origin:
            raise OtherOrigin("a report for another ad server than the dataset's")
        if public.parameters != self.parameters:
            raise OtherParameters("a report made under another parameter document than the dataset's")
        left_s = (public.hour + 1) * SECONDS_AN_HOUR + self.lifetime_s - self.now
        if left_s <= self.least_life_s:
            raise PastLifetime(f"a report of hour {public.hour}, older than its document lets reports come")
        if public.hour > hour_of(self.now) + MAX_HOURS_AHEAD:
            raise FromTheFuture(f"a report of hour {public.hour}, more than {MAX_HOURS_AHEAD} ahead of us")


@dataclass(frozen=True)
class DatasetOpener(Opener):
    """What a helper opens its parts of one dataset with. Refuses reports that are not under its terms."""

    terms: Terms

    def check(self, public: PublicPart) -> None:
        """The purpose first, then the dataset's terms."""
        super().check(public)
        self.terms.check(public)

    @cached_property
    def example(self) -> PublicPart:
        """All public parts are like this one but for id, hour and column hash."""
        return PublicPart(
            bytes(ID_BYTES), 0, self.terms.origin, self.purpose, self.terms.parameters, bytes(HASH_BYTES)
        )


class Verdicts:
    """What a helper says of every part that it was sent, in their order: accepted, or the error's name."""

    def __init__(self, parts: int) -> None:
        self.accepted = np.ones(parts, np.bool_)
        """One truth value a part: true until it is refused."""
        self._errors: dict[int, str] = {}

    def refuse(self, part: int, error: Exception) -> None:
        """Record why a part is not used. The first reason stays the only one: nobody looks at it again."""
        self.accepted[part], self._errors[part] = False, type(error).__name__

    @property
    def refused(self) -> Counter[str]:
        """How many, by the name of the error."""
        return Counter(self._errors.values())

    def __getitem__(self, part: int) -> str | None:
        """The name of the error, or none for a part that is accepted."""
        return self._errors.get(part)
