"""Serving, in a process of its own: TLS, limits of connections, and every way to stop."""

import contextlib
import json
import resource
import signal
import socket
import ssl
import time
from functools import partial
from pathlib import Path

import pytest
from pydantic import ValidationError

from maskedlark.web.errors import BadCertificate, CannotListen
from maskedlark.web.serving import MAX_HEAD, OTHER_FILES, Serving, serve
from tests.unit.web import pem
from tests.unit.web.served import HOST, app, request, rest, served, whole

PLACES = 12
IDLE_S = 1


def test_a_certificate_and_its_key_come_together_and_lie_beside_the_file():
    for alone in ("certificate", "certificate_key"):
        with pytest.raises(ValidationError, match="give both, or none"):
            Serving.model_validate_json(f'{{"{alone}": "a.pem"}}')
    found = Serving.model_validate_json('{"certificate": "a.pem", "certificate_key": "/b.pem"}')
    beside = found.beside(Path("/etc/helper"))
    assert (beside.certificate, beside.certificate_key) == (Path("/etc/helper/a.pem"), Path("/b.pem"))
    assert Serving().beside(Path("/etc")) == Serving()


def test_every_setting_says_what_to_write():
    for name, field in Serving.model_fields.items():
        assert f": {name} = " in (field.description or ""), name


@pytest.fixture(scope="module")
def plain():
    with served({"max_connections": PLACES, "idle_s": IDLE_S, "metrics_port": 0}) as made:
        yield made


def ok(answer):
    return answer.startswith(b"HTTP/1.1 200 ")


def test_metrics_are_on_a_port_of_their_own(plain):
    announced = plain.lines()
    assert announced.startswith("metrics on http://127.0.0.1:")
    with socket.create_connection((HOST, int(announced.rpartition(":")[2])), timeout=30) as connection:
        connection.sendall(request("/metrics"))
        assert b"served_total 0.0" in rest(connection)
    assert plain.ask("/metrics").startswith(b"HTTP/1.1 404 ")


def test_a_port_that_is_taken_is_said_plainly(plain):
    for settings in (Serving(port=plain.port), Serving(metrics_port=plain.port)):
        with pytest.raises(CannotListen, match=rf"port {plain.port} of 127\.0\.0\.1: Address already in use"):
            serve(app(), settings)


def client(made, *forwarded):
    """The sender's address as the service takes it."""
    lines = "".join(f"x-forwarded-for: {each}\r\n" for each in forwarded)
    with made.connect() as connection:
        connection.sendall(request("/client", f"connection: close\r\n{lines}"))
        return whole(connection).rpartition(b"\r\n\r\n")[2].decode()


def test_nobody_is_believed_who_the_sender_is_unless_told(plain):
    assert client(plain, "192.0.2.1") == HOST


@pytest.mark.parametrize("proxy", ["127.0.0.0/8", "127.0.0.1", "::1/128"])
def test_a_proxy_of_ours_names_the_sender(proxy):
    with served({"trusted_proxies": [proxy, "10.0.0.0/8"]}) as made:
        if proxy == "::1/128":
            assert client(made, "192.0.2.1") == HOST
            return
        for forwarded, sender in {
            (): HOST,
            ("192.0.2.1",): "192.0.2.1",
            # What the sender itself wrote is to the left of what our proxies add.
            ("198.51.100.1, 192.0.2.1, 10.1.2.3",): "192.0.2.1",
            ("198.51.100.1", "192.0.2.1", "10.1.2.3"): "192.0.2.1",
            ("192.0.2.1:4711",): "192.0.2.1",
            ("[2001:db8::1]:4711, 10.0.0.1",): "2001:db8::1",
            ("192.0.2.1, unknown",): "unknown",
            ("10.0.0.1, 10.0.0.2",): "10.0.0.1",
        }.items():
            assert client(made, *forwarded) == sender, forwarded


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6 here")
def test_a_proxy_is_known_on_a_socket_for_both_kinds_of_address():
    with served({"host": "::", "trusted_proxies": ["::ffff:127.0.0.0/104"]}) as made:
        assert client(made, "192.0.2.1") == "192.0.2.1"


