"""What a service can make its clients do: neither know them again, nor wait for ever, nor fail untyped."""

import httpx
import pytest

from maskedlark.web.errors import ServiceAway, StrangeAnswer
from maskedlark.web.remote import Remote


def of(answer):
    return Remote("http://parameters.test", httpx.Client(transport=httpx.MockTransport(answer)))


def test_a_client_is_not_known_again():
    seen = []

    def answer(request):
        seen.append(request.headers)
        return httpx.Response(200, headers={"set-cookie": "uid=abc; Max-Age=999999"})

    asking = of(answer)
    for _ in range(2):
        asking.get("/a")
    asking.post("/b", b"", "text/plain")
    for headers in seen:
        assert "cookie" not in headers
        assert (headers["user-agent"], headers["accept-encoding"]) == ("maskedlark", "identity")


def test_a_redirect_is_not_followed_by_a_client_that_would():
    http = httpx.Client(
        transport=httpx.MockTransport(
            lambda _: httpx.Response(302, headers={"location": "http://evil.test"})
        ),
        follow_redirects=True,
    )
    with pytest.raises(StrangeAnswer, match="302"):
        Remote("http://parameters.test", http).get("/a")


@pytest.mark.parametrize("location", ["http://xn--a/", "mailto:x", "http://[", "http://x:99999999", "/%zz"])
def test_a_redirect_to_nowhere_is_an_error_of_ours(location):
    with pytest.raises((StrangeAnswer, ServiceAway)):
        of(lambda _: httpx.Response(302, headers={"location": location})).get("/a")


class Dripping(httpx.SyncByteStream):
    def __init__(self, monkeypatch):
        self.now, self.closed = 0.0, False
        monkeypatch.setattr("maskedlark.web.remote.time.monotonic", lambda: self.now)

    def __iter__(self):
        while self.now < 1e6:
            self.now += 9
            yield b"x"

    def close(self):
        self.closed = True


def test_an_answer_that_drips_is_given_up(monkeypatch):
    dripping = Dripping(monkeypatch)
    with pytest.raises(ServiceAway, match="60 seconds"):
        of(lambda _: httpx.Response(200, stream=dripping)).get("/a")
    assert dripping.closed
    assert dripping.now < 80


def test_a_compressed_answer_is_refused():
    """One that decodes to nothing for long would not let us look at the clock."""
    with pytest.raises(StrangeAnswer, match="compressed"):
        of(
            lambda _: httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"x"))
        ).get("/a")
