"""Receipts: what a helper has answered, signed and chained, so that anyone can add up what it cost.

A helper's receipts for one origin form a hash chain. Six kinds: a document's check key was pinned; a dataset
was frozen; a query was answered; a session was opened, or closed; receipts were lost. None reveals who is in
a dataset or in a batch. A key that the helper's identity certifies signs them, so that the identity can stay
off the machine that answers.
"""

import hashlib
from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from maskedlark.dp.accountant import Charge
from maskedlark.dp.sampling import Sampling
from maskedlark.dp.session_charge import MAX_STEPS, ClosedSessionCharge, SessionCharge
from maskedlark.errors import BadSignature, NotDeclared
from maskedlark.ledger.budget import BUDGET, BudgetEntry, Cost, SessionRefund
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.wording import both
from maskedlark.parameters.document import Origin
from maskedlark.parameters.settings import MAX_NUMBER, Name, PublicKey, Seconds
from maskedlark.wire.message import Canonical, Encoded, Hex16, Hex32, Hex64, Settings
from maskedlark.wire.signatures import SigningKey, VerifyingKey

RECEIPT_LABEL = "maskedlark v2 receipt"
CERTIFICATE_LABEL = "maskedlark v2 receipt key"

Number = Annotated[int, Field(ge=1, le=MAX_NUMBER)]
S = TypeVar("S", bound="OfHelper")


class OfHelper(Canonical):
    """A statement that a helper signs."""

    helper: Name


class _Placed(OfHelper):
    """A receipt's helper, origin, and place in their chain."""

    format: Literal[2] = 2
    origin: Origin
    number: Number
    previous: Hex32 | None
    time: Seconds
    parameters: Hex32


class CheckKeyReceipt(_Placed):
    """The first check key of a document was pinned: reports are checked with this one, and no other ever."""

    kind: Literal["check-key"] = "check-key"
    key_digest: Hex32
    """SHA-256 of the key."""


class FrozenReceipt(_Placed):
    """A dataset was frozen: its reports are in no other, and it never changes."""

    kind: Literal["frozen"] = "frozen"
    purpose: Literal["aggregate", "train"]
    dataset: Hex32
    records: Annotated[int, Field(ge=0, le=MAX_NUMBER)]
    invalid: Annotated[int, Field(ge=0, le=MAX_NUMBER)] | None = Field(
        default=None, exclude_if=lambda count: count is None
    )
    """How many that all helpers opened were left out because they are not valid; only if they are checked."""


class Balance(Settings):
    """A source's budget: what this release cost, what all have cost, and what is left."""

    charged_epsilon: Annotated[float, Field(ge=0)]
    spent_epsilon: Annotated[float, Field(ge=0)]
    spent_coalition_epsilon: Annotated[float, Field(ge=0)]
    """Against an adversary who knows the batches of sessions: the ad server with all helpers but one."""
    spent_delta: Annotated[float, Field(ge=0)]
    left_epsilon: float
    """Of a source's budget, against the ad server. Training has ceilings besides."""

    def __str__(self) -> str:
        spent = both(self.spent_epsilon, self.spent_coalition_epsilon)
        budget = f"{self.left_epsilon:.4g} of {self.spent_epsilon + self.left_epsilon:.6g}"
        # As it was then: who shows a stored answer again may have spent more since.
        return (
            f"With it a source had cost ε = {spent} (δ = {self.spent_delta:g}); {budget} was left of {BUDGET}"
        )

    @classmethod
    def of(cls, cost: Cost) -> "Balance":
        """A cost as a receipt states it."""
        return cls(
            charged_epsilon=cost.charged.adserver,
            spent_epsilon=cost.after.epsilon,
            spent_coalition_epsilon=cost.after.coalition,
            spent_delta=cost.after.delta,
            left_epsilon=cost.left,
        )


class ReleaseReceipt(_Placed):
    """A query was answered."""

    kind: Literal["release"] = "release"
    request: Hex16
    request_digest: Hex32
    """Of the request's bytes: function, arguments, datasets and noise."""
    function: Name
    tag: Name | None
    datasets: Annotated[tuple[Hex32, ...], Field(min_length=1)]
    charge: Charge
    """The answer's noise, and what was charged: this many columns of this kind and noise."""
    balance: Balance

    def entry(self) -> BudgetEntry:
        """The equivalent budget entry."""
        return BudgetEntry(self.tag, tuple(bytes.fromhex(dataset) for dataset in self.datasets), self.charge)


class OpenedReceipt(_Placed):
    """A session was opened: all that it may cost is reserved."""

    kind: Literal["opened"] = "opened"
    request: Hex16
    """The session's id from here on."""
    request_digest: Hex32
    """Of the request's bytes."""
    function: Name
    tag: Name
    datasets: Annotated[tuple[Hex32, ...], Field(min_length=1)]
    slots: Annotated[tuple[Annotated[int, Field(ge=0, le=MAX_NUMBER)], ...], Field(min_length=1)]
    """In each dataset, the slot of its first step: helpers with other slots would draw other batches."""
    steps: Annotated[int, Field(ge=1, le=MAX_STEPS)]
    sampling: Sampling
    session_charge: SessionCharge | None
    """None where labels were randomised in the browser: nothing is charged."""
    balance: Balance

    def entry(self) -> BudgetEntry | None:
        """The equivalent budget entry; None where nothing is charged."""
        if self.session_charge is None:
            return None
        datasets = tuple(bytes.fromhex(dataset) for dataset in self.datasets)
        return BudgetEntry(self.tag, datasets, self.session_charge, bytes.fromhex(self.request))


