"""What was spent of a budget and what is left of what, from the helpers' receipts. Run by the ad server.

Nothing is asked that anyone could not ask: receipts are public. Every charge is computed again from what was
answered, as by the helpers' own ledgers, so that what a helper would refuse is known before it is asked.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from maskedlark.dp.session_charge import SessionCharge
from maskedlark.ledger.budget import (
    BUDGET,
    Account,
    BudgetEntry,
    EpsilonPair,
    Limit,
    SessionRefund,
    StreamSpent,
)
from maskedlark.ledger.errors import AccountClosed
from maskedlark.ledger.receipt import ClosedReceipt, OpenedReceipt, Receipt, RecoveredReceipt, ReleaseReceipt
from maskedlark.ledger.wording import at_most
from maskedlark.parameters import randomised
from maskedlark.parameters.document import Document
from maskedlark.parameters.policy import against_coalition

BUDGET_COALITION = f"{BUDGET}, against the ad server with all helpers but one"
_NO_EPSILON = EpsilonPair(0.0, 0.0)


@dataclass(frozen=True)
class Spending:
    """One receipt's part of what was spent."""

    number: int
    """Of the receipt."""
    time: int
    what: str
    """The function; for a session that was closed, `refund`."""
    stream: str | None
    """The model; None for reports to aggregate."""
    datasets: tuple[str, ...]
    """By digest."""
    request: str
    epsilon: EpsilonPair
    """What a source costs more by it; for a refund, less."""
    delta: float
    """What a session takes of the δ that all sessions of its model share, or gives back."""
    steps: int | None
    """Of a session."""


@dataclass(frozen=True, eq=False)
class HelperSpending:
    """All that one helper has charged under one document."""

    helper: str
    account: Account
    entries: tuple[Spending, ...]
    lost: bool = False
    """Whether it has lost receipts under this document or a later one: then all counts as spent."""

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Every ceiling of the document, and what is left of it."""
        return self.account.limits()

    @property
    def streams(self) -> list[StreamSpent]:
        """What every model, and the report to aggregate, has cost."""
        return self.account.streams()

    @property
    def opened(self) -> frozenset[str]:
        """The ids of all sessions that were ever opened."""
        return frozenset(each.request for each in self.entries if each.steps is not None)


@dataclass(frozen=True, eq=False)
class BudgetState:
    """The budget of a source under one document, as all helpers have signed it."""

    document: Document
    helpers: tuple[HelperSpending, ...]
    missing: Mapping[str, str] = field(default_factory=dict)
    """Helpers that could not be asked, with the reason: they may have charged more than is stored here."""

    @property
    def dearest(self) -> HelperSpending:
        """The helper where the least is left: it is the one that refuses."""
        return min(self.helpers, key=lambda each: tuple(limit.left for limit in each.limits))

    @property
    def limits(self) -> list[Limit]:
        """Every ceiling; and what all purposes together may cost a coalition, which follows from them."""
        whole, *training = self.dearest.limits
        charged = max(each.account.spent().coalition for each in self.helpers)
        # What randomised records reveal by themselves is charged to nobody, and spent from the first.
        spent = charged + randomised.epsilon(self.document)
        together = against_coalition(self.document).epsilon
        return [whole, Limit(BUDGET_COALITION, "coalition", together, spent), *training]

    def __str__(self) -> str:
        lines = [f"ε = {each.left:.4g} of {each.epsilon:g} is left of {each.of}" for each in self.limits]
        dearest = self.dearest
        for each in dearest.streams:
            if each.session_delta:
                left = f"δ = {at_most(each.session_delta_left)} of {each.session_delta:.3g}"
                lines.append(f"{left} is left for sessions of {each.stream}")
        spent = [f"{each.what} of {each.stream}" if each.stream else each.what for each in dearest.entries]
        return "\n".join([*lines, f"spent by: {', '.join(spent) or 'nothing'}"])

    @property
    def differ(self) -> bool:
        """Whether helpers have charged different requests: one may not have been asked to the end."""
        asked = [each for each in self.helpers if each.helper not in self.missing]
        return len({frozenset((e.request, e.what) for e in each.entries) for each in asked}) > 1

    def check(self, entry: BudgetEntry) -> None:
        """Raise what a helper would raise if this were charged now."""
        for each in self.helpers:
            if each.lost:
                raise AccountClosed(
                    f"{each.helper} lost receipts under version {self.document.version} or a later one: what "
                    "they cost is not known, so all of it counts as spent. Publish a new version"
                )
            if not each.account.fits(entry):
                raise each.account.refusal(entry)

    def fits(self, entry: BudgetEntry) -> bool:
        """Whether all helpers would charge this now."""
        return all(each.account.fits(entry) and not each.lost for each in self.helpers)

    def room(self, stream: str | None, datasets: Sequence[bytes]) -> EpsilonPair:
        """The most that one more release over these datasets may cost."""
        rooms = [each.account.room(stream, datasets) for each in self.helpers]
        return EpsilonPair(min(each.adserver for each in rooms), min(each.coalition for each in rooms))

    def is_opened(self, session: str) -> bool:
        """Whether any helper has opened a session of this id."""
        return any(session in each.opened for each in self.helpers)


def spending(
    helper: str, document: Document, receipts: Sequence[Receipt], later: Collection[str] = ()
) -> HelperSpending:
    """Follow a helper's receipts under a document, from the first on. `later`: digests of later documents."""
    account, entries = Account(document), list[Spending]()
    closing = {document.digest.hex(), *later}
    lost = any(isinstance(each, RecoveredReceipt) and each.parameters in closing for each in receipts)
    opened: dict[str, OpenedReceipt] = {}
    for receipt in receipts:
        if receipt.parameters != document.digest.hex():
            continue
        match receipt:
            case OpenedReceipt():
                opened[receipt.request] = receipt
                entries.append(_charged(account, receipt, receipt))
            case ReleaseReceipt():
                entries.append(_charged(account, receipt, receipt))
            case ClosedReceipt():
                entries.append(_charged(account, receipt, opened[receipt.request]))
    return HelperSpending(helper, account, tuple(entries), lost)


def _charged(
    account: Account,
    receipt: ReleaseReceipt | OpenedReceipt | ClosedReceipt,
    of: ReleaseReceipt | OpenedReceipt,
) -> Spending:
    """Count a receipt, and say what it changed. `of`: the same, or the opening of the session it closes."""
    entry, epsilon = receipt.entry(), _NO_EPSILON
    if entry is not None:
        before, after, *_ = account.cost(entry)
        account.add([entry])
        epsilon = EpsilonPair(after.epsilon - before.epsilon, after.coalition - before.coalition)
    return Spending(
        receipt.number,
        receipt.time,
        "refund" if isinstance(receipt, ClosedReceipt) else of.function,
        of.tag,
        of.datasets,
        of.request,
        epsilon,
        _delta(entry),
        receipt.steps if isinstance(receipt, OpenedReceipt) else None,
    )


def _delta(entry: BudgetEntry | SessionRefund | None) -> float:
    if isinstance(entry, SessionRefund):
        return entry.session_charge.delta - entry.session_charge.session_charge.delta
    return entry.charge.delta if entry is not None and isinstance(entry.charge, SessionCharge) else 0.0
