"""Verifying a helper's receipts from public documents alone. Run by anyone.

Every charge is computed again, as by the helper's ledger, and must equal what the chain states. How many
batches a record is in follows from a secret seed. A Poisson session states the most that helpers allow, which
anyone can compute; all others state exactly how often a record is used.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from maskedlark.core.purpose import Purpose
from maskedlark.dp import sampling
from maskedlark.dp.accountant import Charge
from maskedlark.dp.session_charge import SessionCharge, batch_bound, batches_reach_k
from maskedlark.ledger.budget import Account, Cost, Spent
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import (
    Balance,
    CheckKeyReceipt,
    ClosedReceipt,
    FrozenReceipt,
    OpenedReceipt,
    Receipt,
    RecoveredReceipt,
    ReleaseReceipt,
    SignedReceipt,
)
from maskedlark.parameters import randomised
from maskedlark.parameters.document import Document, NoMechanism
from maskedlark.wire.signatures import VerifyingKey

_CLOSE, _ABSOLUTE = 1e-9, 1e-9
"""The tolerance for figures: accountants of two machines need not round alike."""
_ROUNDED = 1e-4
"""The tolerance for sessions' figures: their transforms lose little, but not compared with a small δ."""


@dataclass
class ReceiptVerifier:
    """Follows a chain of receipts, and holds the totals of what it has verified."""

    origin: str
    helper: str
    documents: Mapping[str, Document]
    """By digest, in hexadecimal."""
    receipts: list[Receipt] = field(default_factory=list)
    lost: int = 0
    """The number of receipts that the helper states it lost: they are not in the chain."""
    _digests: dict[int, str | None] = field(default_factory=lambda: {0: None})
    """The digest of every receipt followed, by number; None for number 0."""
    _closed: int = 0
    """Nothing may be answered under documents up to this version."""
    _accounts: dict[str, Account] = field(default_factory=dict)
    _check_keys: dict[str, str] = field(default_factory=dict)
    """The digest of every document's check key."""
    _frozen: dict[str, FrozenReceipt] = field(default_factory=dict)
    _requests: set[str] = field(default_factory=set)
    _sessions: dict[str, OpenedReceipt] = field(default_factory=dict)
    """The open ones."""
    _slots: dict[str, list[range]] = field(default_factory=dict)
    """The slots that sessions have, by dataset."""

    def spent(self) -> dict[str, Spent]:
        """What a source has cost under each document that receipts name."""
        return {digest: account.spent() for digest, account in self._accounts.items()}

    def local(self) -> dict[str, float]:
        """What sums without noise reveal of a source's labels besides, under documents that had some."""
        bare = [
            each for each in self.receipts if isinstance(each, OpenedReceipt) and each.session_charge is None
        ]
        return {each.parameters: randomised.epsilon(self.documents[each.parameters]) for each in bare}

    def follow(self, signed: SignedReceipt) -> None:
        """Add the next receipt, or raise what is wrong with it."""
        document = self._document(signed.claimed())
        identities = {helper.name: helper.identity for helper in document.helpers}
        if self.helper not in identities:
            raise BadReceipt(f"{self.helper} is no helper of {self.origin} under the document that it names")
        receipt = signed.open(self.helper, VerifyingKey(bytes.fromhex(identities[self.helper])))
        self._check_place(receipt)
        match receipt:
            case CheckKeyReceipt():
                self._pin(receipt, document)
            case FrozenReceipt():
                self._freeze(receipt, document)
            case ReleaseReceipt() | OpenedReceipt():
                self._charge(receipt, document)
            case ClosedReceipt():
                self._close(receipt, document)
            case RecoveredReceipt():
                self._closed = max(self._closed, document.version)
                self.lost += receipt.number - 1 - self._number()
        self.receipts.append(receipt)
        self._digests[receipt.number] = signed.digest.hex()

    def _number(self) -> int:
        """The last receipt's number."""
        return self.receipts[-1].number if self.receipts else 0

    def _document(self, receipt: Receipt) -> Document:
        if receipt.origin != self.origin:
            raise BadReceipt(f"a receipt for {receipt.origin}, not for {self.origin}")
        if receipt.parameters not in self.documents:
            raise BadReceipt(f"receipt {receipt.number} names a document that {self.origin} never published")
        return self.documents[receipt.parameters]

    def _check_place(self, receipt: Receipt) -> None:
        last = self._number()
        follows = (receipt.number, receipt.previous) == (last + 1, self._digests[last])
        if isinstance(receipt, RecoveredReceipt):
            # A holder of some of the lost receipts continues after them; nobody's chain has the others.
            kept = (
                receipt.last_kept <= last
                and self._digests.get(receipt.last_kept, "") == receipt.last_kept_digest
            )
            follows = kept and (follows or receipt.number > last + 1)
        if not follows:
            raise BadReceipt(f"receipt {receipt.number} does not follow the {len(self.receipts)} before it")
        if self.receipts and receipt.time < self.receipts[-1].time:
            raise BadReceipt(f"receipt {receipt.number} is older than the one before it")

    def _pin(self, receipt: CheckKeyReceipt, document: Document) -> None:
        if receipt.parameters in self._check_keys:
            raise BadReceipt(f"receipt {receipt.number} pins a second check key for one document")
        if document.version <= self._closed:
            raise BadReceipt(f"receipt {receipt.number} pins a check key of a document that was closed")
        self._check_keys[receipt.parameters] = receipt.key_digest

    def _freeze(self, receipt: FrozenReceipt, document: Document) -> None:
        if receipt.dataset in self._frozen:
            raise BadReceipt(f"receipt {receipt.number} freezes a dataset for the second time")
        if Purpose(receipt.purpose) not in document.purposes():
            raise BadReceipt(f"receipt {receipt.number} freezes reports that its document does not declare")
        if document.checked != (receipt.invalid is not None):
            raise BadReceipt(f"receipt {receipt.number} does not say what its document says of checks")
        if document.checked and receipt.parameters not in self._check_keys and not self.lost:
            raise BadReceipt(f"receipt {receipt.number} freezes reports that were checked without a key")
        self._frozen[receipt.dataset] = receipt

    def _charge(self, receipt: ReleaseReceipt | OpenedReceipt, document: Document) -> None:
        if receipt.request in self._requests or len(set(receipt.datasets)) < len(receipt.datasets):
            raise BadReceipt(f"receipt {receipt.number} names a request or a dataset twice")
        if document.version <= self._closed:
            raise BadReceipt(f"receipt {receipt.number} answers under a document that was closed")
        records = self._check_datasets(receipt, document)
        if isinstance(receipt, OpenedReceipt):
            _check_opened(receipt, document, records)
            self._check_slots(receipt)
        else:
            _check_noise(receipt, document, receipt.charge)
        account, entry = self._account(receipt, document), receipt.entry()
        if entry is not None and not account.fits(entry):
            raise BadReceipt(f"receipt {receipt.number} exceeds the budget of a source")
        _check_balance(receipt, account.cost(entry))
        account.add([entry] if entry else [])
        self._requests.add(receipt.request)
        if isinstance(receipt, OpenedReceipt):
            self._sessions[receipt.request] = receipt

    def _check_slots(self, receipt: OpenedReceipt) -> None:
        """Refuse shared slots: the sessions would have batches in common."""
        for dataset, first in zip(receipt.datasets, receipt.slots, strict=True):
            end, before = first + receipt.steps, self._slots.setdefault(dataset, [])
            if any(first < each.stop and each.start < end for each in before):
                raise BadReceipt(f"receipt {receipt.number} takes a slot that another session has")
            before.append(range(first, end))

    def _close(self, receipt: ClosedReceipt, document: Document) -> None:
        opened = self._sessions.pop(receipt.request, None)
        if opened is None or opened.parameters != receipt.parameters:
            raise BadReceipt(f"receipt {receipt.number} closes a session that is not open")
        _check_closing(receipt, opened)
        account, closing = self._account(receipt, document), receipt.entry()
        _check_balance(receipt, account.cost(closing))
        account.add([closing] if closing else [])

    def _account(self, receipt: Receipt, document: Document) -> Account:
        return self._accounts.setdefault(receipt.parameters, Account(document, _ROUNDED))

    def _check_datasets(self, receipt: ReleaseReceipt | OpenedReceipt, document: Document) -> int:
        if receipt.tag is not None and receipt.tag not in document.declared_models:
            raise BadReceipt(f"receipt {receipt.number} is about a model that is not declared")
        frozen = [self._frozen.get(dataset) for dataset in receipt.datasets]
        purpose = "aggregate" if receipt.tag is None else "train"
        for each in frozen:
            if each is None or (each.parameters, each.purpose) != (receipt.parameters, purpose):
                raise BadReceipt(f"receipt {receipt.number} is over a dataset that was not frozen for this")
        # One model may have fewer: this is what can be seen from outside.
        records = sum(each.records for each in frozen if each)
        if records < document.k:
            raise BadReceipt(f"receipt {receipt.number} answers over {records} records, which is not allowed")
        return records


