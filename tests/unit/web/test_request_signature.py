"""The form of a request's signature: the RFC's own vector, and nothing but our one form is read."""

import base64
from typing import Any

import pytest

from maskedlark.errors import BadSignature
from maskedlark.randomness import FixedRandomness
from maskedlark.web import request_signature
from maskedlark.web.errors import UnsignedRequest
from maskedlark.web.request_signature import COMPONENTS, signature_base
from maskedlark.wire.signatures import SigningKey

KEY = SigningKey.generate(FixedRandomness(b"request signature"))
KEYID = KEY.verifying.public.hex()

# RFC 9421: the key of B.1.4, the request of B.2, its signature base and signature of B.2.6.
RFC_KEY = SigningKey(base64.urlsafe_b64decode("n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU="))
RFC_PUBLIC = base64.urlsafe_b64decode("JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs=")
RFC_COMPONENTS = [
    ("date", "Tue, 20 Apr 2021 02:07:55 GMT"),
    ("@method", "POST"),
    ("@path", "/foo"),
    ("@authority", "example.com"),
    ("content-type", "application/json"),
    ("content-length", "18"),
]
RFC_PARAMETERS = """\
("date" "@method" "@path" "@authority" "content-type" "content-length")\
;created=1618884473;keyid="test-key-ed25519\""""
RFC_BASE = b"""\
"date": Tue, 20 Apr 2021 02:07:55 GMT
"@method": POST
"@path": /foo
"@authority": example.com
"content-type": application/json
"content-length": 18
"@signature-params": ("date" "@method" "@path" "@authority" "content-type" "content-length")\
;created=1618884473;keyid="test-key-ed25519\""""
RFC_SIGNATURE = "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw=="


def signed(**changes):
    parts: dict[str, Any] = {
        "method": "POST",
        "target": "/v2/a%2Fb?x=1",
        "content_type": "application/cbor",
        "body": b"body",
        "origin": "ads.example",
        "helper": "helper-0",
        "created": 1_900_000_000,
        "key": KEY,
    }
    return request_signature.sign(**(parts | changes))


def read(headers, method="POST", path=b"/v2/a%2Fb", query=b"x=1"):
    pairs = headers if isinstance(headers, list) else as_pairs(headers)
    return request_signature.read(method, path, query, pairs)


def as_pairs(headers):
    return [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]


def test_the_vector_of_the_rfc():
    made = signature_base(RFC_COMPONENTS, RFC_PARAMETERS)
    assert made == RFC_BASE
    assert RFC_KEY.verifying.public == RFC_PUBLIC
    assert base64.b64encode(RFC_KEY.sign_raw(made)).decode() == RFC_SIGNATURE
    RFC_KEY.verifying.verify_raw(made, base64.b64decode(RFC_SIGNATURE))
    with pytest.raises(BadSignature):
        RFC_KEY.verifying.verify_raw(made + b" ", base64.b64decode(RFC_SIGNATURE))


def test_every_byte_that_is_sent():
    """The base and the headers, written out: what another implementation has to make."""
    headers = signed()
    digest = "sha-256=:Iw2DWNyOiJC0xY3utikS7i8gNXrpKlzIYbmOaP4xrLU=:"
    said = (
        '("@method" "@path" "@query" "content-type" "content-digest" "maskedlark-origin" "maskedlark-helper")'
        f';created=1900000000;keyid="{KEYID}";alg="ed25519";tag="maskedlark-v2"'
    )
    lines = [
        '"@method": POST',
        '"@path": /v2/a%2Fb',
        '"@query": ?x=1',
        '"content-type": application/cbor',
        f'"content-digest": {digest}',
        '"maskedlark-origin": ads.example',
        '"maskedlark-helper": helper-0',
        f'"@signature-params": {said}',
    ]
    signature = base64.b64encode(KEY.sign_raw("\n".join(lines).encode())).decode()
    assert headers == {
        "content-type": "application/cbor",
        "content-digest": digest,
        "maskedlark-origin": "ads.example",
        "maskedlark-helper": "helper-0",
        "signature-input": f"sig1={said}",
        "signature": f"sig1=:{signature}:",
    }


def test_what_was_signed_is_read():
    found, signature = read(signed())
    assert (found.origin, found.helper, found.created, found.keyid) == (
        "ads.example",
        "helper-0",
        1_900_000_000,
        KEYID,
    )
    KEY.verifying.verify_raw(found.base, signature)


def test_no_query_is_a_question_mark_alone():
    """RFC 9421, 2.2.7: so a path, and the same with an empty query, are one request."""
    found, signature = read(signed(target="/v2"), path=b"/v2", query=b"")
    assert found.values[2] == "?"
    KEY.verifying.verify_raw(found.base, signature)


@pytest.mark.parametrize("name", list(signed()))
def test_every_header_is_there_exactly_once(name):
    headers = signed()
    with pytest.raises(UnsignedRequest, match=f"{name} is there 2 times"):
        read([*as_pairs(headers), (name.title().encode(), headers[name].encode())])
    del headers[name]
    with pytest.raises(UnsignedRequest, match=f"{name} is there 0 times"):
        read(headers)


@pytest.mark.parametrize("bad", ["", " a", "a ", "a\nb", "a\r\nb", "\ta", "a\0", "ü", "\x7f"])
def test_values_are_printable_ascii(bad):
    for name in signed():
        with pytest.raises(UnsignedRequest, match=name):
            read(signed() | {name: bad})
    with pytest.raises(UnsignedRequest, match="path"):
        read(signed(), path=bad.encode("latin-1"))
    if bad not in ("", " a", "\ta"):  # A question mark stands before a query.
        with pytest.raises(UnsignedRequest, match="query"):
            read(signed(), query=bad.encode("latin-1"))


