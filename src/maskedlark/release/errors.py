"""Errors of releases. Raised by helpers."""

from maskedlark.errors import MaskedLarkError, ReleaseRefused


class UnknownFunction(ReleaseRefused):
    """No function of that name is known here."""


class OtherPurpose(ReleaseRefused):
    """A function of one purpose, asked of reports that were made for the other."""


class MixedDatasets(ReleaseRefused):
    """Datasets that were made under different documents, or one that is named twice."""


class TooFewRecords(ReleaseRefused):
    """Fewer records than k."""


class TooManyRecords(ReleaseRefused):
    """More records than the document allows in one release."""


class AnswerTooLarge(ReleaseRefused):
    """An answer that could be larger than any ad server reads."""


class BadSeed(MaskedLarkError):
    """A shared seed that the document's first helper did not make for this dataset and helper."""