@pytest.mark.parametrize("network", ["10.0.0.1/8", "proxy.example", "*", ""])
def test_a_proxy_is_an_address_or_a_network(network):
    with pytest.raises(ValidationError, match="valid IPv4 or IPv6 network"):
        Serving.model_validate_json(json.dumps({"trusted_proxies": [network]}))


def test_a_connection_that_says_nothing_or_too_little_is_closed(plain):
    with plain.connect() as silent, plain.connect() as partial_head, plain.connect() as kept:
        partial_head.sendall(request("/health")[:-2])
        kept.sendall(request("/health", headers=""))
        assert (rest(silent), rest(partial_head)) == (b"", b"")
        assert ok(rest(kept))


def test_a_head_that_drips_is_closed_however_steadily_it_comes(plain):
    with plain.connect() as dripping, contextlib.suppress(ConnectionError):
        for byte in request("/health", headers=f"x: {'x' * 10_000}\r\n"):
            dripping.sendall(bytes([byte]))
            time.sleep(0.05)
        pytest.fail("it was let in")


def test_a_head_that_does_not_end_is_refused(plain):
    with plain.connect() as connection, contextlib.suppress(ConnectionError):
        connection.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(MAX_HEAD // 1000 + 2):
            connection.sendall(b"x-a: %s\r\n" % (b"x" * 1000))
            time.sleep(0.001)
        assert rest(connection).startswith(b"HTTP/1.1 400 ")


def test_idle_connections_shut_nobody_out(plain):
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(plain.connect()) for _ in range(3 * PLACES)]
        assert ok(plain.ask("/health"))
        # The first to come were the first to go.
        assert [rest(each) for each in idle[: 2 * PLACES]] == [b""] * 2 * PLACES


def upload_among_silent(made, secured=None):
    """An upload, the answer to it, and which connections of a flood that came in the middle are left."""
    with contextlib.ExitStack() as stack:
        sending = stack.enter_context(made.connect(secured))
        sending.sendall(request("/length", "content-length: 9\r\n", "POST") + b"1234")
        silent = [stack.enter_context(made.connect()) for _ in range(3 * PLACES)]
        assert ok(made.ask("/health", secured))
        sending.sendall(b"56789")
        sending.settimeout(30)
        answer = sending.recv(1 << 16)
        assert [rest(each) for each in silent[: 2 * PLACES]] == [b""] * 2 * PLACES
    return answer


def test_silent_connections_end_no_upload(plain):
    assert ok(upload_among_silent(plain))


def test_bodies_that_do_not_come_and_answers_that_are_not_read_shut_nobody_out(plain):
    with contextlib.ExitStack() as stack:
        for place in range(2 * PLACES):
            connection = stack.enter_context(plain.connect())
            if place % 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
                connection.sendall(request(f"/big/{16 << 20}"))
            else:
                connection.sendall(request("/length", "content-length: 9\r\n", "POST") + b"x")
        assert ok(plain.ask("/health"))


def count_begun(answers):
    """The number in the next answer to /begun, read whole: its head may come without it."""
    length = 0
    while (line := answers.readline()) != b"\r\n":
        assert line, "the connection was closed"
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    return int(answers.read(length))


def until_begun(connection, answers, number):
    """Ask, on a connection that stays, until so many requests are held."""
    begun = -1
    while begun != number:
        connection.sendall(request("/begun", headers=""))
        begun = count_begun(answers)


def test_where_all_are_worked_for_a_newcomer_is_told_and_nobody_is_cut(plain):
    with contextlib.ExitStack() as stack:
        held = []
        for _ in range(PLACES - 1):
            held.append(stack.enter_context(plain.connect()))
            held[-1].sendall(request("/held"))
        last = stack.enter_context(plain.connect())
        answers = stack.enter_context(last.makefile("rb"))
        until_begun(last, answers, PLACES - 1)
        # With a first answer before it: once that is here, the second request was read too.
        last.sendall(request("/begun", headers="") + request("/held"))
        assert count_begun(answers) == PLACES - 1
        assert plain.ask("/health").startswith(b"HTTP/1.1 503 ")
        # A newcomer takes the one place too many from who says nothing on it.
        silent = stack.enter_context(plain.connect())
        assert plain.ask("/health").startswith(b"HTTP/1.1 503 ")
        assert rest(silent) == b""
        answers.close()
        last.close()
        while not ok(plain.ask("/leave")):
            time.sleep(0.01)  # It is not known yet that one went away.
        assert [rest(each).endswith(b"answered") for each in held] == [True] * (PLACES - 1)


