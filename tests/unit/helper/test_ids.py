"""Claimed ids: found again in runs of any size, after a restart, and by others who share the database."""

from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import insert

from maskedlark.core.sharing import ID_BYTES
from maskedlark.helper import ids as room
from maskedlark.helper.ids import Ids
from maskedlark.helper.tables import CHUNKS, DATASETS
from maskedlark.randomness import FixedRandomness
from maskedlark.storage.engine import Database, open_database


class Desk:
    """Claims and frees as a helper does, and keeps what is true in a Python set."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database, self.folder, self.ids = database, folder, Ids(database, folder)
        with database.write() as connection:
            row = {
                "number": 1,
                "origin": "a",
                "name": "a",
                "attempt": b"",
                "purpose": "train",
                "parameters": b"",
                "document": b"",
            }
            database.insert_new(connection, DATASETS, [_row(row)])
        self.taken(rows(0, 1))  # Nobody claims who has not looked.

    def taken(self, ids: np.ndarray) -> list[bool]:
        with self.database.write() as connection:
            found: list[bool] = self.ids.are_claimed(connection, self.ids.lock(connection), ids).tolist()
        return found

    def claim(self, number: int, ids: np.ndarray, tell: bool = True) -> None:
        with self.database.write() as connection:
            cursor = self.ids.lock(connection)
            claim = self.ids.claim(connection, cursor)
            chunk = {
                "dataset": 1,
                "number": number,
                "claim": claim,
                "expires": number,
                "body": b"",
                "parts": 1,
            }
            more = {"accepted": b"", "refused": "", "file": "", "ids": ids.tobytes()}
            connection.execute(insert(CHUNKS).values(chunk | more))
        if tell:
            self.ids.claimed(cursor, ids)

    def free(self, number: int, ids: np.ndarray, tell: bool = True) -> None:
        with self.database.write() as connection:
            freed = self.ids.free(connection, self.ids.lock(connection), ids)
            connection.execute(CHUNKS.delete().where(CHUNKS.c.number == number))
        if tell:
            self.ids.freed(freed, ids)


def _row(given: dict[str, object]) -> tuple[object, ...]:
    return tuple({"state": "open", "expires": 0, **given}.get(column.name) for column in DATASETS.columns)


@pytest.fixture
def desk(tmp_path, database_url):
    database = open_database(database_url)
    yield Desk(database, tmp_path)
    database.close()


def rows(seed: int, count: int) -> np.ndarray:
    """Ids of which some end, and some begin, with zeros."""
    made = np.frombuffer(FixedRandomness(seed.to_bytes(4, "big")).bytes(ID_BYTES * count), np.uint8)
    made = made.reshape(count, ID_BYTES).copy()
    made[::3, -3:] = 0
    made[1::3, :2] = 0
    return made


def test_ids_are_found_in_runs_of_every_size(desk, monkeypatch):
    monkeypatch.setattr(room, "MAPPED", 100)
    for number in range(70):
        desk.claim(number, rows(number, 3))
    assert len(desk.ids._runs) < 24, "runs are merged"
    assert any(isinstance(run, np.memmap) for run in desk.ids._runs), "long ones are in files"
    assert list(desk.folder.glob("tmp*")) == [], "which have no name"
    for number in range(70):
        assert all(desk.taken(rows(number, 3)))
    assert not any(desk.taken(rows(1000, 50)))


def test_the_first_of_two_counts(desk):
    ids = rows(1, 4)
    assert desk.taken(np.concatenate([ids, ids[2:]])) == [False] * 4 + [True] * 2


@pytest.mark.parametrize("tell", [True, False])
def test_freed_ids_can_be_claimed_again(desk, tell):
    for number in range(3):
        desk.claim(number, rows(number, 6), tell)
    desk.free(1, rows(1, 6), tell)
    assert [any(desk.taken(rows(number, 6))) for number in range(3)] == [True, False, True]
    desk.claim(9, rows(1, 6), tell)
    assert all(desk.taken(rows(1, 6)))


def test_others_who_share_the_database_are_heard(desk, tmp_path):
    other = Desk(desk.database, tmp_path)
    desk.claim(0, rows(0, 5))
    assert all(other.taken(rows(0, 5)))
    other.claim(1, rows(1, 5))
    desk.claim(2, rows(2, 5))  # Told without having heard of the claim before it.
    assert all(desk.taken(np.concatenate([rows(0, 5), rows(1, 5), rows(2, 5)])))
    other.free(0, rows(0, 5))
    assert not any(desk.taken(rows(0, 5)))
    desk.claim(3, rows(0, 5))
    other.ids.freed(1, rows(0, 5))  # Late news of what is claimed again.
    assert all(other.taken(rows(0, 5)))


def test_pruning_keeps_the_watermark_for_good(desk, tmp_path):
    for number in (10, 20):
        desk.claim(number, rows(number, 4))
    desk.ids.prune(10)
    assert not any(desk.taken(rows(10, 4)))
    assert all(desk.taken(rows(20, 4)))
    desk.ids.prune(5)
    assert desk.ids.watermark() == Ids(desk.database, tmp_path).watermark() == 10


def test_to_free_a_few_leaves_long_runs_where_they_are(desk, monkeypatch):
    monkeypatch.setattr(room, "MAPPED", 100)
    for number in range(16):
        desk.claim(number, rows(number, 20))
    before = [*desk.ids._runs]
    assert any(isinstance(run, np.memmap) for run in before)
    desk.free(3, rows(3, 20))
    assert all(now is then for now, then in zip(desk.ids._runs, before, strict=True))
    assert not any(desk.taken(rows(3, 20)))
    assert all(desk.taken(rows(4, 20)))
    for number in range(4, 13):
        desk.free(number, rows(number, 20))
    assert sum(map(len, desk.ids._runs)) == 140, "when half of them are gone, they go"
    assert [any(desk.taken(rows(number, 20))) for number in range(16)] == [True] * 3 + [False] * 10 + [
        True
    ] * 3


@pytest.mark.parametrize("seed", range(3))
def test_claims_and_frees_in_any_order(desk, monkeypatch, seed):
    monkeypatch.setattr(room, "MAPPED", 20)
    rng = np.random.default_rng(seed)
    held: set[int] = set()
    for _ in range(60):
        number = int(rng.integers(8))
        tell = bool(rng.integers(4))
        if number in held:
            desk.free(number, rows(number, 6), tell)
            held.remove(number)
        else:
            desk.claim(number, rows(number, 6), tell)
            held.add(number)
        assert {each for each in range(8) if any(desk.taken(rows(each, 6)))} == held
        assert {each for each in range(8) if all(desk.taken(rows(each, 6)))} == held


def test_what_was_freed_before_its_claim_is_told_stays_free(desk):
    """The one who claimed is slow to say so, and meanwhile the dataset is aborted."""
    with desk.database.write() as connection:
        late = desk.ids.lock(connection)
    desk.claim(1, rows(1, 5), tell=False)
    desk.free(1, rows(1, 5))
    desk.ids.claimed(late, rows(1, 5))
    assert not any(desk.taken(rows(1, 5)))


def test_pruning_tells_what_was_pruned(desk, monkeypatch):
    monkeypatch.setattr(room, "FREED", 2)
    for number in range(12):
        desk.claim(number, rows(number, 4))
    assert all(desk.taken(rows(11, 4)))
    monkeypatch.setattr(desk.ids, "_add", lambda *_: pytest.fail("all ids are read again"))
    desk.ids.prune(4)
    assert [any(desk.taken(rows(number, 4))) for number in range(12)] == [False] * 5 + [True] * 7
