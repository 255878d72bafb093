"""A helper, as the ad server sees it: a service that takes signed requests only."""

import httpx

from maskedlark.clock import Clock
from maskedlark.web import request_signature
from maskedlark.web.remote import Patience, Query, Remote
from maskedlark.web.request_signature import NO_BODY_TYPE
from maskedlark.wire.signatures import SigningKey


class SignedRemote(Remote):
    """A helper by its address and name. Run by the ad server, which signs as `origin` with its declared key.

    A request that is tried again is signed again: its time is part of what is signed.
    """

    def __init__(
        self,
        url: str,
        helper: str,
        origin: str,
        key: SigningKey,
        clock: Clock,
        http: httpx.Client | None = None,
        patience: Patience | None = None,
    ) -> None:
        super().__init__(url, http, patience)
        self._helper = helper
        self._origin = origin
        self._key = key
        self._clock = clock

    def delete(self, path: str, query: Query | None = None, patience: Patience | None = None) -> bytes:
        """What the service answers when what stands at this path is to go."""
        return self._ask("DELETE", path, query, None, {}, patience)

    def _sign(self, request: httpx.Request) -> None:
        # As it was built: the path and query that are sent are signed, however they were written.
        signed = request_signature.sign(
            request.method,
            request.url.raw_path.decode("ascii"),
            request.headers.get("content-type", NO_BODY_TYPE),
            request.content,
            self._origin,
            self._helper,
            self._clock.now(),
            self._key,
        )
        request.headers.update(signed)
