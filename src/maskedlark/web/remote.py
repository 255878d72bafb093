"""A service as its clients see it: bounded answers, typed errors, one for all ways of being unavailable.

Nothing is retried here. A caller may retry after `ServiceAway`, and after no other error.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Self

import httpx

from maskedlark.clock import Clock
from maskedlark.randomness import SystemRandomness
from maskedlark.web import problem, request_signature
from maskedlark.web.errors import ServiceAway, StrangeAnswer
from maskedlark.web.request_signature import NO_BODY_TYPE
from maskedlark.wire.signatures import SigningKey

API = "/v2"
"""What paths of every service begin with, except those that operators ask: health and metrics."""
MAX_ANSWER = 8 << 20
TIMEOUT_S = 10.0
CONNECT_S = 10.0
"""To connect: no work is done meanwhile, so a service that takes longer is unavailable."""
ANSWER_WITHIN_S = 60.0
REQUEST_ID = "x-request-id"
"""Names a request in the logs of all parties. It is not signed, and nothing depends on it."""
_HEADERS = {"user-agent": "maskedlark", "accept-encoding": "identity"}

UrlQuery = dict[str, str | int]


@dataclass(frozen=True)
class Patience:
    """How much of an answer a client reads, and how long it waits."""

    max_bytes: int = MAX_ANSWER
    """Per answer."""
    timeout_s: float = TIMEOUT_S
    """Without a byte from a connected service, so also how long it may compute before it answers."""
    within_s: float = ANSWER_WITHIN_S
    """From the request to the last byte of the answer: a slow drip would hold its reader forever."""


class ClosesOnExit(ABC):
    """Something that is closed at the end of a `with` block."""

    @abstractmethod
    def close(self) -> None:
        """Let the connections go."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def new_request_id() -> str:
    """Random, so that it says nothing about the request."""
    return SystemRandomness().bytes(8).hex()


class Remote(ClosesOnExit):
    """A service by its address. Run by its clients; pass `http` to share connections."""

    def __init__(self, url: str, http: httpx.Client | None = None, patience: Patience | None = None) -> None:
        self._url = url.rstrip("/")
        self._http = http or httpx.Client(follow_redirects=False)
        self._patience = patience or Patience()

    def get(self, path: str, query: UrlQuery | None = None, patience: Patience | None = None) -> bytes:
        """The resource at this path."""
        return self._ask("GET", path, query, patience)

    def post(
        self,
        path: str,
        body: bytes,
        media_type: str,
        query: UrlQuery | None = None,
        patience: Patience | None = None,
    ) -> bytes:
        """The service's answer to this body."""
        return self._ask("POST", path, query, patience, body, media_type)

    def close(self) -> None:
        """Let the connections go."""
        self._http.close()

    def _ask(
        self,
        method: str,
        path: str,
        query: UrlQuery | None,
        patience: Patience | None,
        body: bytes | None = None,
        media_type: str | None = None,
    ) -> bytes:
        patience = patience or self._patience
        end = time.monotonic() + patience.within_s
        with self.answer(method, path, patience, body, media_type, query) as answer:
            content = bounded(answer, end, patience)
        if not answer.is_success:
            raise problem.error_of(answer.status_code, content)
        return content

    @contextmanager
    def answer(
        self,
        method: str,
        path: str,
        patience: Patience,
        body: bytes | None = None,
        media_type: str | None = None,
        query: UrlQuery | None = None,
    ) -> Iterator[httpx.Response]:
        """The service's answer, its body not read yet. No redirect is followed."""
        try:
            request = self._http.build_request(
                method,
                self._url + path,
                params=query,
                content=body,
                headers=_HEADERS | ({"content-type": media_type} if media_type else {}),
                timeout=httpx.Timeout(patience.timeout_s, connect=min(CONNECT_S, patience.timeout_s)),
            )
        except (httpx.InvalidURL, ValueError):
            raise self._no_address() from None
        request.headers.pop("cookie", None)  # It would link all requests of a browser.
        self._sign(request)
        try:
            with closing(self._http.send(request, stream=True, auth=None, follow_redirects=False)) as answer:
                yield answer
        except (httpx.UnsupportedProtocol, httpx.LocalProtocolError):
            # Nothing was sent, and retrying would not help.
            raise self._no_address() from None
        except httpx.RequestError as error:
            raise ServiceAway(f"{self._url} cannot be reached ({type(error).__name__}); try again") from None
        except (httpx.InvalidURL, ValueError):
            # httpx parses a redirect's target even if it is not to be followed.
            raise StrangeAnswer(f"{self._url} answered with a redirect to what is no address") from None

    def _sign(self, request: httpx.Request) -> None:
        """A hook for subclasses that sign: everything that is sent is final now."""

    def _no_address(self) -> StrangeAnswer:
        return StrangeAnswer(f"{self._url!r} is no address; give one like http://127.0.0.1:8000")


class SignedRemote(Remote):
    """A helper by its address and name. Run by the ad server, which signs each attempt anew as `origin`."""

    def __init__(
        self,
        url: str,
        helper: str,
        origin: str,
        key: SigningKey,
        clock: Clock,
        http: httpx.Client | None = None,
        request_id: str | None = None,
        patience: Patience | None = None,
    ) -> None:
        super().__init__(url, http, patience)
        self._helper = helper
        self._origin = origin
        self._key = key
        self._clock = clock
        self._request_id = request_id or new_request_id()

    def delete(self, path: str, query: UrlQuery | None = None, patience: Patience | None = None) -> bytes:
        """Delete the resource at this path; returns the service's answer."""
        return self._ask("DELETE", path, query, patience)

    def _sign(self, request: httpx.Request) -> None:
        # Sign the path and query as they are sent, however they were written.
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
        request.headers.update(signed | {REQUEST_ID: self._request_id})


def bounded(answer: httpx.Response, end: float, patience: Patience) -> bytes:
    """The answer's body. A service must not be able to fill our memory, or to keep us reading."""
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise StrangeAnswer("the service compressed an answer that was asked for as it is")
    parts, size = [], 0
    for part in answer.iter_bytes():
        if time.monotonic() > end:
            raise ServiceAway(f"the service took over {patience.within_s:g} seconds to answer; try again")
        size += len(part)
        if size > patience.max_bytes:
            raise StrangeAnswer(f"the service answered with more than {patience.max_bytes} bytes")
        parts.append(part)
    return b"".join(parts)
