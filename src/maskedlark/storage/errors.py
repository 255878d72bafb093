"""Errors of storage."""

from maskedlark.errors import MaskedLarkError


class UnsupportedDatabase(MaskedLarkError, ValueError):
    """A database that we cannot keep anything in as it is. Trying again does not help."""


class UnusedDatabase(MaskedLarkError):
    """A database that no ad server has stored reports in."""


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
