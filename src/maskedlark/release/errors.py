"""Errors of releases. Raised by helpers."""

from maskedlark.errors import MaskedLarkError, ReleaseRefused


class UnknownFunction(ReleaseRefused):
    """No function of that name is known here."""


class OtherPurpose(ReleaseRefused):
    """The function needs datasets of the other purpose."""


class MixedDatasets(ReleaseRefused):
    """The datasets are of different documents, or one is named twice."""


class TooFewRecords(ReleaseRefused):
    """The datasets have fewer records than k. This helper charged nothing."""


class TooManyRecords(ReleaseRefused):
    """The datasets have more records than the document allows in one release. This helper charged nothing."""


class AnswerTooLarge(ReleaseRefused):
    """The answer could be larger than any ad server reads. This helper charged nothing."""


class BadSeed(MaskedLarkError):
    """A shared seed that the document's first helper did not make for this dataset and helper."""


class BadCheckKey(BadSeed):
    """A check key that the document's first helper did not make for this helper, or not the first one."""


class BadChecks(MaskedLarkError):
    """A check message that the helper at its place did not make for this document and check key."""
