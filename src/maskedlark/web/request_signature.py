"""The signature on a request from an ad server to a helper: RFC 9421 with Ed25519, over RFC 9530's digest.

    Content-Type: application/octet-stream
    Content-Digest: sha-256=:…:
    Maskedlark-Origin: ads.example
    Maskedlark-Helper: helper-0
    Signature-Input: sig1=("@method" …);created=…;keyid="…";alg="ed25519";tag="maskedlark-v1"
    Signature: sig1=:…:

The formats allow much; here every header stands once and in one form, so that there is nothing to interpret.
Every request carries all six, also one without a body: its digest is that of no bytes.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from maskedlark.web.errors import UnsignedRequest
from maskedlark.wire.signatures import SIGNATURE_BYTES, SigningKey

COMPONENTS = (
    "@method",
    "@path",
    "@query",
    "content-type",
    "content-digest",
    "maskedlark-origin",
    "maskedlark-helper",
)
"""What is signed, in this order. Not the host: a helper is meant by its name, whatever its address is."""
NO_BODY_TYPE = "application/octet-stream"
"""The content type of a request without a body."""
_HEADERS = (*COMPONENTS[3:], "signature-input", "signature")
_TEXT = re.compile(r"[!-~](?:[ -~]*[!-~])?")
"""Printable ASCII without spaces around it: no line of the base can be made to look like two."""
_LIST = re.escape("(" + " ".join(f'"{name}"' for name in COMPONENTS) + ")")
_INPUT = re.compile(
    rf'sig1={_LIST};created=(0|[1-9][0-9]{{0,14}});keyid="([0-9a-f]{{64}})";alg="ed25519";tag="maskedlark-v1"'
)
_SIGNATURE = re.compile(r"sig1=:([A-Za-z0-9+/]+=*):")
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]+=*):")


def signature_base(components: Iterable[tuple[str, str]], parameters: str) -> bytes:
    """The signature base (RFC 9421, 2.5): a line for every component, and one for the parameters."""
    named = [*components, ("@signature-params", parameters)]
    return "\n".join(f'"{name}": {value}' for name, value in named).encode("ascii")


def signature_parameters(names: Sequence[str], values: Iterable[tuple[str, int | str]]) -> str:
    """The signature parameters (RFC 9421, 2.3): which components, and what is said of the signature."""
    listed = " ".join(f'"{name}"' for name in names)
    said = [f";{name}={value}" if isinstance(value, int) else f';{name}="{value}"' for name, value in values]
    return f"({listed}){''.join(said)}"


@dataclass(frozen=True)
class SignedRequest:
    """What a request's signature covers, and what it says of itself. Nothing of it is verified yet."""

    values: tuple[str, ...]
    """Of the components, in their order."""
    created: int
    keyid: str

    @property
    def origin(self) -> str:
        """Who claims to have signed it."""
        return self.values[-2]

    @property
    def helper(self) -> str:
        """For whom it was signed."""
        return self.values[-1]

    @property
    def digest(self) -> bytes:
        """SHA-256 of the body."""
        return _bytes(_DIGEST, self.values[4], 32)

    @property
    def parameters(self) -> str:
        """As they stand in the header, behind the label, and in the base."""
        said = (
            ("created", self.created),
            ("keyid", self.keyid),
            ("alg", "ed25519"),
            ("tag", "maskedlark-v1"),
        )
        return signature_parameters(COMPONENTS, said)

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
    digest = f"sha-256=:{_text(hashlib.sha256(body).digest())}:"
    values = (method, path, f"?{query}", content_type, digest, origin, helper)
    assert all(map(_TEXT.fullmatch, values)), "a method, target, type or name that is not printable ASCII"
    signed = SignedRequest(values, created, key.verifying.public.hex())
    covered = dict(zip(COMPONENTS[3:], values[3:], strict=True))
    return covered | {
        "signature-input": f"sig1={signed.parameters}",
        "signature": f"sig1=:{_text(key.sign_raw(signed.base))}:",
    }


def read(
    method: str, path: bytes, query: bytes, headers: Iterable[tuple[bytes, bytes]]
) -> tuple[SignedRequest, bytes]:
    """What the headers say, and the signature; path and query as sent. Strict. Run by a helper."""
    found = _once(headers)
    named = _ascii("the method", method.encode("latin-1", "replace"))
    values = (named, _ascii("the path", path), _ascii("the query", b"?" + query), *found[:4])
    match = _INPUT.fullmatch(found[4])
    if match is None:
        raise UnsignedRequest(
            "signature-input is not sig1 over exactly our components and parameters, in our order"
        )
    signed = SignedRequest(values, int(match[1]), match[2])
    _bytes(_DIGEST, values[4], 32)
    return signed, _bytes(_SIGNATURE, found[5], SIGNATURE_BYTES)


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
    # Base64 has several texts for some bytes, which differ in bits that do not count.
    if match is None or len(data) != length or _text(data) != match[1]:
        raise UnsignedRequest("a signature is sig1=:…: and a content-digest sha-256=:…:, in plain base64")
    return data
