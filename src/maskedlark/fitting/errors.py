"""Errors and warnings of fitting."""

from maskedlark.errors import NotDeclared


class RowsDoNotFit(NotDeclared):
    """Rows that the model cannot be fitted to or asked about: another width or type, or none at all."""


class RowsDiffer(UserWarning):
    """The ad server's rows and the helpers' records differ much in number; estimates assume by chance."""
