"""One service, as its clients see it: bounded answers, typed errors, one for all ways of being away."""

from types import TracebackType

import httpx

from maskedlark.web import problem
from maskedlark.web.errors import ServiceAway, StrangeAnswer

MOST_ANSWER = 8 << 20
TIMEOUT_S = 10.0

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
            with self._http.stream(
                method, self._url + path, params=query, content=body, headers=headers
            ) as answer:
                found = _bounded(answer)
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise ServiceAway(f"{self._url} cannot be reached ({type(error).__name__}); try again") from None
        except httpx.InvalidURL:
            raise StrangeAnswer(f"{self._url!r} is no address; give one like http://127.0.0.1:8000") from None
        if not answer.is_success:
            raise problem.error_of(answer.status_code, found)
        return found


def _bounded(answer: httpx.Response) -> bytes:
    """The answer's body. A service must not be able to fill our memory."""
    parts, size = [], 0
    for part in answer.iter_bytes():
        size += len(part)
        if size > MOST_ANSWER:
            raise StrangeAnswer(f"the service answered with more than {MOST_ANSWER} bytes")
        parts.append(part)
    return b"".join(parts)