def _check_opened(receipt: OpenedReceipt, document: Document, records: int) -> None:
    """Refuse an opening with undeclared noise, or with a charge that does not follow from its sampling.

    `records`: of all its datasets. The model may have fewer.
    """
    _check_noise(receipt, document, receipt.session_charge)
    if len(receipt.slots) != len(receipt.datasets):
        raise BadReceipt(f"receipt {receipt.number} has not one slot for each dataset")
    if receipt.session_charge is None:
        if (lacking := randomised.missing(document, receipt.tag)) is not None:
            raise BadReceipt(f"receipt {receipt.number} opens a session without noise, but {lacking}")
        return
    charge = receipt.session_charge
    if charge.steps != receipt.sampling.uses(receipt.steps) or not _follows(receipt, charge):
        raise BadReceipt(f"receipt {receipt.number} has another charge than its sampling makes")
    if not batches_reach_k(charge, records, document.k, receipt.sampling.held_out):
        raise BadReceipt(f"receipt {receipt.number} counts on batches that may be below k")


def _follows(receipt: OpenedReceipt, charge: SessionCharge) -> bool:
    """Whether rate and batches follow from the sampling."""
    rate = receipt.sampling.rate
    if rate is None or rate == 1:
        return charge.rate == 1 and charge.batches == charge.steps
    least = batch_bound(charge.mechanism, charge.noise, rate, charge.steps, charge.delta)
    return charge.rate in (rate, 1.0) and charge.batches >= least


