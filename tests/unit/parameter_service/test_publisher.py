"""What the service publishes and refuses, over a store that is closed and opened again in between."""

import sqlite3
import threading
from collections import Counter
from contextlib import closing
from dataclasses import replace
from unittest.mock import Mock, call

import pytest
from sqlalchemy.exc import IntegrityError

from maskedlark.clock import FixedClock
from maskedlark.errors import BadSignature, BrokenChain, Expired, Forked, InvalidDocument, RolledBack
from maskedlark.parameter_service.publisher import Publisher
from maskedlark.parameter_service.store import Store
from maskedlark.parameters import chain, document
from maskedlark.storage.engine import open_database
from maskedlark.web.errors import UnknownDocument, UnknownHelper, UnknownOrigin
from maskedlark.wire.errors import Truncated
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS, REQUEST_KEY, SERVICE_KEY, make
from tests.unit.web.service import NOW, ORIGIN, PINNED, Service, chained, configuration

FIRST, SECOND, THIRD = chained(3)
OTHER_SECOND = chained(1, FIRST, k=60)[0]


@pytest.fixture
def service(database_url):
    service = Service(database_url, FixedClock(NOW))
    yield service
    service.store.close()


def test_what_is_published_is_countersigned_and_found_every_way(service):
    stored = service.publish(FIRST)
    stored.published(SERVICE_KEY.verifying)
    with service.store.reading() as view:
        assert view.latest(ORIGIN) == view.version(ORIGIN, 1) == view.digest(FIRST.digest) == stored
        assert view.page(ORIGIN, 0).documents == (stored,)


def test_the_same_document_again_is_answered_with_the_stored_one(service):
    stored = service.publish(FIRST)
    service.publish(SECOND)
    assert service.publisher.publish(chain.sign(FIRST, DOCUMENT_KEY)) == (stored, False)
    with service.store.reading() as view:
        assert document.decode(view.latest(ORIGIN).body) == SECOND


STOLEN = chained(1, FIRST, request_key=HELPER_KEYS[2].verifying.public.hex())[0].encode()
"""What a thief of the request key would have the origin declare."""