LISTED = " ".join(f'"{name}"' for name in COMPONENTS)
REST = f';created=1900000000;keyid="{KEYID}";alg="ed25519";tag="maskedlark-v2"'
OTHER_LISTS = {
    **{f"without {name}": [each for each in COMPONENTS if each != name] for name in COMPONENTS},
    **{f"{name} first": sorted(COMPONENTS, key=lambda each: each != name) for name in COMPONENTS[1:]},
    **{f"{name} twice": [*COMPONENTS, name] for name in COMPONENTS},
    "one more": [*COMPONENTS, "@authority"],
    "reversed": COMPONENTS[::-1],
    "nothing": [],
}
OTHER_INPUTS = {
    "another label": f"sig2=({LISTED}){REST}",
    "two labels": f"sig1=({LISTED}){REST}, sig2=({LISTED}){REST}",
    "no label": f"({LISTED}){REST}",
    "no parameters": f"sig1=({LISTED})",
    "no created": f"sig1=({LISTED})" + REST.replace(";created=1900000000", ""),
    "no keyid": f"sig1=({LISTED})" + REST.replace(f';keyid="{KEYID}"', ""),
    "no alg": f"sig1=({LISTED})" + REST.replace(';alg="ed25519"', ""),
    "no tag": f"sig1=({LISTED})" + REST.replace(';tag="maskedlark-v2"', ""),
    "another alg": f"sig1=({LISTED})" + REST.replace("ed25519", "hmac-sha256"),
    "another tag": f"sig1=({LISTED})" + REST.replace("-v2", "-v1"),
    "another order": f'sig1=({LISTED});keyid="{KEYID}";created=1900000000;alg="ed25519";tag="maskedlark-v2"',
    "expires": f"sig1=({LISTED}){REST};expires=1900000001",
    "a nonce": f'sig1=({LISTED}){REST};nonce="x"',
    "created twice": f"sig1=({LISTED});created=1{REST}",
    "a leading zero": f"sig1=({LISTED})" + REST.replace("=19", "=019"),
    "a negative time": f"sig1=({LISTED})" + REST.replace("=19", "=-19"),
    "a fraction": f"sig1=({LISTED})" + REST.replace("1900000000", "1900000000.0"),
    "too many digits": f"sig1=({LISTED})" + REST.replace("1900000000", "1" * 16),
    "another alphabet's digits": f"sig1=({LISTED})" + REST.replace("1900000000", "²"),
    "capital letters": f"sig1=({LISTED})" + REST.replace(KEYID, KEYID.upper()),
    "a short keyid": f"sig1=({LISTED})" + REST.replace(KEYID, KEYID[:-1]),
    "two spaces": f"sig1=({LISTED}){REST}".replace(" ", "  ", 1),
    "a space more": f"sig1=( {LISTED}){REST}",
    "a flag on a component": f"sig1=({LISTED}){REST}".replace('"@path"', '"@path";req'),
    "another's component": f"sig1=({LISTED}){REST}".replace('"@path"', '"@target-uri"'),
}


@pytest.mark.parametrize("names", OTHER_LISTS.values(), ids=OTHER_LISTS)
def test_other_components_are_refused(names):
    listed = " ".join(f'"{name}"' for name in names)
    with pytest.raises(UnsignedRequest, match="signature-input"):
        read(signed() | {"signature-input": f"sig1=({listed}){REST}"})


@pytest.mark.parametrize("given", OTHER_INPUTS.values(), ids=OTHER_INPUTS)
def test_other_parameters_are_refused(given):
    assert signed()["signature-input"] == f"sig1=({LISTED}){REST}"
    with pytest.raises(UnsignedRequest, match="signature-input"):
        read(signed() | {"signature-input": given})


def respelt(text):
    """The same bytes in base64, with bits set that do not count."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    at = text.rindex("=:") - (text[-3] == "=")
    other = text[: at - 1] + letters[letters.index(text[at - 1]) ^ 1] + text[at:]
    inside = slice(text.index(":") + 1, -1)
    assert base64.b64decode(text[inside]) == base64.b64decode(other[inside])
    return other


@pytest.mark.parametrize("name", ["content-digest", "signature"])
def test_other_forms_of_bytes_are_refused(name):
    headers = signed()
    given = headers[name]
    label, _, rest = given.partition("=")
    others = {
        respelt(given),
        given.upper(),
        f"other={rest}",
        f"{given}, {given}",
        f"{given};a=1",
        rest,
        f"{label}=::",
        f"{label}=:AAAA:",
        given.replace("=:", ":"),
        given.replace("=:", "==:"),
        given[:12] + "-" + given[13:],
        given[:12] + " " + given[12:],
        given[:-1],
        given.replace(":", '"'),
    }
    assert given not in others
    for other in others:
        with pytest.raises(UnsignedRequest):
            read(headers | {name: other})


def test_another_digest_algorithm_is_refused():
    for other in ("sha-512=:AAAA:", f"sha-512=:AAAA:, {signed()['content-digest']}"):
        with pytest.raises(UnsignedRequest, match="content-digest"):
            read(signed() | {"content-digest": other})


def test_a_labelled_message_is_never_a_base():
    """The first byte tells them apart: a label's length, or a quotation mark."""
    with pytest.raises(AssertionError, match="34"):
        KEY.sign("x" * 0x22, b"")
    with pytest.raises(AssertionError, match="without a label"):
        KEY.sign_raw(b"\x20anything")
    with pytest.raises(AssertionError, match="without a label"):
        KEY.verifying.verify_raw(b"", bytes(64))