def _check_closing(receipt: ClosedReceipt, opened: OpenedReceipt) -> None:
    """Refuse a closing that keeps less of a charge than was used."""
    if receipt.used_steps > opened.steps or receipt.session_charge != opened.session_charge:
        raise BadReceipt(f"receipt {receipt.number} closes another session than was opened")
    if (receipt.still_charged is None) != (opened.session_charge is None):
        raise BadReceipt(f"receipt {receipt.number} says nothing of what it keeps")
    if receipt.still_charged is None or opened.session_charge is None:
        return
    charge, kept = opened.session_charge, receipt.still_charged
    least = sampling.closed(opened.sampling, charge, receipt.used_steps)
    whole = (kept.steps, kept.batches) == (charge.steps, charge.batches)
    if not whole and (kept.steps != least.steps or not least.batches <= kept.batches <= charge.batches):
        raise BadReceipt(f"receipt {receipt.number} keeps less of a session than was used")


def _check_noise(
    receipt: ReleaseReceipt | OpenedReceipt, document: Document, charge: Charge | SessionCharge | None
) -> None:
    """Refuse other noise than the document declares for the function."""
    try:
        mechanism = document.mechanism(receipt.function)
    except NoMechanism as error:
        raise BadReceipt(f"receipt {receipt.number} answers what cannot be asked: {error}") from None
    if charge is None:
        return
    empty = isinstance(charge, Charge) and not charge.columns
    if charge.mechanism != mechanism.kind or charge.noise < mechanism.noise_floor or empty:
        raise BadReceipt(f"receipt {receipt.number} has other noise than its document declares")


def _check_balance(receipt: ReleaseReceipt | OpenedReceipt | ClosedReceipt, cost: Cost) -> None:
    ours, theirs = Balance.of(cost), receipt.balance
    # The figures of two adversaries differ only where sampled sessions count.
    exact = ours.spent_epsilon == ours.spent_coalition_epsilon and isinstance(receipt, ReleaseReceipt)
    apart = max(_ABSOLUTE, 0 if exact else _ROUNDED * max(1.0, ours.spent_epsilon))
    close = partial(math.isclose, rel_tol=_CLOSE if exact else _ROUNDED, abs_tol=apart)
    figures = ("charged_epsilon", "spent_epsilon", "spent_coalition_epsilon", "left_epsilon")
    same = all(close(getattr(ours, name), getattr(theirs, name)) for name in figures)
    if not (same and math.isclose(ours.spent_delta, theirs.spent_delta, rel_tol=_CLOSE)):
        raise BadReceipt(f"receipt {receipt.number} says another cost than its noise has")


def verify(
    chain: Iterable[SignedReceipt], origin: str, helper: str, documents: Iterable[Document]
) -> ReceiptVerifier:
    """Verify the whole chain of one helper for one origin, from its first receipt on."""
    verifier = ReceiptVerifier(origin, helper, {document.digest.hex(): document for document in documents})
    for signed in chain:
        verifier.follow(signed)
    return verifier
