"""What storing refuses.

MaskedLarkError
├── UnsupportedDatabase     a URL of a database that we do not keep anything in; says which we do
├── StorageUnavailable      the database cannot answer now: nothing is known to be stored, ask again later
└── UnknownSchema           a database that another version of this package made
"""

from maskedlark.errors import MaskedLarkError


class UnsupportedDatabase(MaskedLarkError, ValueError):
    """A URL of a database that we do not keep anything in."""


class StorageUnavailable(MaskedLarkError):
    """The database cannot answer now. Nothing of the transaction is known to be stored: ask again.

    Where the connection broke during the commit itself, all of it may be there; what is stored under an id is
    stored once, so asking again is safe.
    """


class UnknownSchema(MaskedLarkError):
    """A database whose tables were made by another version of this package."""
