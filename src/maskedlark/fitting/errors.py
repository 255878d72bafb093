"""Warnings of fitting."""


class RowsDiffer(UserWarning):
    """The ad server's rows and the helpers' records differ much in number; estimates assume by chance."""


class NoIntervals(UserWarning):
    """A model of so many coefficients is fitted without the errors of each."""
