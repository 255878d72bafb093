"""What the parameter client never accepts: from the service, from its own disk, after a restart."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock, call

import httpx
import pytest

from maskedlark.clock import FixedClock
from maskedlark.errors import BadSignature, BrokenChain, Expired, Forked, InvalidDocument, RolledBack
from maskedlark.parameters import chain, document
from maskedlark.web import pages, remote
from maskedlark.web.errors import (
    CorruptCache,
    ServiceAway,
    StrangeAnswer,
    UnknownDocument,
    UnknownHelper,
    UnknownOrigin,
)
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS, REQUEST_KEY, SERVICE_KEY, make
from tests.unit.web.service import (
    NOW,
    ORIGIN,
    AppTransport,
    Service,
    away,
    chained,
    client,
    configuration,
    dripping,
)

END = make().not_after


class Bench:
    """A service, a second face of it, and clients that forget everything but their folder."""

    def __init__(self, folder):
        self.clock = FixedClock(NOW)
        self.service = Service(folder / "parameters.db", self.clock)
        self.other = Service(folder / "other.db", self.clock)
        self.transport = AppTransport(self.service.app)
        self.folder = folder / "cache"

    def client(self, **changes):
        return client(self.transport, self.folder, self.clock, **changes)

    def show(self, face):
        self.transport.app = face.app if isinstance(face, Service) else face

    def evidence(self):
        return sorted(self.folder.rglob("evidence/*"))

    def close(self):
        self.service.store.close()
        self.other.store.close()


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def test_the_newest_document_verified_and_cached(bench):
    documents = bench.service.publish_chain(3)
    assert bench.client().latest(ORIGIN) == documents[-1]
    bench.show(away)
    assert bench.client().latest(ORIGIN) == documents[-1]
    assert bench.client().chain(ORIGIN) == documents


def test_it_moves_on_with_the_service(bench):
    documents = bench.service.publish_chain(2)
    running = bench.client()
    assert running.latest(ORIGIN) == documents[-1]
    third = chained(1, documents[-1], k=70)[0]
    bench.service.publish(third)
    assert running.latest(ORIGIN) == bench.client().latest(ORIGIN) == third


def test_long_chains_come_in_pages(bench, monkeypatch):
    monkeypatch.setattr(pages, "MAX_PAGE", 2)
    documents = bench.service.publish_chain(7)
    assert bench.client().chain(ORIGIN) == documents


def test_without_the_service_what_was_seen_serves_until_its_last_moment(bench):
    bench.service.publish(make())
    bench.client().latest(ORIGIN)
    bench.show(away)
    bench.clock.seconds = END - 1
    assert bench.client().latest(ORIGIN).version == 1
    bench.clock.seconds = END
    with pytest.raises(Expired):
        bench.client().latest(ORIGIN)
    bench.show(bench.service)
    with pytest.raises(Expired):
        bench.client().latest(ORIGIN)


def test_a_chain_of_this_moment_is_the_service_s_or_none(bench):
    documents = bench.service.publish_chain(2)
    running = bench.client(fresh_s=3600)
    assert running.chain_now(ORIGIN) == running.chain(ORIGIN) == documents
    asked = bench.transport.asked
    documents += chained(1, before=documents[-1])
    bench.service.publish(documents[-1])
    assert running.chain(ORIGIN) == documents[:2], "fresh enough"
    assert bench.transport.asked == asked
    assert running.chain_now(ORIGIN) == documents, "however fresh"
    bench.show(away)
    for each in (running, bench.client()):
        with pytest.raises(ServiceAway):
            each.chain_now(ORIGIN)
    assert bench.client().chain(ORIGIN) == documents
    bench.show(bench.other)
    with pytest.raises(RolledBack, match="shows nothing"):
        running.chain_now(ORIGIN)
    with pytest.raises(UnknownOrigin):
        running.chain_now("nobody.example")


@pytest.mark.parametrize("face", [away, lambda _: httpx.Response(503, text="busy")])
def test_without_the_service_and_without_a_cache_there_is_nothing(bench, face):
    bench.show(face)
    for ask in (
        lambda: bench.client().latest(ORIGIN),
        lambda: bench.client().by_digest(bytes(32)),
        lambda: bench.client().keys("helper-0", HELPER_KEYS[0].verifying),
    ):
        with pytest.raises(ServiceAway):
            ask()


def test_an_origin_needs_a_pinned_key(bench):
    with pytest.raises(UnknownOrigin, match="pinned here"):
        bench.client().latest("other.example")
    with pytest.raises(UnknownOrigin, match="nothing of"):
        bench.client().latest(ORIGIN)


def test_an_older_version_is_refused_after_a_restart_too(bench):
    documents = bench.service.publish_chain(3)
    running = bench.client()
    running.latest(ORIGIN)
    for each in documents[:2]:
        bench.other.publish(each)
    bench.show(bench.other)
    for asking in (running, bench.client()):
        with pytest.raises(RolledBack, match=r"version 2 of ads\.example; 3 was seen"):
            asking.latest(ORIGIN)
    assert not bench.evidence()
    bench.show(bench.service)
    assert bench.client().latest(ORIGIN) == documents[-1]


def test_a_service_that_has_lost_everything_is_refused(bench):
    bench.service.publish(make())
    bench.client().latest(ORIGIN)
    bench.show(bench.other)
    with pytest.raises(RolledBack, match="shows nothing"):
        bench.client().latest(ORIGIN)


FORKS = {
    "at the newest version": (3, 2, 1),
    "earlier, and as long": (3, 1, 2),
    "earlier, and longer": (3, 1, 5),
    "earlier, and shorter": (4, 1, 2),
    "right behind what was seen before it": (3, 2, 2),
    "from the first on": (2, 0, 4),
}


@pytest.mark.parametrize("case", FORKS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("page", [1, 64])
def test_a_fork_is_kept_as_evidence(bench, case, turned, page, monkeypatch):
    """Also when the fork goes on under another key, so that its later documents do not verify under ours."""
    monkeypatch.setattr(pages, "MAX_PAGE", page)
    seen, shared, more = FORKS[case]
    ours = bench.service.publish_chain(seen)
    bench.client().latest(ORIGIN)
    key = HELPER_KEYS[2] if turned else DOCUMENT_KEY
    branch = chained(
        more,
        ours[shared - 1] if shared else None,
        k=77,
        **({"document_key": key.verifying.public.hex()} if turned else {}),
    )
    for each in ours[:shared]:
        bench.other.publish(each)
    for place, each in enumerate(branch):
        bench.other.publish(each, key if place else DOCUMENT_KEY)
    bench.show(bench.other)
    with pytest.raises(Forked, match="evidence"):
        bench.client().latest(ORIGIN)
    proofs = [chain.decode(path.read_bytes()) for path in bench.evidence()]
    pinned = DOCUMENT_KEY.verifying
    accused = [each.open(pinned) for each in proofs]
    assert {each.digest for each in accused} == {ours[shared].digest, branch[0].digest}
    for each in proofs:
        each.published(SERVICE_KEY.verifying)
    # It is not forgotten: not after a restart, not when the service shows the old face again, not offline.
    for face in (bench.service, away):
        bench.show(face)
        with pytest.raises(Forked):
            bench.client().latest(ORIGIN)
    assert bench.client().by_digest(ours[0].digest) == ours[0]


def test_what_the_origin_did_not_sign_is_no_fork(bench):
    """A service that forges alone is refused, and nobody is accused of it."""
    bench.service.publish_chain(2)
    bench.client().latest(ORIGIN)
    forged = chain.countersign(
        chain.sign(chained(2, k=77)[1], HELPER_KEYS[2]),
        SERVICE_KEY,
    )
    bench.show(serving({"latest": forged.encode(), "": page_of([forged])}))
    with pytest.raises((BadSignature, BrokenChain)):
        bench.client().latest(ORIGIN)
    assert not bench.evidence()


def test_who_has_the_request_key_and_the_service_cannot_go_on_with_the_chain(bench):
    """Neither from what was seen, nor for a client that has seen nothing. Nobody is accused of it."""
    first = bench.service.publish(make())
    bench.client().latest(ORIGIN)
    document_key, request_key = (key.verifying.public.hex() for key in HELPER_KEYS[1:])
    second = chained(1, make(), document_key=document_key, request_key=request_key)[0]
    signature = REQUEST_KEY.sign(chain.ORIGIN_LABEL, second.encode())
    forged = chain.countersign(chain.Signed(second.encode(), signature), SERVICE_KEY)
    bench.show(serving({"latest": forged.encode(), "": page_of([first, forged])}))
    for folder in (bench.folder, bench.folder / "of a newcomer"):
        bench.folder = folder
        with pytest.raises(BadSignature):
            bench.client().latest(ORIGIN)
        assert not bench.evidence()


def page_of(documents, more=False):
    return pages.Page(tuple(documents), more).encode()


def serving(answers):
    """A service that gives these answers, by the end of the path."""

    def answer(request):
        last = request.url.path.rpartition("/documents")[2].strip("/")
        return httpx.Response(200, content=answers[last]) if last in answers else httpx.Response(500)

    return answer


def test_two_faces_in_one_answer(bench):
    """Newest and chain disagree, both signed by the origin: a fork, although nothing was seen before."""
    ours = [bench.service.publish(each) for each in chained(2)]
    other = chain.countersign(chain.sign(chained(1, make(), k=77)[0], DOCUMENT_KEY), SERVICE_KEY)
    bench.show(serving({"latest": other.encode(), "": page_of(ours)}))
    with pytest.raises(Forked):
        bench.client().latest(ORIGIN)
    assert len(bench.evidence()) == 2


def test_a_service_that_goes_away_when_it_is_caught_is_still_refused(bench):
    bench.service.publish(make())
    bench.client().latest(ORIGIN)
    forged = chain.countersign(chain.sign(make(k=1), HELPER_KEYS[2]), SERVICE_KEY)
    bench.show(serving({"latest": forged.encode()}))
    with pytest.raises(BadSignature):
        bench.client().latest(ORIGIN)


GOOD = chain.countersign(chain.sign(make(), DOCUMENT_KEY), SERVICE_KEY)
ELSEWHERE = chain.countersign(chain.sign(make(origin="other.example"), DOCUMENT_KEY), SERVICE_KEY)
STRANGE = {
    "not countersigned": (replace(GOOD, service_signature=None), BadSignature),
    "countersigned by another": (chain.countersign(GOOD, HELPER_KEYS[0]), BadSignature),
    "signed by another origin": (
        chain.countersign(chain.sign(make(), HELPER_KEYS[0]), SERVICE_KEY),
        BadSignature,
    ),
    "of another origin": (ELSEWHERE, BrokenChain),
}


@pytest.mark.parametrize("case", STRANGE)
def test_a_first_document_that_is_not_the_origin_s(bench, case):
    shown, error = STRANGE[case]
    bench.show(serving({"latest": shown.encode(), "": page_of([shown])}))
    with pytest.raises(error):
        bench.client().latest(ORIGIN)
    assert not list(bench.folder.rglob("*.json"))


NONSENSE = {
    "no JSON": ({"latest": b"<html>"}, InvalidDocument),
    "no page": ({"latest": GOOD.encode(), "": b"[]"}, InvalidDocument),
    "an empty page": ({"latest": GOOD.encode(), "": page_of([])}, BrokenChain),
    "an empty page without end": ({"latest": GOOD.encode(), "": page_of([], True)}, BrokenChain),
    "more without truth": (
        {"latest": GOOD.encode(), "": b'{"documents":[],"more":1}'},
        InvalidDocument,
    ),
    "too many bytes": ({"latest": bytes(remote.MAX_ANSWER + 1)}, StrangeAnswer),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_is_refused(bench, case):
    answers, error = NONSENSE[case]
    bench.show(serving(answers))
    with pytest.raises(error):
        bench.client().latest(ORIGIN)


def test_a_redirect_is_not_followed(bench):
    bench.show(lambda _: httpx.Response(302, headers={"location": "http://evil.test"}))
    with pytest.raises(StrangeAnswer, match="302"):
        bench.client().latest(ORIGIN)


def stored(bench):
    return sorted(path for path in bench.folder.rglob("*") if path.is_file() and path.name != ".lock")


def test_every_damaged_file_is_refused_loudly(bench):
    bench.service.publish_chain(2)
    bench.service.publisher.publish_keys("helper-0", configuration(0, 1))
    running = bench.client()
    running.latest(ORIGIN)
    running.keys("helper-0", HELPER_KEYS[0].verifying)
    paths = stored(bench)
    assert [path.name for path in paths] == ["keys.bin", "1.json", "2.json", "seen"]
    for path in paths:
        good = path.read_bytes()
        for bad in damaged(good):
            path.write_bytes(bad)
            with pytest.raises(CorruptCache, match="to begin anew"):
                ask_all(bench.client())
        path.write_bytes(good)
    ask_all(bench.client())


def damaged(good):
    """Cut, lengthened, emptied, and with a bit changed here and there."""
    bad = [b"", good[:-2], good[: len(good) // 2], b"x" + good, good.replace(b"2", b"9")]
    places = range(0, len(good) - 1, max(1, len(good) // 40))
    bad += [good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in places]
    return [each for each in bad if each != good and not same(each, good)]


def same(changed, good):
    """White space and the like: the file says the same in other bytes."""
    try:
        return bool(json.loads(changed) == json.loads(good))
    except ValueError:
        return False


def ask_all(asking):
    asking.chain(ORIGIN)
    asking.keys("helper-0", HELPER_KEYS[0].verifying)


def test_a_lost_file_is_noticed(bench):
    bench.service.publish_chain(3)
    bench.client().latest(ORIGIN)
    last = next(bench.folder.rglob("3.json"))
    kept = last.read_bytes()
    last.unlink()
    with pytest.raises(CorruptCache, match="lacks version 3"):
        bench.client().latest(ORIGIN)
    last.write_bytes(kept)
    next(bench.folder.rglob("1.json")).unlink()
    with pytest.raises(CorruptCache, match="lacks version 1"):
        bench.client().latest(ORIGIN)


def test_files_of_another_origin_are_refused(bench):
    path = bench.client()._chains[ORIGIN].folder / "1.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(ELSEWHERE.encode())
    with pytest.raises(CorruptCache):
        bench.client().latest(ORIGIN)


def test_killed_between_a_document_and_the_note_that_it_was_seen(bench):
    documents = bench.service.publish_chain(2)
    bench.client().latest(ORIGIN)
    next(bench.folder.rglob("seen")).write_text("1\n")
    bench.show(away)
    assert bench.client().latest(ORIGIN) == documents[-1]
    bench.show(bench.service)
    third = chained(1, documents[-1])[0]
    bench.service.publish(third)
    assert bench.client().latest(ORIGIN) == third
    assert next(bench.folder.rglob("seen")).read_text() == "3\n"


def test_the_service_starts_anew_in_between(bench):
    documents = bench.service.publish_chain(2)
    running = bench.client()
    running.latest(ORIGIN)
    bench.service.store.close()
    bench.service = Service(bench.service.path, bench.clock)
    bench.show(bench.service)
    third = chained(1, documents[-1])[0]
    bench.service.publish(third)
    assert running.latest(ORIGIN) == third


def test_by_digest(bench):
    documents = bench.service.publish_chain(3)
    running = bench.client()
    assert running.by_digest(documents[1].digest) == documents[1]
    bench.show(away)
    bench.clock.seconds = END + 1  # Reports made under it may still come.
    assert bench.client().by_digest(documents[2].digest) == documents[2]
    asked = bench.transport.asked
    assert running.by_digest(documents[0].digest) == documents[0]
    assert bench.transport.asked == asked
    bench.show(bench.service)
    with pytest.raises(UnknownDocument):
        running.by_digest(bytes(32))


def test_another_document_than_the_one_asked_for(bench):
    bench.service.publish(make())
    bench.show(lambda _: httpx.Response(200, content=GOOD.encode()))
    with pytest.raises(StrangeAnswer, match="another document"):
        bench.client().by_digest(bytes(32))


def test_a_fork_that_shows_by_digest(bench):
    bench.service.publish(make())
    bench.other.publish(make(k=77))
    running = bench.client()
    running.latest(ORIGIN)
    bench.show(bench.other)
    with pytest.raises(Forked):
        running.by_digest(make(k=77).digest)
    assert len(bench.evidence()) == 2


def test_a_document_of_an_origin_that_is_not_pinned_here(bench):
    bench.show(lambda _: httpx.Response(200, content=ELSEWHERE.encode()))
    with pytest.raises(UnknownOrigin):
        bench.client().by_digest(make(origin="other.example").digest)


def test_answers_are_used_again_while_they_are_fresh(bench):
    bench.service.publish(make())
    bench.service.publisher.publish_keys("helper-0", configuration(0, 1))
    running = bench.client(fresh_s=60)
    ask_all(running)
    asked = bench.transport.asked
    bench.clock.seconds += 59
    ask_all(running)
    assert bench.transport.asked == asked
    bench.clock.seconds += 1
    ask_all(running)
    assert bench.transport.asked == asked + 2


def test_many_clients_share_a_folder(bench):
    documents = bench.service.publish_chain(6)
    found, clients = [], [bench.client() for _ in range(6)]
    threads = [threading.Thread(target=lambda c=c: found.append(c.chain(ORIGIN))) for c in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [documents] * 6
    bench.show(away)
    assert bench.client().chain(ORIGIN) == documents


def test_a_version_that_another_process_stores_while_a_folder_is_read_is_not_missed(bench, monkeypatch):
    documents = bench.service.publish_chain(2)
    read, faster = Path.read_text, [bench.client()]

    def read_text(path, *args, **options):
        if path.name == "seen" and faster:
            faster.pop().chain(ORIGIN)
        return read(path, *args, **options)

    monkeypatch.setattr(Path, "read_text", read_text)
    assert bench.client().chain(ORIGIN) == documents
    assert not faster


IDENTITY = HELPER_KEYS[0].verifying


def test_keys_move_on_and_never_back(bench):
    publish = bench.service.publisher.publish_keys
    publish("helper-0", configuration(0, 1))
    assert bench.client().keys("helper-0", IDENTITY).sequence == 1
    publish("helper-0", configuration(0, 2, seed=b"new"))
    assert bench.client().keys("helper-0", IDENTITY).sequence == 2
    bench.other.publisher.publish_keys("helper-0", configuration(0, 1))
    bench.show(bench.other)
    with pytest.raises(RolledBack):
        bench.client().keys("helper-0", IDENTITY)
    bench.show(lambda _: httpx.Response(404, content=b'{"type":"/problems/unknown-helper"}'))
    with pytest.raises(RolledBack, match="shows no keys"):
        bench.client().keys("helper-0", IDENTITY)
    with pytest.raises(UnknownHelper):
        bench.client().keys("helper-1", HELPER_KEYS[1].verifying)
    bench.show(away)
    assert bench.client().keys("helper-0", IDENTITY).sequence == 2


def test_keys_are_not_waited_for_while_the_service_hangs(bench):
    """The client's lock is held meanwhile: whoever asks for a document waits too."""
    bench.service.publisher.publish_keys("helper-0", configuration(0, 1))
    bench.client().keys("helper-0", IDENTITY)
    bench.show(dripping)
    assert bench.client().keys("helper-0", IDENTITY).sequence == 1


