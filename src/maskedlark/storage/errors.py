"""Errors of storage."""

from maskedlark.errors import MaskedLarkError


class UnsupportedDatabase(MaskedLarkError, ValueError):
    """A database that we cannot keep anything in as it is. Trying again does not help."""


class UnusedDatabase(MaskedLarkError):
    """A database that no ad server has stored reports in."""


class ClockLeapt(MaskedLarkError):
    """The clock is far ahead of when something was last deleted. Nothing is, until the operator says so."""


def refuse_leap(before: int, now: int, max_leap_s: int, settings: str) -> None:
    """Refuse to delete by a clock that leapt: what it deletes wrongly does not come back."""
    if before and now - before > max_leap_s:
        days = (now - before) // 86_400
        raise ClockLeapt(
            f"the clock is {days} days ahead of when it was last looked at, so nothing is deleted: set the "
            f"clock; if it is right, start once with max_leap_days = {days + 1} in {settings}"
        )


class StorageUnavailable(MaskedLarkError):
    """The database cannot answer now. Nothing of the transaction is known to be stored: ask again.

    If the connection broke during the commit, all of it may be stored. Whatever is stored under an id is
    stored once, so trying again is safe.
    """


class DiskFull(StorageUnavailable):
    """A disk of the service has next to no space left, or its files may not grow."""


class LockHeld(MaskedLarkError):
    """Somebody else holds a lock that nobody waits for."""


class UnknownSchema(MaskedLarkError):
    """A database whose tables were made by another version of this package."""
