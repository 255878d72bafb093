"""A verifier, and requests that were signed for it."""

from typing import Any

from maskedlark.clock import FixedClock
from maskedlark.randomness import FixedRandomness
from maskedlark.web import request_signature
from maskedlark.web.errors import UnknownOrigin
from maskedlark.web.request_signature import RequestVerifier
from maskedlark.wire.signatures import SigningKey

NOW = 1_900_000_000
KEY, OTHER_KEY = (SigningKey.generate(FixedRandomness(seed)) for seed in (b"ads", b"other"))
KEYS = {"ads.example": KEY.verifying, "other.example": OTHER_KEY.verifying}
BODY = b"the body"


def key_of(origin):
    if origin not in KEYS:
        raise UnknownOrigin(f"no key is pinned here for {origin}")
    return KEYS[origin]


VERIFIER = RequestVerifier("helper-0", key_of, FixedClock(NOW))


def signed(**changes):
    parts: dict[str, Any] = {
        "method": "POST",
        "target": "/v2/a%2Fb?x=1",
        "content_type": "application/cbor",
        "body": BODY,
        "origin": "ads.example",
        "helper": "helper-0",
        "created": NOW,
        "key": KEY,
    }
    made = request_signature.sign(**(parts | changes))
    return [(name.encode(), value.encode()) for name, value in made.items()]


def changed(headers, name, value):
    assert any(each == name for each, _ in headers)
    return [(each, value if each == name else old) for each, old in headers]


OTHER_SIGNATURE = dict(signed(created=NOW + 1))[b"signature"]
