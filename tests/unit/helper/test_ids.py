"""Claimed ids: found again in runs of any size, after a restart, and by others who share the database."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import insert

from maskedlark.core.sharing import ID_BYTES
from maskedlark.core.sorted_runs import merged
from maskedlark.helper import id_runs
from maskedlark.helper import ids as room
from maskedlark.helper.ids import Ids
from maskedlark.helper.tables import CHUNKS, DATASETS
from maskedlark.randomness import FixedRandomness
from maskedlark.storage.engine import Database, open_database


class ClaimedIds:
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
def claimed(tmp_path, database_url):
    database = open_database(database_url)
    yield ClaimedIds(database, tmp_path)
    database.close()


def rows(seed: int, count: int) -> np.ndarray:
    """Ids of which some end, and some begin, with zeros."""
    made = np.frombuffer(FixedRandomness(seed.to_bytes(4, "big")).bytes(ID_BYTES * count), np.uint8)
    made = made.reshape(count, ID_BYTES).copy()
    made[::3, -3:] = 0
    made[1::3, :2] = 0
    return made


def test_ids_are_found_in_runs_of_every_size(claimed, monkeypatch):
    monkeypatch.setattr(id_runs, "MAPPED", 100)
    for number in range(70):
        claimed.claim(number, rows(number, 3))
    assert len(claimed.ids._claimed.runs) < 24, "runs are merged"
    assert any(isinstance(run, np.memmap) for run in claimed.ids._claimed.runs), "long ones are in files"
    assert list(claimed.folder.glob("tmp*")) == [], "which have no name"
    for number in range(70):
        assert all(claimed.taken(rows(number, 3)))
    assert not any(claimed.taken(rows(1000, 50)))


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.binary(min_size=2, max_size=2), max_size=40), min_size=1, max_size=8),
    st.integers(1, 60),
)
def test_runs_merged_in_blocks_are_those_that_are_sorted_at_once(given_runs, block):
    """Few different ids, of which many end with zeros, or are in several runs."""
    parts = [b"".join(each + bytes(ID_BYTES - 2) for each in run) for run in given_runs]
    runs = [np.sort(id_runs.names(np.frombuffer(each, np.uint8).reshape(-1, ID_BYTES))) for each in parts]
    pieces = [*merged(runs, block)]
    whole = np.sort(np.concatenate(runs), kind="stable")
    assert np.concatenate([*pieces, runs[0][:0]]).tobytes() == whole.tobytes()
    assert all(len(each) for each in pieces)
    assert len(pieces) <= sum(-(-len(run) // max(1, len(run) * block // max(1, len(whole)))) for run in runs)


def test_chunks_without_ids_add_nothing(tmp_path):
    """Many schedules found it: eight chunks in a row of which all reports were refused."""
    found, few = id_runs.IdRuns(tmp_path), id_runs.names(rows(1, 2))
    for _ in range(2 * id_runs.MERGED):
        found.add(few[:0])
    found.add(few)
    assert (len(found), found.among(few).tolist()) == (2, [True, True])
    found.remove(found)
    assert found.runs == []


@pytest.mark.parametrize("mapped", [1, 1000])
def test_a_set_of_runs_is_a_set(tmp_path, monkeypatch, mapped):
    monkeypatch.setattr(id_runs, "MAPPED", mapped)
    monkeypatch.setattr(id_runs, "BLOCK", 7)
    found, gone, others = (id_runs.IdRuns(tmp_path) for _ in range(3))
    for number in range(40):
        found.add(id_runs.names(rows(number, 5)))
    for number in range(0, 40, 3):
        gone.add(id_runs.names(rows(number, 5)))
    others.add(id_runs.names(rows(1000, 5)))
    before = [*found.runs]
    found.remove(others)
    assert all(now is then for now, then in zip(found.runs, before, strict=True)), "nothing to remove"
    found.remove(gone)
    there = [found.among(id_runs.names(rows(number, 5))).tolist() for number in range(40)]
    assert there == [[number % 3 > 0] * 5 for number in range(40)]
    assert len(found) == 5 * 26
    found.remove(found)
    assert len(found) == 0


def test_the_first_of_two_counts(claimed):
    ids = rows(1, 4)
    assert claimed.taken(np.concatenate([ids, ids[2:]])) == [False] * 4 + [True] * 2


@pytest.mark.parametrize("tell", [True, False])
def test_freed_ids_can_be_claimed_again(claimed, tell):
    for number in range(3):
        claimed.claim(number, rows(number, 6), tell)
    claimed.free(1, rows(1, 6), tell)
    assert [any(claimed.taken(rows(number, 6))) for number in range(3)] == [True, False, True]
    claimed.claim(9, rows(1, 6), tell)
    assert all(claimed.taken(rows(1, 6)))


def test_others_who_share_the_database_are_heard(claimed, tmp_path):
    other = ClaimedIds(claimed.database, tmp_path)
    claimed.claim(0, rows(0, 5))
    assert all(other.taken(rows(0, 5)))
    other.claim(1, rows(1, 5))
    claimed.claim(2, rows(2, 5))  # Told without having heard of the claim before it.
    assert all(claimed.taken(np.concatenate([rows(0, 5), rows(1, 5), rows(2, 5)])))
    other.free(0, rows(0, 5))
    assert not any(claimed.taken(rows(0, 5)))
    claimed.claim(3, rows(0, 5))
    other.ids.freed(1, rows(0, 5))  # Late news of what is claimed again.
    assert all(other.taken(rows(0, 5)))


def test_pruning_keeps_the_watermark_for_good(claimed, tmp_path):
    for number in (10, 20):
        claimed.claim(number, rows(number, 4))
    claimed.ids.prune(10)
    assert not any(claimed.taken(rows(10, 4)))
    assert all(claimed.taken(rows(20, 4)))
    claimed.ids.prune(5)
    assert claimed.ids.watermark() == Ids(claimed.database, tmp_path).watermark() == 10


def test_to_free_a_few_leaves_long_runs_where_they_are(claimed, monkeypatch):
    monkeypatch.setattr(id_runs, "MAPPED", 100)
    for number in range(16):
        claimed.claim(number, rows(number, 20))
    before = [*claimed.ids._claimed.runs]
    assert any(isinstance(run, np.memmap) for run in before)
    claimed.free(3, rows(3, 20))
    assert all(now is then for now, then in zip(claimed.ids._claimed.runs, before, strict=True))
    assert not any(claimed.taken(rows(3, 20)))
    assert all(claimed.taken(rows(4, 20)))
    for number in range(4, 13):
        claimed.free(number, rows(number, 20))
    assert sum(map(len, claimed.ids._claimed.runs)) == 140, "when half of them are gone, they go"
    assert [any(claimed.taken(rows(number, 20))) for number in range(16)] == [True] * 3 + [False] * 10 + [
        True
    ] * 3


@pytest.mark.parametrize("seed", range(3))
def test_claims_and_frees_in_any_order(claimed, monkeypatch, seed):
    monkeypatch.setattr(id_runs, "MAPPED", 20)
    rng = np.random.default_rng(seed)
    held: set[int] = set()
    for _ in range(60):
        number = int(rng.integers(8))
        tell = bool(rng.integers(4))
        if number in held:
            claimed.free(number, rows(number, 6), tell)
            held.remove(number)
        else:
            claimed.claim(number, rows(number, 6), tell)
            held.add(number)
        assert {each for each in range(8) if any(claimed.taken(rows(each, 6)))} == held
        assert {each for each in range(8) if all(claimed.taken(rows(each, 6)))} == held


def test_what_was_freed_before_its_claim_is_told_stays_free(claimed):
    """The one who claimed is slow to say so, and meanwhile the dataset is aborted."""
    with claimed.database.write() as connection:
        late = claimed.ids.lock(connection)
    claimed.claim(1, rows(1, 5), tell=False)
    claimed.free(1, rows(1, 5))
    claimed.ids.claimed(late, rows(1, 5))
    assert not any(claimed.taken(rows(1, 5)))


def test_pruning_tells_what_was_pruned(claimed, monkeypatch):
    monkeypatch.setattr(room, "FREED", 2)
    for number in range(12):
        claimed.claim(number, rows(number, 4))
    assert all(claimed.taken(rows(11, 4)))
    monkeypatch.setattr(claimed.ids, "_add", lambda *_: pytest.fail("all ids are read again"))
    claimed.ids.prune(4)
    assert [any(claimed.taken(rows(number, 4))) for number in range(12)] == [False] * 5 + [True] * 7
