"""The gate of a helper: who sent a request, and that it is for us, before a byte of its body is read.

Within the window a request can be sent again by whoever saw it. So every request must be one that does no
harm twice: the gate says who speaks, and the request id or dataset inside says whether it was heard before.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass

from starlette.requests import Request

from maskedlark.clock import Clock
from maskedlark.errors import BadSignature
from maskedlark.web import request_signature
from maskedlark.web.errors import (
    BadRequestSignature,
    NotForUs,
    StaleRequest,
    UndeclaredKey,
    UnsignedRequest,
    WrongDigest,
)
from maskedlark.wire.report import MOST_ORIGIN
from maskedlark.wire.signatures import VerifyingKey

WINDOW_S = 300
"""How far the ad server's clock may be from ours."""


@dataclass(frozen=True)
class Admitted:
    """A request that its origin signed for us. Its body is checked when it has come."""

    origin: str
    digest: bytes

    def check(self, found: bytes) -> None:
        """Return if this is the body that was signed."""
        if hashlib.sha256(found).digest() != self.digest:
            raise WrongDigest("the body is not the one that was signed; send it again")


class Gate:
    """Admits what an ad server signed for this helper. Run by a helper.

    `key_of` gives the request key that an origin declares now, and raises its own error for one that it does
    not know. It is asked for origins that nobody has verified yet: it must not cost much.
    """

    def __init__(self, helper: str, key_of: Callable[[str], VerifyingKey], clock: Clock) -> None:
        self._helper = helper
        self._key_of = key_of
        self._clock = clock

    def admit(
        self, method: str, path: bytes, query: bytes, headers: Iterable[tuple[bytes, bytes]]
    ) -> Admitted:
        """Who signed it, and the digest of the body to come; path and query as they were sent."""
        signed, signature = request_signature.read(method, path, query, headers)
        if signed.helper != self._helper:
            raise NotForUs(f"the request was signed for another helper; this is {self._helper}")
        self._refuse_stale(signed.created)
        if len(signed.origin) > MOST_ORIGIN:
            raise UnsignedRequest(f"maskedlark-origin has at most {MOST_ORIGIN} letters")
        key = self._key_of(signed.origin)
        if signed.keyid != key.public.hex():
            raise UndeclaredKey(
                f"sign with the request key that {signed.origin} declares in its newest document"
            )
        try:
            key.verify_raw(signed.base, signature)
        except BadSignature:
            raise BadRequestSignature("the signature does not verify over this request") from None
        return Admitted(signed.origin, signed.digest)

    def _refuse_stale(self, created: int) -> None:
        late = self._clock.now() - created
        if abs(late) > WINDOW_S:
            raise StaleRequest(
                f"signed {abs(late)} seconds {'ago' if late > 0 else 'ahead of our clock'}, "
                f"at most {WINDOW_S} are taken; set the clock, and sign it anew"
            )


async def admit(request: Request, gate: Gate, hands: Executor) -> Admitted:
    """Who signed this request; nothing of its body is read. Run by a helper."""
    scope = request.scope
    # Not the decoded path: what was sent was signed. In threads of the gate's own: the origin's key may be
    # fetched, and who needs none must not wait for that.
    sent = scope["method"], scope["raw_path"], scope["query_string"], scope["headers"]
    admitted = await asyncio.get_running_loop().run_in_executor(hands, gate.admit, *sent)
    request.state.origin = admitted.origin  # For logs and counts, which name nobody who did not sign.
    return admitted
