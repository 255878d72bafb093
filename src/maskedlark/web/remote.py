"""One service, as its clients see it: bounded answers, typed errors, one for all ways of being away.

Nothing is tried again here. A caller may try again after `ServiceAway`, and after no other error.
"""

import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import httpx

from maskedlark.web import problem
from maskedlark.web.errors import ServiceAway, StrangeAnswer

MOST_ANSWER = 8 << 20
TIMEOUT_S = 10.0
CONNECT_S = 10.0
"""To be let in: nobody thinks meanwhile, so who does not answer then is away."""
ANSWER_WITHIN_S = 60.0
_HEADERS = {"user-agent": "maskedlark", "accept-encoding": "identity"}

Query = dict[str, str | int]


@dataclass(frozen=True)
class Patience:
    """How much a client reads, and how long it waits."""

    most_bytes: int = MOST_ANSWER
    """Of one answer."""
    timeout_s: float = TIMEOUT_S
    """Without a byte from the service that let us in: also what it may take to think before it answers."""
    within_s: float = ANSWER_WITHIN_S
    """From the request to the last byte of the answer: one that drips would hold its reader for ever."""


class Remote:
    """A service by its address. Run by its clients; `http` is given by those who share connections."""

    def __init__(self, url: str, http: httpx.Client | None = None, patience: Patience | None = None) -> None:
        self._url = url.rstrip("/")
        self._http = http or httpx.Client(follow_redirects=False)
        self._patience = patience or Patience()

    def get(self, path: str, query: Query | None = None, patience: Patience | None = None) -> bytes:
        """What stands at this path."""
        return self._ask("GET", path, query, None, {}, patience)

    def post(
        self,
        path: str,
        body: bytes,
        media_type: str,
        query: Query | None = None,
        patience: Patience | None = None,
    ) -> bytes:
        """What the service answers to this body."""
        return self._ask("POST", path, query, body, {"content-type": media_type}, patience)

    def close(self) -> None:
        """Let the connections go."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: bytes | None,
        headers: dict[str, str],
        patience: Patience | None,
    ) -> bytes:
        patience = patience or self._patience
        status, found = self._send(self._request(method, path, query, body, headers, patience), patience)
        if not httpx.codes.is_success(status):
            raise problem.error_of(status, found)
        return found

    def _request(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: bytes | None,
        headers: dict[str, str],
        patience: Patience,
    ) -> httpx.Request:
        """The request as it is sent."""
        try:
            request = self._http.build_request(
                method,
                self._url + path,
                params=query,
                content=body,
                headers=_HEADERS | headers,
                timeout=httpx.Timeout(patience.timeout_s, connect=min(CONNECT_S, patience.timeout_s)),
            )
        except (httpx.InvalidURL, ValueError):
            raise self._no_address() from None
        request.headers.pop("cookie", None)  # It would tie all requests of a browser together.
        self._sign(request)
        return request

    def _sign(self, request: httpx.Request) -> None:
        """Nothing here. Those who sign do it now: all that is sent is settled."""

    def _send(self, request: httpx.Request, patience: Patience) -> tuple[int, bytes]:
        """Status and body of the answer: no redirect is followed."""
        end = time.monotonic() + patience.within_s
        try:
            answer = self._http.send(request, stream=True, auth=None, follow_redirects=False)
            try:
                return answer.status_code, _bounded(answer, end, patience)
            finally:
                answer.close()
        except (httpx.UnsupportedProtocol, httpx.LocalProtocolError):
            # Nothing was sent, and no second try would mend it.
            raise self._no_address() from None
        except httpx.RequestError as error:
            raise ServiceAway(f"{self._url} cannot be reached ({type(error).__name__}); try again") from None
        except (httpx.InvalidURL, ValueError):
            # httpx reads where a redirect leads, also when it is not to be followed.
            raise StrangeAnswer(f"{self._url} answered with a redirect to what is no address") from None

    def _no_address(self) -> StrangeAnswer:
        return StrangeAnswer(f"{self._url!r} is no address; give one like http://127.0.0.1:8000")


def _bounded(answer: httpx.Response, end: float, patience: Patience) -> bytes:
    """The answer's body. A service must not be able to fill our memory, or to keep us reading."""
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise StrangeAnswer("the service compressed an answer that was asked for as it is")
    found, size = [], 0
    for part in answer.iter_bytes():
        if time.monotonic() > end:
            raise ServiceAway(f"the service took over {patience.within_s:g} seconds to answer; try again")
        size += len(part)
        if size > patience.most_bytes:
            raise StrangeAnswer(f"the service answered with more than {patience.most_bytes} bytes")
        found.append(part)
    return b"".join(found)
