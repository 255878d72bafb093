"""One service, as its clients see it: bounded answers, typed errors, one for all ways of being away."""

import time
from types import TracebackType

import httpx

from maskedlark.web import problem
from maskedlark.web.errors import ServiceAway, StrangeAnswer

MOST_ANSWER = 8 << 20
TIMEOUT_S = 10.0
"""Without a byte from the service."""
ANSWER_WITHIN_S = 60.0
"""From the request to the last byte of the answer: one that drips would hold its reader for ever."""
_HEADERS = {"user-agent": "maskedlark", "accept-encoding": "identity"}

Query = dict[str, str | int]


class Remote:
    """A service by its address. Run by its clients; `http` is given by those who share connections."""

    def __init__(self, url: str, http: httpx.Client | None = None) -> None:
        self._url = url.rstrip("/")
        self._http = http or httpx.Client(timeout=TIMEOUT_S, follow_redirects=False)

    def get(self, path: str, query: Query | None = None) -> bytes:
        """What stands at this path."""
        return self._ask("GET", path, query, None, {})

    def post(self, path: str, body: bytes, media_type: str, query: Query | None = None) -> bytes:
        """What the service answers to this body."""
        return self._ask("POST", path, query, body, {"content-type": media_type})

    def close(self) -> None:
        """Let the connections go."""
        self._http.close()

    def __enter__(self) -> "Remote":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(
        self, method: str, path: str, query: Query | None, body: bytes | None, headers: dict[str, str]
    ) -> bytes:
        try:
            request = self._http.build_request(
                method, self._url + path, params=query, content=body, headers=_HEADERS | headers
            )
        except (httpx.InvalidURL, ValueError):
            raise StrangeAnswer(f"{self._url!r} is no address; give one like http://127.0.0.1:8000") from None
        request.headers.pop("cookie", None)  # It would tie all requests of a browser together.
        status, found = self._send(request)
        if not httpx.codes.is_success(status):
            raise problem.error_of(status, found)
        return found

    def _send(self, request: httpx.Request) -> tuple[int, bytes]:
        """Status and body of the answer: no redirect is followed."""
        end = time.monotonic() + ANSWER_WITHIN_S
        try:
            answer = self._http.send(request, stream=True, auth=None, follow_redirects=False)
            try:
                return answer.status_code, _bounded(answer, end)
            finally:
                answer.close()
        except httpx.RequestError as error:
            raise ServiceAway(f"{self._url} cannot be reached ({type(error).__name__}); try again") from None
        except (httpx.InvalidURL, ValueError):
            # httpx reads where a redirect leads, also when it is not to be followed.
            raise StrangeAnswer(f"{self._url} answered with a redirect to what is no address") from None


def _bounded(answer: httpx.Response, end: float) -> bytes:
    """The answer's body. A service must not be able to fill our memory, or to keep us reading."""
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise StrangeAnswer("the service compressed an answer that was asked for as it is")
    parts, size = [], 0
    for part in answer.iter_bytes():
        if time.monotonic() > end:
            raise ServiceAway(f"the service took over {ANSWER_WITHIN_S:g} seconds to answer; try again")
        size += len(part)
        if size > MOST_ANSWER:
            raise StrangeAnswer(f"the service answered with more than {MOST_ANSWER} bytes")
        parts.append(part)
    return b"".join(parts)
