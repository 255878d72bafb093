"""Warnings of fitting."""


class RowsDiffer(UserWarning):
    """The ad server's rows and the helpers' records differ much in number; estimates assume by chance."""
