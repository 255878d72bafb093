"""Which requests a helper accepts: the origin that signed it, for us, now, and nothing that was changed."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskedlark.clock import FixedClock
from maskedlark.web.errors import (
    BadRequestSignature,
    NotForUs,
    RequestRefused,
    StaleRequest,
    UndeclaredKey,
    UnknownOrigin,
    UnsignedRequest,
    WrongDigest,
)
from maskedlark.web.request_signature import WINDOW_S, RequestVerifier, VerifiedRequest
from tests.unit.web.signing import (
    BODY,
    KEY,
    NOW,
    OTHER_KEY,
    OTHER_SIGNATURE,
    VERIFIER,
    changed,
    key_of,
    signed,
)

VERIFIED = VerifiedRequest("ads.example", hashlib.sha256(BODY).digest())


def verify(headers, verifier=VERIFIER, method="POST", path=b"/v2/a%2Fb", query=b"x=1"):
    return verifier.verify(method, path, query, headers)


def test_what_its_origin_signed_for_us_is_admitted():
    verified = verify(signed())
    assert verified == VERIFIED
    verified.check(BODY)
    for other in (b"", BODY + b"\0", BODY[:-1], b"another body"):
        with pytest.raises(WrongDigest):
            verified.check(other)


def test_headers_of_others_are_let_be():
    assert verify([(b"accept", b"*/*"), (b"accept", b"\xff"), *signed(), (b"x", b"")]) == VERIFIED


OTHER_DIGEST = dict(signed(body=b"x"))[b"content-digest"]
OTHER_INPUT = dict(signed(created=NOW + 1))[b"signature-input"]
OTHER_KEYID = dict(signed(key=OTHER_KEY))[b"signature-input"]
STALE_INPUT = dict(signed(created=NOW - 301))[b"signature-input"]


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        (b"content-type", b"application/cbor", BadRequestSignature),
        (b"content-digest", OTHER_DIGEST, BadRequestSignature),
        (b"content-digest", b"sha-512=:AAAA:", UnsignedRequest),
        (b"maskedlark-origin", b"other.example", UndeclaredKey),
        (b"maskedlark-origin", b"nobody.example", UnknownOrigin),
        (b"maskedlark-origin", b"a" * 1000, UnsignedRequest),
        (b"maskedlark-helper", b"helper-1", NotForUs),
        (b"maskedlark-helper", b"Helper-0", NotForUs),
        (b"signature-input", OTHER_INPUT, BadRequestSignature),
        (b"signature-input", OTHER_KEYID, UndeclaredKey),
        (b"signature-input", STALE_INPUT, StaleRequest),
        (b"signature-input", b"sig1=()", UnsignedRequest),
        (b"signature", OTHER_SIGNATURE, BadRequestSignature),
        (b"signature", b"sig1=:AAAA:", UnsignedRequest),
    ],
)
def test_a_header_that_was_changed(name, value, error):
    with pytest.raises(error) as found:
        verify(changed(signed(), name, value))
    assert type(found.value) is error


@pytest.mark.parametrize(
    "sent",
    [
        {"method": "PUT"},
        {"method": "post"},
        {"path": b"/v2/a/b"},
        {"path": b"/v2/a%2fb"},
        {"path": b"/v2/a%2Fb/"},
        {"path": b"/v2/a%2Fb?x=1", "query": b""},
        {"query": b""},
        {"query": b"x=2"},
        {"query": b"x=1&"},
        {"query": b"?x=1"},
    ],
    ids=str,
)
def test_another_method_path_or_query(sent):
    with pytest.raises(BadRequestSignature):
        verify(signed(), **sent)


def test_a_request_to_one_helper_is_nothing_to_another():
    with pytest.raises(NotForUs, match="this is helper-1"):
        verify(signed(), RequestVerifier("helper-1", key_of, FixedClock(NOW)))


def test_one_origin_cannot_speak_for_another():
    with pytest.raises(UndeclaredKey):
        verify(signed(key=OTHER_KEY))
    claimed = changed(signed(key=OTHER_KEY), b"signature-input", dict(signed())[b"signature-input"])
    with pytest.raises(BadRequestSignature) as found:
        verify(claimed)
    assert type(found.value) is BadRequestSignature
    assert verify(signed(key=OTHER_KEY, origin="other.example")).origin == "other.example"


def test_a_key_that_was_replaced_is_nothing_from_then_on():
    keys = {"ads.example": KEY.verifying}
    verifier = RequestVerifier("helper-0", keys.__getitem__, FixedClock(NOW))
    assert verify(signed(), verifier) == VERIFIED
    keys["ads.example"] = OTHER_KEY.verifying
    with pytest.raises(UndeclaredKey):
        verify(signed(), verifier)


def test_the_window():
    for shift in (-WINDOW_S, 0, WINDOW_S):
        assert verify(signed(created=NOW + shift)) == VERIFIED
    with pytest.raises(StaleRequest, match="301 seconds ago"):
        verify(signed(created=NOW - WINDOW_S - 1))
    with pytest.raises(StaleRequest, match="301 seconds ahead"):
        verify(signed(created=NOW + WINDOW_S + 1))
    for created in (0, 999_999_999_999_999):
        with pytest.raises(StaleRequest):
            verify(signed(created=created))


@st.composite
def mutated(draw):
    headers = signed()
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(headers) - 1))
        name, value = headers[at]
        cut = draw(st.integers(0, len(value)))
        gone = draw(st.integers(0, 3))
        put = draw(st.binary(max_size=3) | st.text('"=:; ,()Aa09', max_size=3).map(str.encode))
        headers[at] = (name, value[:cut] + put + value[cut + gone :])
    return headers


@given(mutated())
def test_changed_bytes_are_refused_with_a_type_or_change_nothing(headers):
    try:
        verified = verify(headers)
    except (RequestRefused, UnknownOrigin):
        assert headers != signed()
    else:
        assert headers == signed()
        assert verified == VERIFIED


@given(st.lists(st.tuples(st.sampled_from([name for name, _ in signed()]), st.binary(max_size=200))))
def test_any_headers_are_refused_with_a_type(headers):
    with pytest.raises((RequestRefused, UnknownOrigin)):
        verify(headers)
