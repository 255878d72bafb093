"""Answers that are kept: read as they were written, or not at all."""

import threading

import pytest

from maskedlark.release.kept_answers import KeptAnswers
from maskedlark.storage.errors import StorageUnavailable

ORIGIN, REQUEST, ASKED, LATE = "ads.example", b"r" * 16, b"a" * 32, 1 << 40


def write(kept, request, asked, answer, expires=LATE, origin=ORIGIN):
    with kept.room(origin, request, len(answer)) as room:
        kept.write(room, origin, request, asked, answer, expires)


def test_an_answer_is_found_by_who_asked_and_what(tmp_path):
    kept = KeptAnswers(tmp_path / "answers")
    assert kept.read(ORIGIN, REQUEST, ASKED) is None
    write(kept, REQUEST, ASKED, b"answer", LATE)
    assert kept.read(ORIGIN, REQUEST, ASKED) == KeptAnswers(tmp_path / "answers").read(ORIGIN, REQUEST, ASKED)
    assert kept.read(ORIGIN, REQUEST, ASKED) == b"answer"
    assert kept.read("other.example", REQUEST, ASKED) is None
    assert kept.read(ORIGIN, b"s" * 16, ASKED) is None
    assert kept.read(ORIGIN, REQUEST, b"b" * 32) is None
    write(kept, REQUEST, b"b" * 32, b"", LATE)
    assert kept.read(ORIGIN, REQUEST, ASKED) is None
    assert kept.read(ORIGIN, REQUEST, b"b" * 32) == b""
    kept.remove(ORIGIN, REQUEST)
    kept.remove(ORIGIN, REQUEST)
    assert kept.read(ORIGIN, REQUEST, b"b" * 32) is None


def test_an_answer_that_is_being_computed_is_removed_afterwards(tmp_path):
    """The session is closed while its last step is computed: nothing of it stays."""
    kept = KeptAnswers(tmp_path / "answers")
    with kept.room(ORIGIN, REQUEST, 6) as room:
        closing = threading.Thread(target=kept.remove, args=(ORIGIN, REQUEST))
        closing.start()
        closing.join(0.1)
        assert closing.is_alive()
        kept.write(room, ORIGIN, REQUEST, ASKED, b"answer", LATE)
    closing.join(60)
    assert kept.read(ORIGIN, REQUEST, ASKED) is None


def test_every_damaged_byte_makes_it_no_answer(tmp_path):
    kept = KeptAnswers(tmp_path)
    write(kept, REQUEST, ASKED, b"answer", LATE)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for place in range(8, len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert kept.read(ORIGIN, REQUEST, ASKED) is None
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert kept.read(ORIGIN, REQUEST, ASKED) is None
    assert path.stat().st_mode & 0o077 == 0


def test_what_is_past_its_time_goes_and_what_was_not_finished(tmp_path):
    kept = KeptAnswers(tmp_path)
    write(kept, REQUEST, ASKED, b"old", 100)
    write(kept, b"s" * 16, ASKED, b"new", 101)
    (tmp_path / "broken").write_bytes(b"x")
    kept.expire(100)
    assert kept.read(ORIGIN, REQUEST, ASKED) is None
    assert kept.read(ORIGIN, b"s" * 16, ASKED) == b"new"
    assert len(list(tmp_path.iterdir())) == 1
    (tmp_path / ".writing-1").write_bytes(b"half")
    KeptAnswers(tmp_path).expire(100)
    assert len(list(tmp_path.iterdir())) == 1


def test_one_at_a_time_for_a_request(tmp_path):
    kept, inside = KeptAnswers(tmp_path), []

    def work():
        with kept.room(ORIGIN, REQUEST, 10):
            inside.append(1)
            assert len(inside) == 1
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def test_room_is_made_before_anything_is_done(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    with (
        pytest.raises(StorageUnavailable, match="nothing was computed"),
        KeptAnswers(tmp_path / "file").room(ORIGIN, REQUEST, 6),
    ):
        pytest.fail("there is no room")

    def full(*_):
        raise OSError(28, "no space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    kept = KeptAnswers(tmp_path / "answers")
    with pytest.raises(StorageUnavailable), kept.room(ORIGIN, REQUEST, 6):
        pytest.fail("there is no room")
    assert not list((tmp_path / "answers").iterdir())


def test_room_that_is_not_used_is_given_back(tmp_path):
    kept = KeptAnswers(tmp_path)
    with kept.room(ORIGIN, REQUEST, 1000) as room:
        assert room.stat().st_size > 1000
    assert not list(tmp_path.iterdir())
    with pytest.raises(ZeroDivisionError), kept.room(ORIGIN, REQUEST, 1000):
        1 / 0  # noqa: B018
    assert not list(tmp_path.iterdir())


def test_an_answer_shorter_than_its_room_is_read_as_it_is(tmp_path):
    kept = KeptAnswers(tmp_path)
    with kept.room(ORIGIN, REQUEST, 1000) as room:
        kept.write(room, ORIGIN, REQUEST, ASKED, b"short", LATE)
    assert kept.read(ORIGIN, REQUEST, ASKED) == b"short"