class StillCharged(Settings):
    """What stays charged of a closed session."""

    steps: Annotated[int, Field(ge=0, le=MAX_STEPS)]
    batches: Annotated[int, Field(ge=0, le=MAX_STEPS)]


class ClosedReceipt(_Placed):
    """A session was closed: what it did not use is refunded."""

    kind: Literal["closed"] = "closed"
    request: Hex16
    """The session's id."""
    used_steps: Annotated[int, Field(ge=0, le=MAX_STEPS)]
    """The number of steps claimed."""
    steps_digest: Hex32
    """Over the claimed steps and the digests of their bodies, in order."""
    session_charge: SessionCharge | None
    """The charge at its opening."""
    still_charged: StillCharged | None
    balance: Balance

    def entry(self) -> SessionRefund | None:
        """The equivalent budget entry; None where nothing was charged."""
        if self.session_charge is None or self.still_charged is None:
            return None
        closed = ClosedSessionCharge(
            self.session_charge, self.still_charged.steps, self.still_charged.batches
        )
        return SessionRefund(bytes.fromhex(self.request), closed)


class RecoveredReceipt(_Placed):
    """The helper states that it lost its receipts between one that it kept and this one.

    From here on nothing is answered under the document that it names, nor under an earlier one.
    """

    kind: Literal["recovered"] = "recovered"
    last_kept: Annotated[int, Field(ge=0, le=MAX_NUMBER)]
    """The number of the last receipt before the lost ones; 0 if there is none."""
    last_kept_digest: Hex32 | None


Receipt = CheckKeyReceipt | FrozenReceipt | ReleaseReceipt | OpenedReceipt | ClosedReceipt | RecoveredReceipt
_RECEIPT: TypeAdapter[Receipt] = TypeAdapter(Annotated[Receipt, Field(discriminator="kind")])


class Certificate(OfHelper):
    """A helper's identity states: this key signs my receipts, from one moment to another."""

    format: Literal[2] = 2
    key: PublicKey
    not_before: Seconds
    not_after: Seconds


class SignedCertificate(Settings):
    """A certificate in its canonical text, and the identity's signature."""

    certificate: str
    signature: Hex64

    def open(self, helper: str, identity: VerifyingKey) -> Certificate:
        """The certificate, if this helper's identity signed it. Run by anyone who verifies receipts."""
        return _opened(self.claimed, self.certificate, CERTIFICATE_LABEL, self.signature, identity, helper)

    def opened(
        self,
        read: Callable[[], S],
        text: str,
        label: str,
        signature: str,
        identity: VerifyingKey,
        helper: str,
    ) -> tuple[S, "Certificate"]:
        """What this helper signed with the certificate's key, and the certificate."""
        certificate = self.open(helper, identity)
        key = VerifyingKey(bytes.fromhex(certificate.key))
        return _opened(read, text, label, signature, key, helper), certificate

    def claimed(self) -> Certificate:
        """The certificate, unverified: for one's own."""
        try:
            return Certificate.model_validate_json(self.certificate)
        except ValidationError:
            raise BadReceipt("no certificate of format 2: rotate the keys with this version") from None


def certify(certificate: Certificate, identity: SigningKey) -> SignedCertificate:
    """Run by a helper's operator, where the identity is."""
    body = certificate.encode()
    signature = identity.sign(CERTIFICATE_LABEL, body).hex()
    return SignedCertificate(certificate=body.decode(), signature=signature)


class SignedReceipt(Encoded):
    """A receipt in its canonical text, its signature, and the certificate of the key that made it."""

    receipt: str
    signature: Hex64
    certificate: SignedCertificate

    @property
    def digest(self) -> bytes:
        """The digest by which the next receipt names it."""
        return hashlib.sha256(self.receipt.encode()).digest()

    def open(self, helper: str, identity: VerifyingKey) -> Receipt:
        """The receipt, if this helper made it. Run by anyone."""
        signed = self.claimed, self.receipt, RECEIPT_LABEL, self.signature
        receipt, certificate = self.certificate.opened(*signed, identity, helper)
        if not certificate.not_before <= receipt.time < certificate.not_after:
            raise BadReceipt(f"receipt {receipt.number} of {helper} was signed with a key outside its time")
        return receipt

    def claimed(self) -> Receipt:
        """The receipt, unverified: for one's own, or to find out whose key to ask for."""
        try:
            return _RECEIPT.validate_json(self.receipt)
        except (ValidationError, NotDeclared):
            raise BadReceipt("no receipt of format 2: of an older helper, or of something else") from None


def sign(receipt: Receipt, key: SigningKey, certificate: SignedCertificate) -> SignedReceipt:
    """Run by the helper, before anything is answered."""
    body = receipt.encode()
    signature = key.sign(RECEIPT_LABEL, body).hex()
    return SignedReceipt(receipt=body.decode(), signature=signature, certificate=certificate)


def decode(data: bytes | str) -> SignedReceipt:
    """A signed receipt off the wire, not yet verified."""
    try:
        return SignedReceipt.model_validate_json(data)
    except ValidationError:
        raise BadReceipt("a signed receipt has a receipt, a signature and a certificate") from None


def _opened(
    read: Callable[[], S], text: str, label: str, signature: str, key: VerifyingKey, helper: str
) -> S:
    """What this key signed under a label, if it is this helper's and in canonical form."""
    try:
        key.verify(label, text.encode(), bytes.fromhex(signature))
    except BadSignature as error:
        raise BadReceipt(str(error)) from None
    value = read()
    if value.encode() != text.encode() or value.helper != helper:
        what = label.removeprefix("maskedlark v2 ")
        raise BadReceipt(f"a {what} that is not {helper}'s, or not in its one form")
    return value