def test_keys_are_the_identity_s_own(bench):
    """A service that swaps a helper's key is refused, by the identity that the document names."""
    bench.show(lambda _: httpx.Response(200, content=configuration(1, 9)))
    with pytest.raises(BadSignature):
        bench.client().keys("helper-0", IDENTITY)
    with pytest.raises(BadSignature, match="not of helper-0"):
        bench.client().keys("helper-0", HELPER_KEYS[1].verifying)
    assert not stored(bench)


def test_two_configurations_of_one_sequence_are_evidence(bench):
    bench.service.publisher.publish_keys("helper-0", configuration(0, 3))
    bench.client().keys("helper-0", IDENTITY)
    bench.other.publisher.publish_keys("helper-0", configuration(0, 3, seed=b"other"))
    bench.show(bench.other)
    with pytest.raises(Forked):
        bench.client().keys("helper-0", IDENTITY)
    kept = {path.read_bytes() for path in bench.evidence()}
    assert kept == {configuration(0, 3), configuration(0, 3, seed=b"other")}
    bench.show(bench.service)
    with pytest.raises(Forked):
        bench.client().keys("helper-0", IDENTITY)


def test_keys_past_their_last_moment(bench):
    bench.service.publisher.publish_keys("helper-0", configuration(0, 1))
    bench.client().keys("helper-0", IDENTITY)
    bench.show(away)
    bench.clock.seconds = NOW + 999
    assert bench.client().keys("helper-0", IDENTITY).sequence == 1
    bench.clock.seconds = NOW + 1000
    with pytest.raises(Expired):
        bench.client().keys("helper-0", IDENTITY)


