"""Errors of ledgers and receipts. Raised by helpers and auditors."""

from collections.abc import Mapping

from maskedlark.errors import MaskedLarkError, ReleaseRefused


class RequestIdReused(ReleaseRefused):
    """Another question under the id of one that was answered before."""


class CannotRepeat(ReleaseRefused):
    """The answer was made by another version, and cannot be made again as it was."""


class AnswerLost(ReleaseRefused):
    """The question was answered and charged. Its noise was lost since, so it is never answered again."""


class AccountClosed(ReleaseRefused):
    """Receipts under this document, or a later one, were lost: what is left counts as spent."""


class BudgetExhausted(ReleaseRefused):
    """The question would cost more than is left of a source's budget."""

    def __init__(
        self, left: float, wanted: float, noise: float | None, of: str = "a source's budget"
    ) -> None:
        fits = "Nothing more would fit" if noise is None else f"With noise {noise:g} it would fit"
        super().__init__(f"this would cost ε = {wanted:.4g}; {left:.4g} is left of {of}. {fits}")
        self._facts = {"wanted_epsilon": wanted, "left_epsilon": left, "noise_that_fits": noise}

    def facts(self) -> Mapping[str, float | None]:
        """For the problem document: numbers that a program can act on."""
        return self._facts


class DeltaExhausted(ReleaseRefused):
    """A session's δ is more than is left of the half that sessions of a model share, in one dataset."""

    def __init__(self, left: float, wanted: float) -> None:
        super().__init__(
            f"this session has δ = {wanted:g}; {left:g} is left for sessions of this model over these "
            "datasets: open it with a smaller delta"
        )
        self._facts = {"wanted_delta": wanted, "left_delta": left}

    def facts(self) -> Mapping[str, float | None]:
        """For the problem document: numbers that a program can act on."""
        return self._facts


class NoSuchSession(ReleaseRefused):
    """No session of that id was opened here for that origin."""


class NoSuchStep(ReleaseRefused):
    """A step behind the last of its session, or one that is not the next."""


class StepTaken(ReleaseRefused):
    """Another body under a step that was taken before. A step is answered for one body, ever."""


class SessionClosed(ReleaseRefused):
    """A step of a session that is closed."""


class StepOver(ReleaseRefused):
    """A step before the last one that was taken. Its answer is not kept any more, and is not made again."""


class SlotTaken(ReleaseRefused):
    """A session names slots that another has. Nothing was charged."""

    def __init__(self, free: int) -> None:
        super().__init__(f"another session has one of these slots: ask again, from slot {free} on")
        self._facts = {"free_slot": float(free)}

    def facts(self) -> Mapping[str, float | None]:
        """For the problem document: numbers that a program can act on."""
        return self._facts


class SessionLost(ReleaseRefused):
    """The session was opened and charged. Its steps were lost since, so it is never gone on with."""


class LedgerBehind(MaskedLarkError):
    """The ledger lacks what this helper has signed: it is an old copy. Nothing is answered from it."""


class ReceiptsMissing(MaskedLarkError):
    """The ledger cannot be brought up to date: receipts that were signed are not here. Says which."""


class BadReceipt(MaskedLarkError):
    """A receipt, or a chain of receipts, that does not hold."""
