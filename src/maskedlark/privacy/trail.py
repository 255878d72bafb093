"""Verifying a helper's receipts from public documents alone. Run by anyone.

The same arithmetic as the helper's ledger: every charge is computed again, and the chain has to say the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from maskedlark.privacy.budget import Account, Cost, Spent
from maskedlark.privacy.document import Document
from maskedlark.privacy.errors import BadReceipt, BudgetExhausted
from maskedlark.privacy.receipt import Balance, Receipt, ReleaseReceipt, SealedReceipt, SignedReceipt
from maskedlark.wire.signatures import VerifyingKey

_CLOSE = 1e-9
"""Figures may differ by so much: accountants of two machines need not round alike."""


@dataclass
class Trail:
    """What a verified chain adds up to."""

    origin: str
    helper: str
    documents: Mapping[str, Document]
    """By digest, in hexadecimal."""
    receipts: list[Receipt] = field(default_factory=list)
    _accounts: dict[str, Account] = field(default_factory=dict)
    _sealed: dict[str, SealedReceipt] = field(default_factory=dict)
    _requests: set[str] = field(default_factory=set)

    def spent(self) -> dict[str, Spent]:
        """What a source has cost under each document that receipts name."""
        return {digest: account.spent() for digest, account in self._accounts.items()}

    def follow(self, signed: SignedReceipt, before: SignedReceipt | None) -> None:
        """Take the next receipt, or raise what is wrong with it."""
        claimed = signed.claimed()
        document = self._document(claimed)
        identities = {helper.name: helper.identity for helper in document.helpers}
        if self.helper not in identities:
            raise BadReceipt(f"{self.helper} is no helper of {self.origin} under the document that it names")
        receipt = signed.open(self.helper, VerifyingKey(bytes.fromhex(identities[self.helper])))
        self._check_place(receipt, before)
        if isinstance(receipt, SealedReceipt):
            self._seal(receipt)
        else:
            self._release(receipt, document)
        self.receipts.append(receipt)

    def _document(self, receipt: Receipt) -> Document:
        if receipt.origin != self.origin:
            raise BadReceipt(f"a receipt for {receipt.origin}, not for {self.origin}")
        if receipt.parameters not in self.documents:
            raise BadReceipt(f"receipt {receipt.number} names a document that {self.origin} never published")
        return self.documents[receipt.parameters]

    def _check_place(self, receipt: Receipt, before: SignedReceipt | None) -> None:
        previous = before.digest.hex() if before else None
        if receipt.number != len(self.receipts) + 1 or receipt.previous != previous:
            raise BadReceipt(f"receipt {receipt.number} does not follow the {len(self.receipts)} before it")
        if self.receipts and receipt.time < self.receipts[-1].time:
            raise BadReceipt(f"receipt {receipt.number} is older than the one before it")

    def _seal(self, receipt: SealedReceipt) -> None:
        if receipt.dataset in self._sealed:
            raise BadReceipt(f"receipt {receipt.number} seals a dataset for the second time")
        self._sealed[receipt.dataset] = receipt

    def _release(self, receipt: ReleaseReceipt, document: Document) -> None:
        for dataset in receipt.datasets:
            sealed = self._sealed.get(dataset)
            if sealed is None or sealed.parameters != receipt.parameters:
                raise BadReceipt(f"receipt {receipt.number} answers over a dataset that was not sealed so")
            if (sealed.purpose == "aggregate") != (receipt.tag is None):
                raise BadReceipt(f"receipt {receipt.number} has a tag where there is none, or lacks it")
        if receipt.request in self._requests or len(set(receipt.datasets)) < len(receipt.datasets):
            raise BadReceipt(f"receipt {receipt.number} names a request or a dataset twice")
        mechanism = document.mechanisms["aggregate" if receipt.tag is None else "train"]
        released = receipt.released
        if released.mechanism != mechanism.kind or released.noise < mechanism.noise_floor:
            raise BadReceipt(f"receipt {receipt.number} has other noise than its document declares")
        account = self._accounts.setdefault(receipt.parameters, Account(document))
        entry = receipt.entry()
        try:
            cost = account.check(entry)
        except BudgetExhausted as error:
            raise BadReceipt(f"receipt {receipt.number} exceeds the budget: {error}") from None
        _check_balance(receipt, cost)
        account.add(entry)
        self._requests.add(receipt.request)


def _check_balance(receipt: ReleaseReceipt, cost: Cost) -> None:
    ours, theirs = Balance.of(cost).model_dump(), receipt.balance.model_dump()
    if any(abs(ours[name] - theirs[name]) > _CLOSE * max(1.0, abs(ours[name])) for name in ours):
        raise BadReceipt(f"receipt {receipt.number} says another cost than its noise has")


def verify(chain: Iterable[SignedReceipt], origin: str, helper: str, documents: Iterable[Document]) -> Trail:
    """The trail of one helper for one origin, from its first receipt on."""
    trail = Trail(origin, helper, {document.digest.hex(): document for document in documents})
    before = None
    for signed in chain:
        trail.follow(signed, before)
        before = signed
    return trail
