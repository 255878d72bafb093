"""The seed that a dataset's helpers share: made once by the first of them, and sealed to each.

Batches and the masks on answers follow from it. The ad server relays the message. It cannot read the seed,
which is sealed to each helper, nor replace it: the first helper signs its recipients and dataset. Anyone who
knew the seed would know who is in a batch and what one helper's answer says: sampling would hide nobody. A
helper stores only the message, so deleting the key deletes the seed, in every copy of its database too.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError

from maskedlark.core.batches import SEED_BYTES
from maskedlark.errors import CannotOpen
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import OfHelper, SignedCertificate
from maskedlark.parameters.document import Document, Origin
from maskedlark.parameters.settings import Name, Seconds
from maskedlark.release.errors import BadSeed
from maskedlark.wire.hpke import OVERHEAD, OpeningKey, SealingKey
from maskedlark.wire.message import Encoded, Hex16, Hex32, Hex64, Settings
from maskedlark.wire.signatures import SigningKey, VerifyingKey

LABEL = "maskedlark v2 shared seed"
_SEALED_DIGITS = 2 * (SEED_BYTES + OVERHEAD)


class SealedSeed(Settings):
    """The seed, sealed to one helper."""

    key: Hex16
    """The id of the key that it is sealed to."""
    seed: Annotated[str, StringConstraints(pattern=rf"^[0-9a-f]{{{_SEALED_DIGITS}}}$")]


class SeedMessage(OfHelper):
    """A seed for all helpers of a document, made by the first that it names."""

    format: Literal[2] = 2
    origin: Origin
    parameters: Hex32
    dataset: Hex32
    time: Seconds
    sealed: Annotated[dict[Name, SealedSeed], Field(min_length=2, max_length=16)]
    """By the recipient's name."""


class SignedSeed(Encoded):
    """The message in its canonical text, its signature, and the certificate of the key that made it."""

    message: str
    signature: Hex64
    certificate: SignedCertificate

    def claimed(self) -> SeedMessage:
        """The message, unverified."""
        try:
            return SeedMessage.model_validate_json(self.message)
        except ValidationError:
            raise BadSeed("a message that is no seed") from None


def make(
    seed: bytes,
    document: Document,
    dataset: bytes,
    recipients: Mapping[str, SealingKey],
    signer: tuple[SigningKey, SignedCertificate],
    now: int,
) -> SignedSeed:
    """Run by the first helper, once per dataset."""
    sealed = {
        name: SealedSeed(key=key.key_id.hex(), seed=key.seal(seed, _info(document, dataset, name, key)).hex())
        for name, key in recipients.items()
    }
    message = SeedMessage(
        helper=document.helpers[0].name,
        origin=document.origin,
        parameters=document.digest.hex(),
        dataset=dataset.hex(),
        time=now,
        sealed=sealed,
    )
    body = message.encode()
    key, certificate = signer
    return SignedSeed(message=body.decode(), signature=key.sign(LABEL, body).hex(), certificate=certificate)


def unseal(
    data: bytes, document: Document, dataset: bytes, helper: str, keys: Mapping[bytes, OpeningKey]
) -> bytes:
    """The seed, if the document's first helper made it for this dataset and helper. Run by helpers."""
    signed = _decode(data)
    message = _verified(signed, document)
    if (message.origin, message.parameters, message.dataset) != (
        document.origin,
        document.digest.hex(),
        dataset.hex(),
    ):
        raise BadSeed("the seed is for another dataset: relay the one that was made for this")
    if helper not in message.sealed or set(message.sealed) != {each.name for each in document.helpers}:
        raise BadSeed("the seed is not for all helpers of the document, and no others")
    found = message.sealed[helper]
    key = keys.get(bytes.fromhex(found.key))
    if key is None:
        raise BadSeed("the seed is sealed to a key that is gone, as is the dataset: ask over newer datasets")
    try:
        return key.open(bytes.fromhex(found.seed), _info(document, dataset, helper, key.sealing))
    except CannotOpen:
        raise BadSeed(f"the seed does not open: it was not sealed to {helper} for this dataset") from None


def _verified(signed: SignedSeed, document: Document) -> SeedMessage:
    first = document.helpers[0]
    identity = VerifyingKey(bytes.fromhex(first.identity))
    try:
        message, certificate = signed.certificate.opened(
            signed.claimed, signed.message, LABEL, signed.signature, identity, first.name
        )
    except BadReceipt as error:
        raise BadSeed(f"the seed was not signed by {first.name}: {error}") from None
    if not certificate.not_before <= message.time < certificate.not_after:
        raise BadSeed("the seed was signed with a key outside its time")
    return message


def _decode(data: bytes) -> SignedSeed:
    try:
        found = SignedSeed.model_validate_json(data)
    except ValidationError:
        raise BadSeed("no signed seed") from None
    # Only one form: a relay must not be able to make two messages of one.
    if found.encode() != data:
        raise BadSeed("a signed seed that is not in its one form: relay it as it came")
    return found


def _info(document: Document, dataset: bytes, helper: str, key: SealingKey) -> bytes:
    """Everything that the seed is bound to, each part preceded by its length."""
    parts = (LABEL.encode(), document.origin.encode(), document.digest, dataset, helper.encode(), key.key_id)
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
