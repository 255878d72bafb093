"""Errors of ledgers and receipts. Raised by helpers and auditors."""

from maskedlark.errors import MaskedLarkError, ReleaseRefused
from maskedlark.ledger.wording import USEFUL_EPSILON, at_most, both


class RequestIdReused(ReleaseRefused):
    """Another request was answered under this id. Use a new one."""


class CannotRepeat(ReleaseRefused):
    """The answer was made by another version, and cannot be made again as it was. It stays charged."""


class AnswerLost(ReleaseRefused):
    """The request was charged, and what its answer needs is not here any more. It stays charged."""


class AccountClosed(ReleaseRefused):
    """Receipts under this document, or a later one, were lost: what was left of budgets counts as spent."""


class BudgetExhausted(ReleaseRefused):
    """The request would cost more than is left of a source's budget. This helper charged nothing."""

    def __init__(
        self,
        left: float,
        wanted: float,
        noise: float | None,
        coalition: float | None = None,
        of: str = "a source's budget",
        limit: float | None = None,
    ) -> None:
        """`wanted`: against the ad server alone; `coalition`: against it with all helpers but one."""
        useful = noise is not None and left >= USEFUL_EPSILON
        fits = f"With noise {noise:g} it would fit" if useful else "Nothing useful would fit any more"
        together = wanted if coalition is None else coalition
        most = "" if limit is None else f" of {limit:g}"
        super().__init__(
            f"this would cost ε = {both(wanted, together)}; {left:.4g}{most} is left of {of}. {fits}"
        )
        self._facts = {
            "wanted_epsilon": wanted,
            "wanted_coalition_epsilon": together,
            "left_epsilon": left,
            "left_of": of,
            "noise_that_fits": noise,
        }


class DeltaExhausted(ReleaseRefused):
    """The session's δ is more than is left for the model in one dataset. This helper charged nothing."""

    def __init__(self, left: float, wanted: float) -> None:
        super().__init__(
            f"this session has δ = {wanted:g}; {at_most(left)} is left of the δ that sessions of this model "
            f"over these datasets share: {_delta_advice(left)}"
        )
        self._facts = {"wanted_delta": wanted, "left_delta": left}


def _delta_advice(left: float) -> str:
    if left > 0:
        return f"open it with delta = {at_most(left)} or less"
    return (
        "no session fits any more, with any delta. Fits and evaluations take none of it; a session that is "
        "closed before its first step gives its own back; a new document has δ for new reports"
    )


class NoSuchSession(ReleaseRefused):
    """No session of that id was opened here for that origin."""


class NoSuchStep(ReleaseRefused):
    """A step after the last of its session, or one that is not the next."""


class StepTaken(ReleaseRefused):
    """Another body was answered for this step. A step is answered for one body only."""


class SessionClosed(ReleaseRefused):
    """The session is closed: no more of its steps are answered."""


class StepOver(ReleaseRefused):
    """A later step was answered since: this one's answer is not kept any more, and not computed again."""


class SlotTaken(ReleaseRefused):
    """The session names slots that another session has. This helper charged nothing."""

    def __init__(self, free: int) -> None:
        super().__init__(f"another session has one of these slots: ask again, from slot {free} on")
        self._facts = {"free_slot": float(free)}


class SessionLost(ReleaseRefused):
    """The session was opened and charged. Its steps were lost since, so it cannot go on."""


class LedgerBehind(MaskedLarkError):
    """The ledger lacks what this helper has signed: it is an old copy. Nothing is answered from it."""


class ReceiptsMissing(MaskedLarkError):
    """The ledger cannot be brought up to date: receipts that were signed are not here. Says which."""


class BadReceipt(MaskedLarkError):
    """A receipt, or a chain of receipts, that does not hold."""
