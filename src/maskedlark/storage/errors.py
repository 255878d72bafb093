"""Errors of storage."""

from maskedlark.errors import MaskedLarkError


class UnsupportedDatabase(MaskedLarkError, ValueError):
    """A database that we cannot keep anything in as it is. Trying again does not help."""


class UnusedDatabase(MaskedLarkError):
    """A database that no ad server has stored reports in."""


class ClockLeapt(MaskedLarkError):
    """The clock is far ahead of when something was last deleted. Nothing is, until the operator says so."""


class StorageUnavailable(MaskedLarkError):
    """The database cannot answer now. Nothing of the transaction is known to be stored: ask again.

    If the connection broke during the commit, all of it may be stored. Whatever is stored under an id is
    stored once, so trying again is safe.
    """


class UnknownSchema(MaskedLarkError):
    """A database whose tables were made by another version of this package."""