@pytest.mark.parametrize(
    "address",
    [
        "file:///etc/passwd", "gopher://helper.example", "ftp://helper.example", "//helper.example", "helper",
        "https://user:password@helper.example", "https://helper.example/#fragment", "https://", "https://[",
    ],
)  # fmt: skip
def test_only_a_plain_address_of_http_is_taken_from_a_helper(bench, address):
    bench.service.publisher.publish_keys("helper-0", configuration(0, 1, address=address))
    with pytest.raises(StrangeAnswer, match=r"helper-0 has published the address .* to publish another"):
        bench.client().keys("helper-0", IDENTITY)
    # Its operator can mend it.
    bench.service.publisher.publish_keys("helper-0", configuration(0, 2))
    assert bench.client().keys("helper-0", IDENTITY).sequence == 2


LOCAL = [
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost", "a.LocalHost.", "0.0.0.0",
    "169.254.169.254", "[::1]", "[::]", "[fe80::1]", "[fe80::1%25eth0]", "[::ffff:127.0.0.1]",
]  # fmt: skip


@pytest.mark.parametrize("host", LOCAL)
def test_an_address_on_the_caller_s_machine_is_taken_only_from_a_service_there(bench, host, monkeypatch):
    bench.service.publisher.publish_keys("helper-0", configuration(0, 1, address=f"http://{host}:8080/"))
    with pytest.raises(StrangeAnswer, match="on this machine or its link, where the parameter service is"):
        bench.client().keys("helper-0", IDENTITY)
    for service in ("http://127.0.0.1:15000", "http://localhost:15000", "http://[::1]:15000"):
        client = bench.client()
        monkeypatch.setattr(client, "_url", service)
        assert client.keys("helper-0", IDENTITY).sequence == 1


