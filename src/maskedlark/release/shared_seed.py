"""The secrets that helpers share, made by the document's first helper and sealed to each.

A dataset's seed: batches and the masks on answers follow from it. The ad server relays the message. It cannot
read the seed, which is sealed to each helper, nor replace it: the first helper signs its recipients and
dataset. Anyone who knew the seed would know who is in a batch and what one helper's answer says: sampling
would hide nobody. A helper stores only the message, so deleting the key deletes the seed, in every copy of
its database too.

A document's check key travels in the same way, under a label of its own and without a dataset: the points at
which reports are checked follow from it. A browser that knew it could forge reports.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, StringConstraints, ValidationError

from maskedlark.core.batches import SEED_BYTES
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import OfHelper, SignedCertificate
from maskedlark.parameters.document import Document, Origin
from maskedlark.parameters.settings import Name, Seconds
from maskedlark.release.errors import BadCheckKey, BadSeed
from maskedlark.wire.errors import CannotOpen
from maskedlark.wire.hpke import OVERHEAD, OpeningKey, SealingKey
from maskedlark.wire.message import Encoded, Hex16, Hex32, Hex64, Settings
from maskedlark.wire.signatures import SigningKey, VerifyingKey

LABEL = "maskedlark v2 shared seed"
CHECK_LABEL = "maskedlark v2 check key"
_SEALED_DIGITS = 2 * (SEED_BYTES + OVERHEAD)


class _Kind(NamedTuple):
    """A kind of shared secret: the label of its signature, and how errors speak of it."""

    label: str
    name: str
    of: str
    if_gone: str
    """What to do if the key that it is sealed to is gone."""
    error: type[BadSeed]


_SEED = _Kind(LABEL, "seed", "dataset", "so is the dataset, ask over newer datasets", BadSeed)
_AGAIN = "relay a new message of the first helper, which holds the same key"
_CHECK_KEY = _Kind(CHECK_LABEL, "check key", "document", _AGAIN, BadCheckKey)


def _kind(dataset: bytes | None) -> _Kind:
    return _CHECK_KEY if dataset is None else _SEED


class SealedSeed(Settings):
    """The secret, sealed to one helper."""

    key: Hex16
    """The id of the key that it is sealed to."""
    seed: Annotated[str, StringConstraints(pattern=rf"^[0-9a-f]{{{_SEALED_DIGITS}}}$")]


class SeedMessage(OfHelper):
    """A secret for all helpers of a document, made by the first that it names."""

    format: Literal[2] = 2
    origin: Origin
    parameters: Hex32
    dataset: Hex32 | None
    """None for the document's check key."""
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
            raise BadSeed("a message that is no seed or check key") from None


def make(
    seed: bytes,
    document: Document,
    dataset: bytes | None,
    recipients: Mapping[str, SealingKey],
    signer: tuple[SigningKey, SignedCertificate],
    now: int,
) -> SignedSeed:
    """Run by the first helper: once per dataset, or without a dataset for the document's check key."""
    sealed = {
        name: SealedSeed(key=key.key_id.hex(), seed=key.seal(seed, _info(document, dataset, name, key)).hex())
        for name, key in recipients.items()
    }
    message = SeedMessage(
        helper=document.helpers[0].name,
        origin=document.origin,
        parameters=document.digest.hex(),
        dataset=_hex(dataset),
        time=now,
        sealed=sealed,
    )
    body = message.encode()
    key, certificate = signer
    signature = key.sign(_kind(dataset).label, body).hex()
    return SignedSeed(message=body.decode(), signature=signature, certificate=certificate)


def unseal(
    data: bytes, document: Document, dataset: bytes | None, helper: str, keys: Mapping[bytes, OpeningKey]
) -> bytes:
    """The secret, if the document's first helper made it for this dataset and helper. Run by helpers."""
    kind = _kind(dataset)
    message = _verified(_decode(data, kind), document, kind)
    if (message.origin, message.parameters, message.dataset) != (
        document.origin,
        document.digest.hex(),
        _hex(dataset),
    ):
        raise kind.error(f"the {kind.name} is for another {kind.of}: relay the one that was made for this")
    if helper not in message.sealed or set(message.sealed) != {each.name for each in document.helpers}:
        raise kind.error(f"the {kind.name} is not for all helpers of the document, and no others")
    own = message.sealed[helper]
    key = keys.get(bytes.fromhex(own.key))
    if key is None:
        raise kind.error(f"the {kind.name} is sealed to a key that is gone: {kind.if_gone}")
    try:
        return key.open(bytes.fromhex(own.seed), _info(document, dataset, helper, key.sealing))
    except CannotOpen:
        raise kind.error(
            f"the {kind.name} does not open: it was not sealed to {helper} for this {kind.of}"
        ) from None


def _verified(signed: SignedSeed, document: Document, kind: _Kind) -> SeedMessage:
    first = document.helpers[0]
    identity = VerifyingKey(bytes.fromhex(first.identity))
    try:
        message, certificate = signed.certificate.opened(
            signed.claimed, signed.message, kind.label, signed.signature, identity, first.name
        )
    except BadReceipt as error:
        raise kind.error(f"the {kind.name} was not signed by {first.name}: {error}") from None
    if not certificate.not_before <= message.time < certificate.not_after:
        raise kind.error(f"the {kind.name} was signed with a key outside its time")
    return message


def _decode(data: bytes, kind: _Kind) -> SignedSeed:
    try:
        decoded = SignedSeed.model_validate_json(data)
    except ValidationError:
        raise kind.error(f"no signed {kind.name}") from None
    # Only one form: a relay must not be able to make two messages of one.
    if decoded.encode() != data:
        raise kind.error(f"a signed {kind.name} that is not in its one form: relay it as it came")
    return decoded


def _info(document: Document, dataset: bytes | None, helper: str, key: SealingKey) -> bytes:
    """Everything that the secret is bound to, each part preceded by its length."""
    bound = document.origin.encode(), document.digest, dataset or b"", helper.encode(), key.key_id
    parts = (_kind(dataset).label.encode(), *bound)
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _hex(dataset: bytes | None) -> str | None:
    return None if dataset is None else dataset.hex()
