"""Errors and warnings of fitting."""

from maskedlark.errors import BadArguments


class NoScore(BadArguments, AttributeError):
    """Labels stay with the helpers, so a model has no score. For scikit-learn, an attribute that it lacks."""


class RowsDiffer(UserWarning):
    """The ad server's rows and the helpers' records differ much in number; estimates assume by chance."""


class NoIntervals(UserWarning):
    """A model of so many coefficients is fitted without the errors of each."""