def test_what_is_no_http_in_the_middle_of_an_answer_ends_the_connection_alone(plain):
    with plain.connect() as connection:
        chunked = request(f"/big/{8 << 20}", "transfer-encoding: chunked\r\n")
        connection.sendall(chunked)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"nonsense\r\n")
        rest(connection)
    assert ok(plain.ask("/health"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return pem.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secured(pair):
    settings = {
        "certificate": str(pair.certificate),
        "certificate_key": str(pair.key),
        "max_connections": PLACES,
        "idle_s": IDLE_S,
    }
    with served(settings) as made:
        trusting = ssl.create_default_context(cafile=pair.certificate)
        yield made, trusting


def test_tls_is_announced_and_spoken_from_1_2_on(secured):
    made, trusting = secured
    assert made.announced.startswith("listening on https://127.0.0.1:")
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        trusting.minimum_version = trusting.maximum_version = version
        assert ok(made.ask("/health", trusting))
    with contextlib.suppress(ConnectionError):
        assert made.ask("/health") == b""  # In plain text there is no answer at all.
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        made.ask("/health", old)


def test_who_never_ends_the_handshake_is_closed_and_shuts_nobody_out(secured):
    made, trusting = secured
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(made.connect()) for _ in range(3 * PLACES)]
        assert ok(made.ask("/health", trusting))
        assert [rest(each) for each in silent] == [b""] * 3 * PLACES
        kept = stack.enter_context(made.connect(trusting))
        assert rest(kept) == b""


def test_silent_connections_end_no_upload_over_tls_and_no_handshake(secured, pair):
    made, trusting = secured
    assert ok(upload_among_silent(made, trusting))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    begun = trusting.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        begun.do_handshake()
    hello = outgoing.read()
    files = {"certificate": str(pair.certificate), "certificate_key": str(pair.key)}
    with served({**files, "max_connections": PLACES}) as patient, contextlib.ExitStack() as stack:
        shaking = stack.enter_context(patient.connect())
        shaking.sendall(hello[:9])
        silent = [stack.enter_context(patient.connect()) for _ in range(3 * PLACES)]
        assert [rest(each) for each in silent[: 2 * PLACES]] == [b""] * 2 * PLACES
        shaking.sendall(hello[9:])
        assert shaking.recv(1) == b"\x16"


def test_a_service_does_not_begin_with_a_certificate_that_is_wrong(tmp_path):
    pair = pem.make(tmp_path)
    pair.key.unlink()
    with pytest.raises(BadCertificate, match="cannot be read"):
        serve(app(), Serving(certificate=pair.certificate, certificate_key=pair.key))


def test_told_to_stop_it_drains_and_answers_what_is_under_way():
    with served({"drain_s": 3, "stop_within_s": 30}) as made, made.connect() as held, made.connect() as begun:
        held.sendall(request("/held", headers=""))
        begun.sendall(b"GET /he")
        assert ok(made.ask("/ready"))
        made.signal()
        while not (answer := made.ask("/ready")).startswith(b"HTTP/1.1 503 "):
            assert ok(answer)  # The signal has not been seen yet.
        assert b"/problems/draining" in answer
        with made.connect() as kept:
            kept.sendall(request("/health", headers=""))
            answer = whole(kept)
            assert ok(answer)
            assert b"connection: close" in answer
        with contextlib.suppress(ConnectionError):
            while True:
                assert ok(made.ask("/health"))
        # It listens no more, and none that it let in was left without an answer. What began is answered.
        begun.sendall(request("/health")[len(b"GET /he") :])
        assert ok(rest(begun))
        begun.close()
        assert made.process.poll() is None  # One is held; told again, it does not wait for that.
        made.signal(signal.SIGINT)
        assert made.end()[0] == 128 + signal.SIGINT


def test_a_stop_closes_what_is_idle_waits_for_what_is_not_and_is_no_failure():
    with served({"stop_within_s": 30}) as made, made.connect() as asked, made.connect() as idle:
        asked.sendall(request("/length", "content-length: 9\r\n", "POST") + b"123")
        assert ok(made.ask("/health"))
        made.signal()
        assert rest(idle) == b""
        asked.sendall(b"456789")
        assert rest(asked).endswith(b"\r\n\r\n9")
        assert made.end() == (0, "")


def test_work_that_does_not_end_is_given_up():
    with served({"stop_within_s": 0}) as made, made.connect() as held, made.connect() as asking:
        held.sendall(request("/held"))
        with asking.makefile("rb") as answers:
            until_begun(asking, answers, 1)
        made.signal()
        code, said = made.end()
    assert code == 1
    assert "it is given up" in said


def test_too_few_files_lower_the_number_of_connections():
    few = OTHER_FILES + 7
    lower = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (100, few))
    with served({}, preexec_fn=lower) as made:
        assert ok(made.ask("/health"))
        made.signal()
        code, said = made.end()
    assert code == 0
    assert f"only {few} files may be open: max_connections is 7, not 1024" in said