REFUSED = {
    "a stranger's signature": (chain.sign(SECOND, HELPER_KEYS[0]), BadSignature),
    "the request key's signature": (
        chain.Signed(STOLEN, REQUEST_KEY.sign(chain.ORIGIN_LABEL, STOLEN)),
        BadSignature,
    ),
    "a skipped version": (chain.sign(THIRD, DOCUMENT_KEY), BrokenChain),
    "another history": (
        chain.sign(make(version=2, previous="00" * 32), DOCUMENT_KEY),
        BrokenChain,
    ),
    "a second first version": (chain.sign(make(k=99), DOCUMENT_KEY), Forked),
    "a replay with another signature": (replace(chain.sign(FIRST, HELPER_KEYS[0])), BadSignature),
    "an origin that nobody pinned": (chain.sign(make(origin="evil.example"), DOCUMENT_KEY), UnknownOrigin),
    "an end in the past": (
        chain.sign(chained(1, FIRST, not_after=NOW)[0], DOCUMENT_KEY),
        Expired,
    ),
    "bytes that are not canonical": (replace(chain.sign(SECOND, DOCUMENT_KEY), body=b"{}"), InvalidDocument),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_leaves_nothing(service, case):
    handed, error = REFUSED[case]
    before = service.publish(FIRST)
    with pytest.raises(error) as caught:
        service.publisher.publish(handed)
    assert type(caught.value) is error
    with service.store.reading() as view:
        assert view.page(ORIGIN, 0).documents == (before,)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_a_stranger_hands_in_is_not_decoded(service, version, monkeypatch):
    """To decode may cost a minute, and anyone may hand in anything."""
    service.publish(FIRST)
    handed = chain.sign(chained(version, k=60)[-1], HELPER_KEYS[0])
    decode = Mock(wraps=document.decode)
    monkeypatch.setattr(document, "decode", decode)
    with pytest.raises(BadSignature):
        service.publisher.publish(handed)
    assert call(handed.body) not in decode.mock_calls


def test_a_weak_key_is_not_published(service):
    service.publish(FIRST)
    with pytest.raises(InvalidDocument):
        service.publish(chained(1, FIRST, document_key="01" + "00" * 31)[0])


def test_the_chain_says_who_signs_next(service):
    new = HELPER_KEYS[2]
    turned = chained(1, FIRST, document_key=new.verifying.public.hex())[0]
    third = chained(1, turned, document_key=new.verifying.public.hex())[0]
    service.publish(FIRST)
    service.publish(turned)
    with pytest.raises(BadSignature):
        service.publish(third)
    service.publish(third, new)
    # Replayed, an old version is still checked with the key of its time.
    assert service.publisher.publish(chain.sign(turned, DOCUMENT_KEY))[1] is False


def test_of_many_at_once_exactly_one_gets_in(service):
    service.publish(FIRST)
    rivals = [chain.sign(chained(1, FIRST, k=60 + i)[0], DOCUMENT_KEY) for i in range(12)]
    outcomes: Counter[str] = Counter()
    ready = threading.Barrier(len(rivals))

    def run(handed):
        # A store of its own for each, as in processes of their own.
        store = Store(service.path)
        ready.wait()
        try:
            Publisher(store, SERVICE_KEY, FixedClock(NOW), PINNED).publish(handed)
            outcomes["published"] += 1
        except Forked:
            outcomes["refused"] += 1
        finally:
            store.close()

    threads = [threading.Thread(target=run, args=(handed,)) for handed in rivals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {"published": 1, "refused": 11}


def test_killed_between_write_and_answer(service):
    """The ad server got no answer. It asks again, of a service started anew, and gets the stored one."""
    stored = service.publish(FIRST)
    # No close: whatever the dead process had in memory is lost.
    reopened = Service(service.path, FixedClock(NOW + 5))
    assert reopened.publisher.publish(chain.sign(FIRST, DOCUMENT_KEY)) == (stored, False)
    reopened.publish(SECOND)
    with pytest.raises(Forked):
        reopened.publish(OTHER_SECOND)
    reopened.store.close()


def test_killed_before_the_write_was_committed(service):
    def killed():
        with service.store.writing() as view:
            view.add(FIRST, chain.countersign(chain.sign(FIRST, DOCUMENT_KEY), SERVICE_KEY), NOW)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        killed()
    reopened = Service(service.path, FixedClock(NOW))
    with reopened.store.reading() as view, pytest.raises(UnknownOrigin):
        view.latest(ORIGIN)
    reopened.store.close()


@pytest.mark.parametrize("table", ["documents", "key_configurations"])
@pytest.mark.parametrize("deed", ["UPDATE {} SET published_at = 9", "DELETE FROM {}"])
def test_the_database_itself_refuses_to_change_what_is_published(service, table, deed):
    service.publish(FIRST)
    service.publisher.publish_keys("helper-0", configuration(0, 5))
    with (
        closing(open_database(service.path)) as database,
        pytest.raises(IntegrityError),
        database.write() as connection,
    ):
        connection.exec_driver_sql(deed.format(table))


def test_a_path_names_an_sqlite_file(tmp_path):
    for where in (tmp_path / "odd ? name %41.db", str(tmp_path / "other.db")):
        Store(where).close()
    assert {each.name for each in tmp_path.glob("*.db")} == {"odd ? name %41.db", "other.db"}


def test_a_file_from_before_tables_had_versions_is_taken_as_it_is(tmp_path):
    service = Service(tmp_path / "old.db", FixedClock(NOW))
    stored = service.publish(FIRST)
    service.store.close()
    with closing(sqlite3.connect(tmp_path / "old.db", isolation_level=None)) as connection:
        connection.execute("DROP TABLE maskedlark_schema")
    service = Service(tmp_path / "old.db", FixedClock(NOW))
    assert service.publisher.publish(chain.sign(FIRST, DOCUMENT_KEY)) == (stored, False)
    service.store.close()


def test_a_helper_s_keys_only_move_on(service):
    publish = service.publisher.publish_keys
    assert publish("helper-0", configuration(0, 5)) is True
    assert publish("helper-0", configuration(0, 5)) is False
    with pytest.raises(RolledBack):
        publish("helper-0", configuration(0, 4))
    with pytest.raises(Forked, match="higher one"):
        publish("helper-0", configuration(0, 5, seed=b"others"))
    assert publish("helper-0", configuration(0, 6)) is True
    with service.store.reading() as view:
        assert view.keys("helper-0") == (configuration(0, 6), 6)


def test_only_a_pinned_helper_publishes_keys_and_only_its_own(service):
    publish = service.publisher.publish_keys
    with pytest.raises(UnknownHelper):
        publish("helper-2", configuration(2, 1))
    with pytest.raises(BadSignature):
        publish("helper-0", configuration(1, 1))
    with pytest.raises(Truncated):
        publish("helper-0", b"")
    with service.store.reading() as view, pytest.raises(UnknownHelper):
        view.keys("helper-0")


def test_what_is_not_there_is_named(service):
    service.publish(FIRST)
    with service.store.reading() as view:
        with pytest.raises(UnknownDocument, match="version 2"):
            view.version(ORIGIN, 2)
        with pytest.raises(UnknownDocument, match="digest"):
            view.digest(bytes(32))
        with pytest.raises(UnknownOrigin):
            view.page("other.example", 0)
        assert view.page(ORIGIN, 1).documents == ()
