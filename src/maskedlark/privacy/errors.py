"""What a helper refuses to release, and what a ledger or a receipt can be wrong about.

MaskedLarkError
├── ReleaseRefused              a question that this helper must not answer; nothing was charged
│   ├── UnknownFunction         no function of that name
│   ├── BadArguments            arguments that the function does not take
│   ├── OtherPurpose            a function to aggregate asked of reports to train, or the other way round
│   ├── MixedDatasets           datasets that were made under different documents, or named twice
│   ├── NoiseTooSmall           less noise than the document's floor
│   ├── TooFewRecords           fewer records than k
│   ├── TooManyRecords          more records than the document allows in one release
│   ├── AnswerTooLarge          an answer that could be larger than any ad server reads
│   ├── RequestIdReused         another question under an id that was answered before
│   ├── CannotRepeat            an answer that this version cannot make again as it was
│   └── BudgetExhausted         it would cost more than is left; says how much is, and what would fit
├── LedgerBehind                a ledger that lacks what the helper has signed: an old copy
└── BadReceipt                  a receipt, or a chain of them, that does not hold
"""

from collections.abc import Mapping

from maskedlark.errors import MaskedLarkError


class ReleaseRefused(MaskedLarkError):
    """A question that this helper must not answer. Nothing was charged."""


class UnknownFunction(ReleaseRefused):
    """No function of that name is known here."""


class BadArguments(ReleaseRefused):
    """Arguments that the function does not take. Says which, and what it takes."""


class OtherPurpose(ReleaseRefused):
    """A function of one purpose, asked of reports that were made for the other."""


class MixedDatasets(ReleaseRefused):
    """Datasets that were made under different documents, or one that is named twice."""


class NoiseTooSmall(ReleaseRefused):
    """Less noise than the floor that the document declares."""


class TooFewRecords(ReleaseRefused):
    """Fewer records than k."""


class TooManyRecords(ReleaseRefused):
    """More records than the document allows in one release."""


class AnswerTooLarge(ReleaseRefused):
    """An answer that could be larger than any ad server reads."""


class RequestIdReused(ReleaseRefused):
    """Another question under the id of one that was answered before."""


class CannotRepeat(ReleaseRefused):
    """The answer was made by another version, and cannot be made again as it was."""


class BudgetExhausted(ReleaseRefused):
    """The question would cost more than is left of a source's budget."""

    def __init__(self, left: float, wanted: float, noise: float | None) -> None:
        fits = "Nothing more would fit" if noise is None else f"With noise {noise:g} it would fit"
        super().__init__(f"this would cost ε = {wanted:.4g}; {left:.4g} is left of a source's budget. {fits}")
        self._facts = {"wanted_epsilon": wanted, "left_epsilon": left, "noise_that_fits": noise}

    def facts(self) -> Mapping[str, float | None]:
        """For the problem document: numbers that a program can act on."""
        return self._facts


class LedgerBehind(MaskedLarkError):
    """The ledger lacks what this helper has signed: it is an old copy. Nothing is answered from it."""


class BadReceipt(MaskedLarkError):
    """A receipt, or a chain of receipts, that does not hold."""