@pytest.mark.parametrize("host", ["10.0.0.5", "128.0.0.1", "[2001:db8::1]", "localhost.example", "helper"])
def test_any_other_host_is_taken(bench, host):
    address = f"http://{host}:8080"
    bench.service.publisher.publish_keys("helper-0", configuration(0, 1, address=address))
    assert bench.client().keys("helper-0", IDENTITY).address == address


def test_a_bad_address_is_named(bench):
    with pytest.raises((StrangeAnswer, ServiceAway), match=r"address|reached"):
        remote.Remote("ht!tp://[").get("/health")


def test_what_the_service_did_not_sign_is_not_decoded(bench, monkeypatch):
    """A document may be made to cost a minute: nobody's is decoded before its signatures are verified."""
    bench.service.publish(make())
    bench.client().latest(ORIGIN)
    forged = chain.countersign(chain.sign(make(k=1), HELPER_KEYS[2]), HELPER_KEYS[2])
    decode = Mock(wraps=document.decode)
    monkeypatch.setattr(document, "decode", decode)
    bench.show(
        serving({"latest": forged.encode(), "": page_of([forged]), make(k=1).digest.hex(): forged.encode()})
    )
    with pytest.raises(BadSignature):
        bench.client().latest(ORIGIN)
    with pytest.raises(BadSignature):
        bench.client().by_digest(make(k=1).digest)
    assert call(forged.body) not in decode.mock_calls
