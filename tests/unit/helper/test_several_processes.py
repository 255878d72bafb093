"""Two helpers' processes on one folder and one database: neither takes away what the other is writing.

Each `helper` here has nothing in memory of the other, as two processes have. Real ones are killed in
tests/simulation/test_several.py.
"""

import threading

import pytest

from maskedlark.core.purpose import Purpose
from maskedlark.helper import freezing
from maskedlark.helper.errors import Busy
from maskedlark.release.kept_answers import KeptAnswers
from tests.unit.helper.cases import DOCUMENT, LIFETIME, NAME, ORIGIN, agreed, helper, measured

REQUEST, ASKED, LATE = b"r" * 16, b"a" * 32, 1 << 40


@pytest.fixture
def two(tmp_path, postgresql_url):
    with helper(tmp_path, postgresql_url) as one, helper(tmp_path, postgresql_url) as other:
        one.datasets.open(DOCUMENT, NAME, Purpose.AGGREGATE)
        yield one.datasets, other.datasets


def test_a_chunk_that_one_is_writing_is_not_swept_by_another(two, monkeypatch):
    one, other = two
    reports = measured(20)
    claim = one._ingest._claim

    def swept_meanwhile(*arguments):
        other.forget()  # As every process does at its start, and every hour.
        return claim(*arguments)

    monkeypatch.setattr(one._ingest, "_claim", swept_meanwhile)
    one.add(ORIGIN, NAME, 0, reports.chunk(0))
    assert other.freeze(ORIGIN, NAME, agreed(one, chunks=1)).records == 20


def test_columns_that_one_is_writing_are_not_swept_by_another(two, monkeypatch):
    one, other = two
    one.add(ORIGIN, NAME, 0, measured(20).chunk(0))
    merge = freezing.merge

    def swept_meanwhile(*arguments):
        made = merge(*arguments)
        other.forget()
        return made

    monkeypatch.setattr(freezing, "merge", swept_meanwhile)
    frozen = one.freeze(ORIGIN, NAME, agreed(one, chunks=1))
    assert len(other.find(ORIGIN, bytes.fromhex(frozen.digest)).records(None).ids) == 20


def test_while_one_freezes_another_neither_freezes_nor_aborts(two, monkeypatch):
    one, other = two
    one.add(ORIGIN, NAME, 0, measured(20).chunk(0))
    wanted, merge, refused = agreed(one, chunks=1), freezing.merge, []

    def interrupted(*arguments):
        for tried in (
            lambda: other.freeze(ORIGIN, NAME, wanted),
            lambda: other.abort(ORIGIN, NAME),
        ):
            with pytest.raises(Busy):
                tried()
            refused.append(tried)
        return merge(*arguments)

    monkeypatch.setattr(freezing, "merge", interrupted)
    frozen = one.freeze(ORIGIN, NAME, wanted)
    monkeypatch.undo()
    assert len(refused) == 2
    assert other.freeze(ORIGIN, NAME, wanted) == frozen


def test_what_one_has_expired_no_other_answers(tmp_path, postgresql_url):
    with helper(tmp_path, postgresql_url) as one, helper(tmp_path, postgresql_url) as other:
        one.datasets.open(DOCUMENT, NAME, Purpose.AGGREGATE)
        one.datasets.add(ORIGIN, NAME, 0, measured(20).chunk(0))
        digest = bytes.fromhex(one.datasets.freeze(ORIGIN, NAME, agreed(one.datasets, chunks=1)).digest)
        expires = other.datasets.find(ORIGIN, digest).expires  # It is in its memory now.
        assert expires <= one.clock.now() + LIFETIME + 3600
        ticking = iter([expires - 1, expires, expires])  # A second passes between two looks at the clock.
        one.clock.now = lambda: next(ticking, expires)  # type: ignore[method-assign]
        one.datasets.forget()
        one.clock.now = lambda: expires - 1  # type: ignore[method-assign]
        other.datasets.find(ORIGIN, digest).records(None)


def test_an_answer_that_one_computes_is_not_computed_by_another(tmp_path):
    one, computed = KeptAnswers(tmp_path), []
    inside = threading.Barrier(2)

    def answer(kept, wait):
        with kept.room(ORIGIN, REQUEST, 10) as room:
            if wait:
                inside.wait(60)
            if kept.read(ORIGIN, REQUEST, ASKED) is None:
                computed.append(kept)
                kept.write(room, ORIGIN, REQUEST, ASKED, b"answer", LATE)

    first = threading.Thread(target=answer, args=(one, True))
    first.start()
    inside.wait(60)
    # A process starts and asks while the first computes. Neither its start nor its question is in the way.
    answer(KeptAnswers(tmp_path), False)
    first.join(60)
    assert computed == [one]
    assert KeptAnswers(tmp_path).read(ORIGIN, REQUEST, ASKED) == b"answer"
