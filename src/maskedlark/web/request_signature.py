"""The signature on a request from an ad server to a helper: RFC 9421 with Ed25519, over RFC 9530's digest.

    Content-Type: application/octet-stream
    Content-Digest: sha-256=:…:
    Maskedlark-Origin: ads.example
    Maskedlark-Helper: helper-0
    Signature-Input: sig1=("@method" …);created=…;keyid="…";alg="ed25519";tag="maskedlark-v2"
    Signature: sig1=:…:

The RFCs allow many forms; here every header occurs once and in one form, so nothing is left to interpret.
Every request carries all six, even one without a body: its digest is that of no bytes.

A helper verifies it before a byte of the body is read. Within the window anyone who saw a request can send it
again. So every request must be idempotent: the signature tells who asks, and the request id or dataset inside
tells whether it was asked before.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from maskedlark.clock import Clock
from maskedlark.errors import BadSignature
from maskedlark.web.errors import (
    BadRequestSignature,
    NotForUs,
    StaleRequest,
    UndeclaredKey,
    UnsignedRequest,
    WrongDigest,
)
from maskedlark.wire.report import MAX_ORIGIN
from maskedlark.wire.signatures import SIGNATURE_BYTES, SigningKey, VerifyingKey

COMPONENTS = (
    "@method",
    "@path",
    "@query",
    "content-type",
    "content-digest",
    "maskedlark-origin",
    "maskedlark-helper",
)
"""What is signed, in this order. Not the host: a helper is identified by its name, not its address."""
NO_BODY_TYPE = "application/octet-stream"
"""The content type of a request without a body."""
WINDOW_S = 300
"""How far the ad server's clock may be from a helper's."""
_HEADERS = (*COMPONENTS[3:], "signature-input", "signature")
_TEXT = re.compile(r"[!-~](?:[ -~]*[!-~])?")
"""Printable ASCII without spaces around it: one line of the base cannot be made to look like two."""
_LISTED = "(" + " ".join(f'"{name}"' for name in COMPONENTS) + ")"
_SAID = ';created={};keyid="{}";alg="ed25519";tag="maskedlark-v2"'
"""With `_LISTED`, the signature parameters (RFC 9421, 2.3): components and metadata."""
_INPUT = re.compile("sig1=" + re.escape(_LISTED) + _SAID.format("(0|[1-9][0-9]{0,14})", "([0-9a-f]{64})"))
_SIGNATURE = re.compile(r"sig1=:([A-Za-z0-9+/]+=*):")
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]+=*):")


def signature_base(components: Iterable[tuple[str, str]], parameters: str) -> bytes:
    """The signature base (RFC 9421, 2.5): a line for every component, and one for the parameters."""
    named = [*components, ("@signature-params", parameters)]
    return "\n".join(f'"{name}": {value}' for name, value in named).encode("ascii")


@dataclass(frozen=True)
class SignedRequest:
    """What a request's signature covers, and its metadata. Nothing is verified yet."""

    values: tuple[str, ...]
    """The components' values, in order."""
    created: int
    keyid: str
    digest: bytes
    """SHA-256 of the body."""

    @property
    def origin(self) -> str:
        """Who claims to have signed it."""
        return self.values[-2]

    @property
    def helper(self) -> str:
        """For whom it was signed."""
        return self.values[-1]

    @property
    def parameters(self) -> str:
        """As in the header after the label, and in the base."""
        return _LISTED + _SAID.format(self.created, self.keyid)

    @property
    def base(self) -> bytes:
        """The bytes that are signed."""
        return signature_base(zip(COMPONENTS, self.values, strict=True), self.parameters)


def sign(
    method: str,
    target: str,
    content_type: str,
    body: bytes,
    origin: str,
    helper: str,
    created: int,
    key: SigningKey,
) -> dict[str, str]:
    """The headers that a request needs; `target` is its path and query as sent. Run by the ad server."""
    path, _, query = target.partition("?")
    digest = hashlib.sha256(body).digest()
    values = (method, path, f"?{query}", content_type, f"sha-256=:{_text(digest)}:", origin, helper)
    assert all(map(_TEXT.fullmatch, values)), "a method, target, type or name that is not printable ASCII"
    signed = SignedRequest(values, created, key.verifying.public.hex(), digest)
    covered = dict(zip(COMPONENTS[3:], values[3:], strict=True))
    return covered | {
        "signature-input": f"sig1={signed.parameters}",
        "signature": f"sig1=:{_text(key.sign_raw(signed.base))}:",
    }