def parts_of(pair):
    return {"certificate": str(pair.certificate), "certificate_key": str(pair.key)}


def is_answered(made, trusting):
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        return ok(made.ask("/health", trusting))
    return False


def until(is_so):
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_renewed_certificate_is_used_and_no_request_is_cut(tmp_path):
    pair = pem.make(tmp_path)
    old = ssl.create_default_context(cafile=pair.certificate)
    with served(parts_of(pair)) as made, made.connect(old) as asked, made.connect(old) as held:
        asked.sendall(request("/length", "content-length: 9\r\n", "POST") + b"123")
        held.sendall(request("/held"))
        other = pem.make(tmp_path, "other")
        pair.certificate.write_bytes(
            other.certificate.read_bytes()
        )  # Half of it: the key is still the old one.
        made.signal(signal.SIGHUP)
        for _ in range(10):
            assert is_answered(made, old)
            time.sleep(0.05)
        pair.key.write_bytes(other.key.read_bytes())
        made.signal(signal.SIGHUP)
        new = ssl.create_default_context(cafile=other.certificate)
        until(lambda: is_answered(made, new))
        assert not is_answered(made, old)
        asked.sendall(b"456789")
        assert rest(asked).endswith(b"\r\n\r\n9")
        made.ask("/leave", new)
        assert rest(held).endswith(b"answered")
        made.signal()
        code, said = made.end()
    assert code == 0
    assert "the certificate stays as it was: " in said


def test_an_expired_certificate_is_not_ready(tmp_path):
    pair = pem.make(tmp_path, ends_in_s=-60)
    careless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
    with served(parts_of(pair) | {"metrics_port": 0}) as made:
        answer = made.ask("/ready", careless)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"/problems/certificate-expired" in answer
        with socket.create_connection((HOST, int(made.lines().rpartition(":")[2])), timeout=30) as connection:
            connection.sendall(request("/metrics"))
            page = rest(connection)
        assert b"maskedlark_certificate_end_seconds -6" in page
        assert b"maskedlark_ready 0.0" in page
        other = pem.make(tmp_path, "other")
        for now, then in zip(pair, other, strict=True):
            now.write_bytes(then.read_bytes())
        made.signal(signal.SIGHUP)
        until(lambda: ok(made.ask("/ready", careless)))


def test_a_hangup_ends_nothing():
    with served({}) as made, made.connect() as asked:
        asked.sendall(request("/length", "content-length: 9\r\n", "POST") + b"123")
        for _ in range(5):
            made.signal(signal.SIGHUP)
            assert ok(made.ask("/health"))
        asked.sendall(b"456789")
        assert rest(asked).endswith(b"\r\n\r\n9")
        made.signal()
        assert made.end() == (0, "")
