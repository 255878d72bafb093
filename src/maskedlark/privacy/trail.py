"""Verifying a helper's receipts from public documents alone. Run by anyone.

The same arithmetic as the helper's ledger: every charge is computed again, and the chain has to say the same.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from maskedlark.core.purpose import Purpose
from maskedlark.privacy.budget import Account, Cost, Spent
from maskedlark.privacy.document import Document
from maskedlark.privacy.errors import BadReceipt
from maskedlark.privacy.receipt import Balance, Receipt, ReleaseReceipt, SealedReceipt, SignedReceipt
from maskedlark.wire.signatures import VerifyingKey

_CLOSE = 1e-9
_ABSOLUTE = {"charged_epsilon": 1e-9, "spent_epsilon": 1e-9, "spent_delta": 0.0, "left_epsilon": 1e-9}
"""Figures may differ by so much: accountants of two machines need not round alike."""


@dataclass
class Trail:
    """What a verified chain adds up to."""

    origin: str
    helper: str
    documents: Mapping[str, Document]
    """By digest, in hexadecimal."""
    receipts: list[Receipt] = field(default_factory=list)
    _last: str | None = None
    _accounts: dict[str, Account] = field(default_factory=dict)
    _sealed: dict[str, SealedReceipt] = field(default_factory=dict)
    _requests: set[str] = field(default_factory=set)

    def spent(self) -> dict[str, Spent]:
        """What a source has cost under each document that receipts name."""
        return {digest: account.spent() for digest, account in self._accounts.items()}

    def follow(self, signed: SignedReceipt) -> None:
        """Take the next receipt, or raise what is wrong with it."""
        document = self._document(signed.claimed())
        identities = {helper.name: helper.identity for helper in document.helpers}
        if self.helper not in identities:
            raise BadReceipt(f"{self.helper} is no helper of {self.origin} under the document that it names")
        receipt = signed.open(self.helper, VerifyingKey(bytes.fromhex(identities[self.helper])))
        self._check_place(receipt)
        if isinstance(receipt, SealedReceipt):
            self._seal(receipt, document)
        else:
            self._release(receipt, document)
        self.receipts.append(receipt)
        self._last = signed.digest.hex()

    def _document(self, receipt: Receipt) -> Document:
        if receipt.origin != self.origin:
            raise BadReceipt(f"a receipt for {receipt.origin}, not for {self.origin}")
        if receipt.parameters not in self.documents:
            raise BadReceipt(f"receipt {receipt.number} names a document that {self.origin} never published")
        return self.documents[receipt.parameters]

    def _check_place(self, receipt: Receipt) -> None:
        if receipt.number != len(self.receipts) + 1 or receipt.previous != self._last:
            raise BadReceipt(f"receipt {receipt.number} does not follow the {len(self.receipts)} before it")
        if self.receipts and receipt.time < self.receipts[-1].time:
            raise BadReceipt(f"receipt {receipt.number} is older than the one before it")

    def _seal(self, receipt: SealedReceipt, document: Document) -> None:
        if receipt.dataset in self._sealed:
            raise BadReceipt(f"receipt {receipt.number} seals a dataset for the second time")
        if Purpose(receipt.purpose) not in document.purposes():
            raise BadReceipt(f"receipt {receipt.number} seals reports that its document does not declare")
        self._sealed[receipt.dataset] = receipt

    def _release(self, receipt: ReleaseReceipt, document: Document) -> None:
        if receipt.request in self._requests or len(set(receipt.datasets)) < len(receipt.datasets):
            raise BadReceipt(f"receipt {receipt.number} names a request or a dataset twice")
        self._check_datasets(receipt, document)
        mechanism = document.mechanisms["aggregate" if receipt.tag is None else "train"]
        if receipt.released.mechanism != mechanism.kind or receipt.released.noise < mechanism.noise_floor:
            raise BadReceipt(f"receipt {receipt.number} has other noise than its document declares")
        account = self._accounts.setdefault(receipt.parameters, Account(document))
        entry = receipt.entry()
        if not account.fits(entry):
            raise BadReceipt(f"receipt {receipt.number} exceeds the budget of a source")
        _check_balance(receipt, account.cost(entry))
        account.add([entry])
        self._requests.add(receipt.request)

    def _check_datasets(self, receipt: ReleaseReceipt, document: Document) -> None:
        if receipt.tag is not None and receipt.tag not in document.declared_models:
            raise BadReceipt(f"receipt {receipt.number} is about a model that is not declared")
        sealed = [self._sealed.get(dataset) for dataset in receipt.datasets]
        purpose = "aggregate" if receipt.tag is None else "train"
        for each in sealed:
            if each is None or (each.parameters, each.purpose) != (receipt.parameters, purpose):
                raise BadReceipt(f"receipt {receipt.number} answers over a dataset that was not sealed so")
        # Of one model there may be fewer: this much can be seen from outside.
        records = sum(each.records for each in sealed if each)
        if records < document.k or (purpose == "aggregate" and records > document.most_records):
            raise BadReceipt(f"receipt {receipt.number} answers over {records} records, which is not allowed")


def _check_balance(receipt: ReleaseReceipt, cost: Cost) -> None:
    ours, theirs = Balance.of(cost).model_dump(), receipt.balance.model_dump()
    if not all(
        math.isclose(ours[name], theirs[name], rel_tol=_CLOSE, abs_tol=_ABSOLUTE[name]) for name in ours
    ):
        raise BadReceipt(f"receipt {receipt.number} says another cost than its noise has")


def verify(chain: Iterable[SignedReceipt], origin: str, helper: str, documents: Iterable[Document]) -> Trail:
    """The trail of one helper for one origin, from its first receipt on."""
    trail = Trail(origin, helper, {document.digest.hex(): document for document in documents})
    for signed in chain:
        trail.follow(signed)
    return trail