def read(
    method: str, path: bytes, query: bytes, headers: Iterable[tuple[bytes, bytes]]
) -> tuple[SignedRequest, bytes]:
    """The headers' signed request, and the signature; path and query as sent. Strict. Run by a helper."""
    given = _once(headers)
    named = _ascii("the method", method.encode("latin-1", "replace"))
    values = (named, _ascii("the path", path), _ascii("the query", b"?" + query), *given[:4])
    match = _INPUT.fullmatch(given[4])
    if match is None:
        raise UnsignedRequest("signature-input is not sig1 over our components and parameters, in our order")
    signed = SignedRequest(values, int(match[1]), match[2], _bytes(_DIGEST, values[4], 32))
    return signed, _bytes(_SIGNATURE, given[5], SIGNATURE_BYTES)


@dataclass(frozen=True)
class VerifiedRequest:
    """A request that its origin signed for us. Its body is checked once it is read."""

    origin: str
    digest: bytes

    def check(self, body: bytes) -> None:
        """Return if this is the body that was signed."""
        if hashlib.sha256(body).digest() != self.digest:
            raise WrongDigest("the body is not the one that was signed; send it again")


class RequestVerifier:
    """Accepts only requests that an ad server signed for this helper. Run by a helper.

    `key_of` gives the request key that an origin declares now, and raises its own error for an unknown
    origin. It is called for unverified origins, so it must be cheap.
    """

    def __init__(self, helper: str, key_of: Callable[[str], VerifyingKey], clock: Clock) -> None:
        self._helper = helper
        self._key_of = key_of
        self._clock = clock

    def verify(
        self, method: str, path: bytes, query: bytes, headers: Iterable[tuple[bytes, bytes]]
    ) -> VerifiedRequest:
        """Who signed it, and the digest of the body to come; path and query as sent."""
        signed, signature = read(method, path, query, headers)
        if signed.helper != self._helper:
            raise NotForUs(f"the request was signed for another helper; this is {self._helper}")
        late = self._clock.now() - signed.created
        if abs(late) > WINDOW_S:
            raise StaleRequest(
                f"signed {abs(late)} seconds {'ago' if late > 0 else 'ahead of our clock'}, "
                f"at most {WINDOW_S} are taken; set the clock, and sign it anew"
            )
        if len(signed.origin) > MAX_ORIGIN:
            raise UnsignedRequest(f"maskedlark-origin has at most {MAX_ORIGIN} letters")
        key = self._key_of(signed.origin)
        if signed.keyid != key.public.hex():
            raise UndeclaredKey(
                f"sign with the request key that {signed.origin} declares in its newest document"
            )
        try:
            key.verify_raw(signed.base, signature)
        except BadSignature:
            raise BadRequestSignature("the signature does not verify over this request") from None
        return VerifiedRequest(signed.origin, signed.digest)


def _once(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """The values of the headers that a signature needs, in our order."""
    given: dict[str, list[bytes]] = {name: [] for name in _HEADERS}
    for raw, value in headers:
        given.get(raw.decode("latin-1").lower(), []).append(value)
    for name, values in given.items():
        if len(values) != 1:
            raise UnsignedRequest(f"the header {name} is there {len(values)} times; send it once")
    return [_ascii(name, values[0]) for name, values in given.items()]


def _ascii(name: str, value: bytes) -> str:
    text = value.decode("latin-1")
    if not _TEXT.fullmatch(text):
        raise UnsignedRequest(f"{name} is not printable ASCII without spaces around it")
    return text


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(form: re.Pattern[str], text: str, length: int) -> bytes:
    """The bytes between the colons, in their one encoding."""
    match = form.fullmatch(text)
    try:
        data = base64.b64decode(match[1], validate=True) if match else b""
    except binascii.Error:
        data = b""
    # Base64 has several encodings of some bytes, which differ in unused bits.
    if match is None or len(data) != length or _text(data) != match[1]:
        raise UnsignedRequest("a signature is sig1=:…: and a content-digest sha-256=:…:, in plain base64")
    return data
