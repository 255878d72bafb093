"""What storing refuses.

MaskedLarkError
├── UnsupportedDatabase     a URL of a database that we do not keep anything in; says which we do
├── StorageUnavailable      the database cannot answer now: nothing was stored, ask again later
└── UnknownSchema           a database that another version of this package made
"""

from maskedlark.errors import MaskedLarkError


class UnsupportedDatabase(MaskedLarkError, ValueError):
    """A URL of a database that we do not keep anything in."""


class StorageUnavailable(MaskedLarkError):
    """The database cannot answer now. Nothing of the transaction was stored."""


class UnknownSchema(MaskedLarkError):
    """A database whose tables were made by another version of this package."""
