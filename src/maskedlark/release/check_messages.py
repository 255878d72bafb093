"""Check messages, signed and verified, and the verdict that follows from those of all helpers.

Every helper signs its two numbers per report, verifies the messages of all others, and computes the verdict
itself: nobody's word is taken for it. What leaves here of a secret is a point of a random polynomial, and the
same one whenever it is asked for: a number never depends on what another party sent.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maskedlark.core import validity
from maskedlark.core.sharing import ID_BYTES, ByteRows
from maskedlark.errors import BadSignature
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import SignedCertificate
from maskedlark.parameters.document import Document
from maskedlark.release.errors import BadChecks
from maskedlark.wire.checks import Checks, SignedChecks
from maskedlark.wire.signatures import SigningKey, VerifyingKey

LABEL = "maskedlark v2 check message"


class Verdict(NamedTuple):
    """What the numbers of all helpers say of the reports of one of them, in its order."""

    valid: NDArray[np.bool_]
    """All helpers published numbers for it, and together they prove that it is valid."""
    invalid: NDArray[np.bool_]
    """All helpers published numbers for it, and they do not. Neither: a helper did not accept it."""


def sign(checks: Checks, signer: tuple[SigningKey, SignedCertificate]) -> bytes:
    """A helper's check message of a chunk. Run by that helper."""
    key, certificate = signer
    body = checks.encode()
    certified = bytes.fromhex(certificate.signature)
    return SignedChecks(body, key.sign(LABEL, body), certificate.certificate, certified).encode()


def verify(message: bytes, document: Document, place: int, key_digest: bytes | None = None) -> Checks:
    """The check message of the document's helper at this place. Run by all other helpers, and the ad server.

    `key_digest`: that of the check key it must have been made with; the ad server knows none.
    """
    helper = document.helpers[place]
    signed = SignedChecks.decode(message)
    checks = Checks.decode(signed.body)
    try:
        certificate = SignedCertificate(
            certificate=signed.certificate, signature=signed.certified.hex()
        ).open(helper.name, VerifyingKey(bytes.fromhex(helper.identity)))
        VerifyingKey(bytes.fromhex(certificate.key)).verify(LABEL, signed.body, signed.signature)
    except (BadReceipt, BadSignature) as error:
        raise BadChecks(f"a check message was not signed by {helper.name}: {error}") from None
    if not certificate.not_before <= checks.time < certificate.not_after:
        raise BadChecks(f"a check message of {helper.name} was signed with a key outside its time")
    if (checks.place, checks.origin, checks.parameters) != (place, document.origin, document.digest):
        raise BadChecks(f"a check message of {helper.name} is for another document, or another place in it")
    if key_digest not in (None, checks.key_digest):
        raise BadChecks(
            f"{helper.name} checked with another key than this helper: the first helper gave them two. "
            "Publish a new document"
        )
    return checks


def verdict(own: Checks, others: Sequence[Checks]) -> Verdict:
    """Which of our own reports are valid, by the numbers of all helpers. Run by every helper alike."""
    everywhere, numbers = np.ones(len(own.ids), np.bool_), [own.numbers]
    for other in others:
        there, rows = _rows_of(own.ids, other.ids)
        everywhere &= there
        theirs = np.zeros_like(own.numbers)
        theirs[there] = other.numbers[rows[there]]
        numbers.append(theirs)
    holds = validity.valid(numbers)
    return Verdict(everywhere & holds, everywhere & ~holds)


def _rows_of(wanted: ByteRows, ids: ByteRows) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Which of the wanted ids are among others, and in which row."""
    if not len(ids):
        return np.zeros(len(wanted), np.bool_), np.zeros(len(wanted), np.intp)
    names, there = _names(wanted), _names(ids)
    order = np.argsort(there)
    place = np.minimum(np.searchsorted(there, names, sorter=order), len(ids) - 1)
    rows = order[place]
    return np.asarray(there[rows] == names), rows


def _names(ids: ByteRows) -> NDArray[np.bytes_]:
    names: NDArray[np.bytes_] = np.ascontiguousarray(ids).view(f"S{ID_BYTES}").ravel()
    return names
