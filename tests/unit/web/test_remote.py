"""What a service can make its clients do: neither know them again, nor wait for ever, nor fail untyped."""

import httpx
import pytest

from maskedlark.web.errors import ServiceAway, StrangeAnswer
from maskedlark.web.remote import MAX_ANSWER, Patience, Remote


def of(answer, patience=None):
    return Remote("http://parameters.test", httpx.Client(transport=httpx.MockTransport(answer)), patience)


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


def test_how_long_an_answer_may_take_is_an_argument(monkeypatch):
    dripping = Dripping(monkeypatch)
    asking = of(lambda _: httpx.Response(200, stream=dripping), Patience(within_s=100))
    with pytest.raises(ServiceAway, match="100 seconds"):
        asking.get("/a")
    assert 100 < dripping.now < 120
    dripping.now = 0
    with pytest.raises(ServiceAway, match="20 seconds"):
        asking.post("/a", b"", "text/plain", patience=Patience(within_s=20))
    assert 20 < dripping.now < 40


def test_how_long_a_client_waits_for_a_byte_is_an_argument():
    """Also of a client that was given: its own time limits are for its owner's other requests."""
    seen = []

    def answer(request):
        seen.append(request.extensions["timeout"]["read"])
        assert request.extensions["timeout"]["connect"] == 10.0, "nobody thinks before it lets us in"
        return httpx.Response(200)

    asking = of(answer, Patience(timeout_s=70))
    asking.get("/a")
    asking.get("/a", patience=Patience(timeout_s=80))
    of(answer).get("/a")
    assert seen == [70, 80, 10]


def test_how_much_of_an_answer_is_read_is_an_argument():
    def sized(size):
        return lambda _: httpx.Response(200, content=bytes(size))

    assert len(of(sized(MAX_ANSWER)).get("/a")) == MAX_ANSWER
    with pytest.raises(StrangeAnswer, match=f"more than {MAX_ANSWER}"):
        of(sized(MAX_ANSWER + 1)).get("/a")
    assert len(of(sized(9 << 20), Patience(max_bytes=9 << 20)).get("/a")) == 9 << 20
    with pytest.raises(StrangeAnswer, match="more than 10 bytes"):
        of(sized(11)).get("/a", patience=Patience(max_bytes=10))


@pytest.mark.parametrize(
    "fault",
    [httpx.ConnectError, httpx.ReadTimeout, httpx.WriteError, httpx.RemoteProtocolError, httpx.PoolTimeout],
)
def test_what_another_try_may_mend_is_away(fault):
    def answer(request):
        raise fault("text", request=request)

    with pytest.raises(ServiceAway, match=fault.__name__):
        of(answer).get("/a")


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_service_that_cannot_is_away(status):
    with pytest.raises(ServiceAway):
        of(lambda _: httpx.Response(status)).get("/a")


@pytest.mark.parametrize("url", ["", "parameters.test", "ftp://parameters.test", "http://", "http://a:b"])
def test_what_is_no_address_is_not_tried_again(url):
    with pytest.raises(StrangeAnswer, match="no address"):
        Remote(url).get("/a")


def test_a_compressed_answer_is_refused():
    """One that decodes to nothing for long would not let us look at the clock."""
    with pytest.raises(StrangeAnswer, match="compressed"):
        of(
            lambda _: httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"x"))
        ).get("/a")
