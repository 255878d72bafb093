"""A dataset from its first chunk to its end, at one helper and at two, whatever happens in between."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from maskedlark.core import field, sharing
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import AggregateRecords, TrainingRecords
from maskedlark.errors import Expired, WrongLength
from maskedlark.helper import chunk_file, sharding
from maskedlark.helper.datasets import ABORTED_S
from maskedlark.helper.errors import Busy, DamagedDataset
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web.errors import (
    AlreadyFrozen,
    ChunkConflict,
    ChunksMissing,
    DatasetConflict,
    FreezeMismatch,
    NotAccepted,
    TooFewToFreeze,
    UnknownChunk,
    UnknownDataset,
)
from maskedlark.web.request_signature import WINDOW_S
from maskedlark.wire.acceptance import MIN_LIFE_S
from maskedlark.wire.datasets import FreezeRequest, pack, unpack
from maskedlark.wire.decrypt import ids_of
from maskedlark.wire.errors import OutOfRange
from tests.unit.helper import cases, dying
from tests.unit.helper.cases import DOCUMENT, HOUR, LIFETIME, NAME, NOW, ORIGIN, agreed, helper, measured
from tests.unit.parameters.cases import make

AGGREGATE = Purpose.AGGREGATE


def sums(datasets, digest: str) -> np.ndarray:
    """A helper's share of count and values over all records, straight from the columns."""
    records = datasets.find(ORIGIN, bytes.fromhex(digest)).records(None)
    return field.total(np.ascontiguousarray(records.shares))


def freeze_all(datasets, chunks: int, name: str = NAME):
    return datasets.freeze(ORIGIN, name, agreed(datasets, chunks=chunks, name=name))


def filled(datasets, reports, name: str = NAME, place: int = 0) -> None:
    datasets.open(DOCUMENT, name, AGGREGATE)
    datasets.add(ORIGIN, name, 0, reports.chunk(place))


def test_two_helpers_freeze_the_same_and_their_shares_add_up(tmp_path, database_url):
    reports = measured(30)
    other = f"sqlite:///{tmp_path / 'other.db'}"
    with helper(tmp_path / "0", database_url) as (a, _, _), helper(tmp_path / "1", other, 1) as (b, _, _):
        for place, datasets in enumerate((a, b)):
            datasets.open(DOCUMENT, NAME, AGGREGATE)
            for number in range(3):
                answer = datasets.add(
                    ORIGIN, NAME, number, reports.chunk(place, 10 * number, 10 * number + 10)
                )
                assert (answer.parts, answer.refused) == (10, {})
        frozen = a.freeze(ORIGIN, NAME, agreed(a, b, chunks=3))
        same = b.freeze(
            ORIGIN, NAME, FreezeRequest(accepted=agreed(a, b, chunks=3).accepted, digest=frozen.digest)
        )
        assert (same.digest, same.records) == (frozen.digest, frozen.records)
        assert frozen.records == 30
        total = field.to_signed(field.add(sums(a, frozen.digest), sums(b, frozen.digest)))
        assert total.tolist() == [30, *reports.values.sum(axis=1)]
        records = a.find(ORIGIN, bytes.fromhex(frozen.digest)).records(None)
        assert isinstance(records, AggregateRecords)
        ids = [head.tobytes() for head in ids_of(reports.layout.heads(reports.data))]
        order = sorted(range(30), key=ids.__getitem__)
        assert records.ids.tobytes() == b"".join(sorted(ids))
        for name, truth in zip(("campaign", "place"), reports.keys, strict=True):
            coded = records.keys[name]
            assert [coded.entries[code] for code in coded.codes] == [truth[place] for place in order]
        assert a.state(ORIGIN, NAME).state == "frozen"
        assert a.state(ORIGIN, NAME).records == 30


def test_records_to_train_by_tag(tmp_path, sqlite_url):
    document = make(
        models=[
            {
                "tag": "clicks",
                "columns": [{"kind": "bytes", "count": 4}],
                "labels": [{"kind": "binary"}],
                "gradient_bound": 1.0,
            },
            {
                "tag": "basket",
                "columns": [{"kind": "bytes", "count": 2}],
                "candidates": "pair",
                "labels": [{"kind": "reals", "value": "purchase", "low": 0, "high": 100, "buckets": 10}],
                "gradient_bound": 2.0,
            },
        ],
        k=1,
    )
    clicks, features, masks = cases.trained("clicks", 9, document)
    baskets, bytes_, secrets = cases.trained("basket", 5, document)
    layout = document.layout(Purpose.TRAIN)
    mixed = [*clicks[:4], *baskets[:1], *clicks[4:]], baskets[1:]
    other = f"sqlite:///{tmp_path / 'other.db'}"
    with helper(tmp_path / "0", sqlite_url) as (a, _, _), helper(tmp_path / "1", other, 1) as (b, _, _):
        found = []
        for place, datasets in enumerate((a, b)):
            datasets.open(document, NAME, Purpose.TRAIN)
            for number, data in enumerate(mixed):
                assert datasets.add(ORIGIN, NAME, number, cases.parts(data, place, layout)).refused == {}
        wanted = agreed(a, b, chunks=2)
        # The first click is left out, as if another helper had refused it; so is the lone basket.
        bits = unpack(wanted.accepted[0], 10)
        bits[[0, 4]] = False
        wanted = FreezeRequest(accepted=(pack(bits), wanted.accepted[1]))
        for datasets in (a, b):
            frozen = datasets.freeze(ORIGIN, NAME, wanted)
            found.append(datasets.find(ORIGIN, bytes.fromhex(frozen.digest)))
        assert [found[0].size(tag) for tag in ("clicks", "basket", None)] == [8, 4, 0]
        for tag, made, shown, truth in (
            ("clicks", clicks, features, masks),
            ("basket", baskets, bytes_, secrets),
        ):
            first, second = (each.records(tag) for each in found)
            assert isinstance(first, TrainingRecords)
            ids = [head.tobytes() for head in ids_of(layout.heads(made))]
            order = sorted(range(1, len(made)), key=ids.__getitem__)
            assert first.ids.tobytes() == second.ids.tobytes() == b"".join(ids[place] for place in order)
            assert np.array_equal(first.features, shown[order])
            assert np.array_equal(field.add(first.shares, second.shares), truth[order])
            assert first.masks(0).shape == first.shares.shape
            assert first.candidates[0].shape == ((1, 2) if tag == "clicks" else (4, 2))


def test_a_chunk_is_done_once(tmp_path, database_url):
    reports = measured(8)
    with helper(tmp_path, database_url) as (datasets, _, _):
        datasets.open(DOCUMENT, NAME, AGGREGATE)
        body = reports.chunk(0)
        with ThreadPoolExecutor(4) as threads:
            answers = [*threads.map(lambda _: datasets.add(ORIGIN, NAME, 0, body), range(4))]
        assert {answer.encode() for answer in answers} == {datasets.chunk(ORIGIN, NAME, 0).encode()}
        assert answers[0].refused == {}
        with pytest.raises(ChunkConflict):
            datasets.add(ORIGIN, NAME, 0, reports.chunk(0, 1))
        state = datasets.state(ORIGIN, NAME)
        assert (state.chunks, state.received, state.accepted) == ((0,), 8, 8)
        assert len([*(tmp_path / "columns" / "1").iterdir()]) == 1, "who came second leaves no file"
        with pytest.raises(UnknownChunk):
            datasets.chunk(ORIGIN, NAME, 1)
        with pytest.raises(OutOfRange):
            datasets.add(ORIGIN, NAME, 1 << 16, body)
    with helper(tmp_path, database_url) as (datasets, _, _):
        assert datasets.add(ORIGIN, NAME, 0, body) == answers[0]


def test_a_report_lives_in_one_dataset(tmp_path, database_url):
    reports = measured(12)
    with helper(tmp_path, database_url) as (datasets, _, _):
        datasets.open(DOCUMENT, NAME, AGGREGATE)
        datasets.open(DOCUMENT, "april", AGGREGATE)
        twice = cases.parts([*reports.data[:4], reports.data[0]], 0, reports.layout)
        answer = datasets.add(ORIGIN, NAME, 0, twice)
        assert (answer.accepted, answer.refused) == ("f0", {"Replayed": 1}), "the first of two counts"
        assert datasets.add(ORIGIN, NAME, 1, reports.chunk(0, 3, 6)).refused == {"Replayed": 1}
    # Another helper process, which has only the database to know it from.
    with helper(tmp_path, database_url) as (datasets, _, _):
        answer = datasets.add(ORIGIN, "april", 0, reports.chunk(0))
        assert answer.refused == {"Replayed": 6}
        assert unpack(answer.accepted, 12).tolist() == [False] * 6 + [True] * 6


def test_what_is_refused_is_counted_and_freezing_needs_what_all_accepted(tmp_path, sqlite_url):
    reports = measured(6)
    damaged = bytearray(reports.chunk(0))
    damaged[-1] ^= 1
    with helper(tmp_path, sqlite_url) as (datasets, _, _):
        datasets.open(DOCUMENT, NAME, AGGREGATE)
        answer = datasets.add(ORIGIN, NAME, 0, bytes(damaged))
        assert (answer.accepted, answer.refused) == ("f8", {"CannotOpen": 1})
        for accepted, error in [
            ((), ChunksMissing),
            (("f8", "80"), ChunksMissing),
            (("fc",), NotAccepted),
            (("f8f8",), WrongLength),
            (("00",), TooFewToFreeze),
        ]:
            with pytest.raises(error):
                datasets.freeze(ORIGIN, NAME, FreezeRequest(accepted=accepted))
        with pytest.raises(FreezeMismatch):
            datasets.freeze(ORIGIN, NAME, FreezeRequest(accepted=("f8",), digest="00" * 32))
        datasets.add(ORIGIN, NAME, 2, measured(1).chunk(0))
        with pytest.raises(ChunksMissing):
            datasets.freeze(ORIGIN, NAME, FreezeRequest(accepted=("f8", "80")))
        assert datasets.state(ORIGIN, NAME).state == "open"
        names = {path.name[:6] for path in (tmp_path / "columns" / "1").iterdir()}
        assert names == {"chunk-"}, "a freeze that failed leaves nothing"


def test_freezing_is_once_and_frees_what_is_left_out(tmp_path, database_url):
    reports = measured(10)
    with helper(tmp_path, database_url) as (datasets, ledger, _):
        filled(datasets, reports)
        freezing = FreezeRequest(accepted=("ff80",))
        frozen = datasets.freeze(ORIGIN, NAME, freezing)
        assert datasets.freeze(ORIGIN, NAME, freezing) == frozen
        with pytest.raises(AlreadyFrozen):
            datasets.freeze(ORIGIN, NAME, FreezeRequest(accepted=("ffc0",)))
        with pytest.raises(AlreadyFrozen):
            datasets.freeze(ORIGIN, NAME, FreezeRequest(accepted=("ff80",), digest="00" * 32))
        with pytest.raises(AlreadyFrozen):
            datasets.add(ORIGIN, NAME, 1, measured(1).chunk(0))
        with pytest.raises(AlreadyFrozen):
            datasets.abort(ORIGIN, NAME)
        datasets.open(DOCUMENT, "april", AGGREGATE)
        assert datasets.add(ORIGIN, "april", 0, reports.chunk(0)).accepted == "0040"
        assert [each.encode().decode() for each in ledger.receipts(ORIGIN)] == [frozen.receipt]
        assert [path.name[:8] for path in (tmp_path / "columns" / "1").iterdir()] == ["columns-"]


def test_helpers_that_hold_other_columns_do_not_freeze_one_dataset(tmp_path, sqlite_url, monkeypatch):
    """Two reports with one id, as a browser or the ad server can make them: other columns, another hour."""
    ids = np.frombuffer(bytes(range(48)), np.uint8).reshape(3, 16)
    rows = sharing.random_rows
    monkeypatch.setattr(
        sharing,
        "random_rows",
        lambda n, width, rng: ids.copy() if width == 16 and n == 3 else rows(n, width, rng),
    )
    ours, theirs = measured(3, [HOUR] * 3), measured(3, [HOUR - 5] * 3)
    other = f"sqlite:///{tmp_path / 'other.db'}"
    with helper(tmp_path / "0", sqlite_url) as (a, _, _), helper(tmp_path / "1", other, 1) as (b, _, _):
        filled(a, ours)
        filled(b, theirs, place=1)
        assert b.state(ORIGIN, NAME).accepted == 3
        wanted = agreed(a, b, chunks=1)
        frozen = a.freeze(ORIGIN, NAME, wanted)
        with pytest.raises(FreezeMismatch):
            b.freeze(ORIGIN, NAME, FreezeRequest(wanted.accepted, frozen.digest))
        assert b.state(ORIGIN, NAME).state == "open"


def test_one_old_report_does_not_end_a_dataset_soon(tmp_path, sqlite_url):
    oldest = HOUR - (LIFETIME - MIN_LIFE_S) // 3600
    with helper(tmp_path, sqlite_url) as (datasets, _, clock):
        datasets.open(DOCUMENT, NAME, AGGREGATE)
        reports = measured(4, [HOUR, oldest - 1, oldest, HOUR - LIFETIME // 3600])
        answer = datasets.add(ORIGIN, NAME, 0, reports.chunk(0))
        assert (answer.accepted, answer.refused) == ("a0", {"PastLifetime": 2})
        frozen = freeze_all(datasets, 1)
        clock.seconds += MIN_LIFE_S
        assert datasets.find(ORIGIN, bytes.fromhex(frozen.digest)).size(None) == 2


def test_aborting_frees_all(tmp_path, database_url):
    reports = measured(5)
    with helper(tmp_path, database_url) as (datasets, _, _):
        filled(datasets, reports)
        datasets.abort(ORIGIN, NAME)
        assert [*(tmp_path / "columns").iterdir()] == []
        for call in (datasets.state, datasets.abort):
            with pytest.raises(UnknownDataset):
                call(ORIGIN, NAME)
        filled(datasets, reports)
        assert datasets.state(ORIGIN, NAME).accepted == 5


def test_a_name_stands_for_one_document_and_purpose(tmp_path, database_url):
    with helper(tmp_path, database_url) as (datasets, _, _):
        state = datasets.open(DOCUMENT, NAME, AGGREGATE)
        assert datasets.open(DOCUMENT, NAME, AGGREGATE) == state
        assert state.state == "open"
        with pytest.raises(DatasetConflict):
            datasets.open(DOCUMENT, NAME, Purpose.TRAIN)
        with pytest.raises(DatasetConflict):
            datasets.open(make(k=51), NAME, AGGREGATE)
        with pytest.raises(UnknownDataset):
            datasets.add("other.example", NAME, 0, measured(1).chunk(0))


def test_no_report_is_kept_past_its_lifetime(tmp_path, database_url):
    reports = measured(4, [HOUR - 1, HOUR, HOUR, HOUR])
    first_end = HOUR * 3600 + LIFETIME
    with helper(tmp_path, database_url) as (datasets, _, clock):
        filled(datasets, reports)
        digest = bytes.fromhex(freeze_all(datasets, 1).digest)
        clock.seconds = first_end - 1
        datasets.forget()
        mapped = datasets.find(ORIGIN, digest).records(None)
        clock.seconds = first_end
        with pytest.raises(Expired):
            datasets.find(ORIGIN, digest)
        datasets.forget()
        assert [*(tmp_path / "columns").iterdir()] == []
        assert mapped.shares[:, 0].all(), "who computes is not disturbed"
        assert datasets.state(ORIGIN, NAME).state == "expired"
        clock.seconds = NOW  # A clock that goes back brings nothing to life.
        with pytest.raises(Expired):
            datasets.find(ORIGIN, digest)
        with pytest.raises(UnknownDataset):
            datasets.find("other.example", digest)


def test_a_clock_that_goes_back_does_not_bring_pruned_ids_to_life(tmp_path, database_url):
    reports = measured(3)
    end = (HOUR + 1) * 3600 + LIFETIME
    with helper(tmp_path, database_url) as (datasets, _, _):
        filled(datasets, reports)
        freeze_all(datasets, 1)
    with helper(tmp_path, database_url, now=end) as (datasets, _, _):
        datasets.forget()
    with helper(tmp_path, database_url) as (datasets, _, _):
        datasets.open(DOCUMENT, "april", AGGREGATE)
        assert datasets.add(ORIGIN, "april", 0, reports.chunk(0)).refused == {"PastLifetime": 3}


def test_pruning_between_opening_and_claiming(tmp_path, sqlite_url, monkeypatch):
    """The ids that are pruned while a chunk is being opened were those of its own reports."""
    reports, end = measured(3), (HOUR + 1) * 3600 + LIFETIME
    with helper(tmp_path, sqlite_url) as (datasets, _, clock):
        filled(datasets, reports)
        assert datasets.state(ORIGIN, NAME).accepted == 3
        datasets.open(DOCUMENT, "april", AGGREGATE)
        open_chunk = datasets._engine.run

        def late(*job):
            opened = open_chunk(*job)
            clock.seconds = end
            datasets._context.ids.prune(end)
            return opened

        monkeypatch.setattr(datasets._engine, "run", late)
        assert datasets.add(ORIGIN, "april", 0, reports.chunk(0)).refused == {"PastLifetime": 3}


def test_unfrozen_datasets_end_when_all_their_reports_have(tmp_path, sqlite_url):
    end = (HOUR + 1) * 3600 + LIFETIME
    with helper(tmp_path, sqlite_url) as (datasets, _, clock):
        filled(datasets, measured(2, [HOUR - 5, HOUR]))
        datasets.open(DOCUMENT, "never-used", AGGREGATE)
        clock.seconds = end - 1
        datasets.forget()
        assert datasets.state(ORIGIN, NAME).accepted == 2
        with pytest.raises(Expired):
            freeze_all(datasets, 1)
        clock.seconds = end
        datasets.forget()
        for name in (NAME, "never-used"):
            with pytest.raises(UnknownDataset):
                datasets.state(ORIGIN, name)
        assert [*(tmp_path / "columns").iterdir()] == []


def test_files_that_no_row_names_are_removed(tmp_path, sqlite_url):
    with helper(tmp_path, sqlite_url) as (datasets, _, _):
        filled(datasets, measured(2))
        columns = tmp_path / "columns"
        (columns / "1" / "chunk-stray").write_bytes(b"half")
        (columns / "1" / "columns-stray").mkdir()
        (columns / "77").mkdir()
        (columns / "77" / "chunk-of-nobody").write_bytes(b"x")
        with datasets._context.writing(1):
            datasets.forget()
            assert (columns / "1" / "chunk-stray").exists(), "somebody may be writing it"
        datasets.forget()
        assert len([*(columns / "1").iterdir()]) == 1
        assert not (columns / "77").exists()
        assert freeze_all(datasets, 1).records == 2


def test_folders_and_files_are_ours_alone(tmp_path, sqlite_url):
    with helper(tmp_path, sqlite_url) as (datasets, _, _):
        filled(datasets, measured(2))
        before = {
            oct(path.stat().st_mode & 0o777) for path in (tmp_path / "columns").rglob("*") if path.is_file()
        }
        freeze_all(datasets, 1)
        paths = [tmp_path / "columns", *(tmp_path / "columns").rglob("*")]
        assert before == {"0o600"}
        assert {oct(path.stat().st_mode & 0o777) for path in paths if path.is_dir()} == {"0o700"}
        assert {oct(path.stat().st_mode & 0o777) for path in paths if path.is_file()} == {"0o600"}


@pytest.mark.parametrize("damage", ["flipped", "short", "gone"])
def test_a_damaged_column_is_never_summed(tmp_path, sqlite_url, damage):
    with helper(tmp_path, sqlite_url) as (datasets, _, _):
        filled(datasets, measured(3))
        digest = bytes.fromhex(freeze_all(datasets, 1).digest)
        (path,) = (tmp_path / "columns").glob("1/columns-*/0.shares")
        _damage(path, damage)
        assert datasets.find(ORIGIN, digest).size(None) == 3
        with pytest.raises(DamagedDataset):
            datasets.find(ORIGIN, digest).records(None)


@pytest.mark.parametrize("damage", ["flipped", "short", "gone"])
def test_a_damaged_chunk_is_never_frozen(tmp_path, sqlite_url, damage):
    with helper(tmp_path, sqlite_url) as (datasets, _, _):
        filled(datasets, measured(3))
        (path,) = (tmp_path / "columns").glob("1/chunk-*")
        _damage(path, damage)
        with pytest.raises(DamagedDataset):
            freeze_all(datasets, 1)
        datasets.abort(ORIGIN, NAME)
        filled(datasets, measured(3))


def _damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(data if how == "flipped" else data[: len(data) // 2])


@pytest.mark.parametrize("point", dying.POINTS)
def test_a_helper_that_is_killed_loses_and_doubles_nothing(tmp_path, sqlite_url, point):
    dying.prepare(tmp_path)
    everything = (tmp_path / "all.body").read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.helper.dying", str(tmp_path), sqlite_url, point], check=False
    )
    assert done.returncode == dying.DIED, "it did not come to the point"
    aborted = point.startswith("abort")
    with helper(tmp_path, sqlite_url) as (datasets, ledger, _):
        datasets.forget()
        if aborted:
            with pytest.raises(UnknownDataset):
                datasets.state(ORIGIN, NAME)
            datasets.open(DOCUMENT, NAME, AGGREGATE)
        else:
            assert datasets.chunk(ORIGIN, NAME, 0).refused == {}, "what was answered is there"
        for number in range(2):
            assert (
                datasets.add(ORIGIN, NAME, number, (tmp_path / f"{number}.body").read_bytes()).refused == {}
            ), "no id is nobody's"
        frozen = freeze_all(datasets, 2)
        assert freeze_all(datasets, 2) == frozen
        assert [each.encode().decode() for each in ledger.receipts(ORIGIN)] == [frozen.receipt], "frozen once"
        records = datasets.find(ORIGIN, bytes.fromhex(frozen.digest)).records(None)
        assert isinstance(records, AggregateRecords)
        assert len(records) == dying.REPORTS
        assert len(np.unique(records.ids, axis=0)) == dying.REPORTS, "nothing counts twice"
        assert len([*(tmp_path / "columns").rglob("chunk-*")]) == 0
        # All ids are claimed, by this dataset and for good.
        datasets.open(DOCUMENT, "april", AGGREGATE)
        assert datasets.add(ORIGIN, "april", 0, everything).refused == {"Replayed": dying.REPORTS}
        datasets.abort(ORIGIN, "april")
        datasets.open(DOCUMENT, "may", AGGREGATE)
        assert datasets.add(ORIGIN, "may", 0, everything).refused == {"Replayed": dying.REPORTS}


def test_an_aborted_dataset_takes_no_chunk_that_was_on_its_way(tmp_path, sqlite_url, monkeypatch):
    with helper(tmp_path, sqlite_url) as (datasets, _, _):
        datasets.open(DOCUMENT, NAME, AGGREGATE)
        open_chunk, reports = datasets._engine.run, measured(2)

        def late(*job):
            opened = open_chunk(*job)
            datasets.abort(ORIGIN, NAME)
            return opened

        monkeypatch.setattr(datasets._engine, "run", late)
        with pytest.raises(UnknownDataset):
            datasets.add(ORIGIN, NAME, 0, reports.chunk(0))
        monkeypatch.undo()
        filled(datasets, reports)
        assert datasets.state(ORIGIN, NAME).accepted == 2


def test_a_frozen_dataset_takes_no_chunk_that_was_on_its_way(tmp_path, sqlite_url, monkeypatch):
    with helper(tmp_path, sqlite_url) as (datasets, _, _):
        filled(datasets, measured(2))
        open_chunk = datasets._engine.run

        def late(*job):
            opened = open_chunk(*job)
            freeze_all(datasets, 1)
            return opened

        monkeypatch.setattr(datasets._engine, "run", late)
        with pytest.raises(AlreadyFrozen):
            datasets.add(ORIGIN, NAME, 1, measured(2).chunk(0))
        assert datasets.state(ORIGIN, NAME).records == 2


def test_many_chunks_at_once_in_workers(tmp_path, sqlite_url):
    reports = measured(40)
    with helper(tmp_path, sqlite_url, workers=2) as (datasets, _, _):
        datasets.open(DOCUMENT, NAME, AGGREGATE)
        # Every report is in two chunks: one of them gets it, whoever is first.
        bodies = [reports.chunk(0, start, start + 10) for start in (0, 5, 10, 15, 20, 25, 30)]
        with ThreadPoolExecutor(4) as threads:
            numbered = [*enumerate(bodies)]
            answers = [*threads.map(lambda each: datasets.add(ORIGIN, NAME, *each), numbered)]
        assert sum(answer.refused.get("Replayed", 0) for answer in answers) == 30
        frozen = freeze_all(datasets, 7)
        records = datasets.find(ORIGIN, bytes.fromhex(frozen.digest)).records(None)
        assert len(np.unique(records.ids, axis=0)) == frozen.records == 40


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, sqlite_url, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with helper(tmp_path, sqlite_url) as (datasets, ledger, _):
        reports = measured(3)
        datasets.open(DOCUMENT, NAME, AGGREGATE)
        monkeypatch.setattr(chunk_file, "write", full)
        with pytest.raises(StorageUnavailable, match="again"):
            datasets.add(ORIGIN, NAME, 0, reports.chunk(0))
        monkeypatch.undo()
        assert datasets.add(ORIGIN, NAME, 0, reports.chunk(0)).refused == {}
        monkeypatch.setattr(sharding, "write_entries", full)
        with pytest.raises(StorageUnavailable, match="again"):
            freeze_all(datasets, 1)
        monkeypatch.undo()
        assert ledger.receipts(ORIGIN) == []
        assert [path.name[:6] for path in (tmp_path / "columns" / "1").iterdir()] == ["chunk-"]
        assert freeze_all(datasets, 1).records == 3


def test_a_freeze_meets_no_later_dataset_of_its_name(tmp_path, sqlite_url, monkeypatch):
    with helper(tmp_path, sqlite_url) as (datasets, ledger, clock):
        reports = measured(3)
        filled(datasets, reports)
        commit = datasets._freezer._commit

        def late(*arguments):
            clock.seconds = (HOUR + 1) * 3600 + LIFETIME
            datasets.forget()
            datasets.open(DOCUMENT, NAME, AGGREGATE)
            commit(*arguments)

        monkeypatch.setattr(datasets._freezer, "_commit", late)
        with pytest.raises(UnknownDataset, match="aborted"):
            freeze_all(datasets, 1)
        assert ledger.receipts(ORIGIN) == []
        assert datasets.state(ORIGIN, NAME).state == "open"


def test_what_comes_in_one_chunk_more_keeps_no_old_one(tmp_path, sqlite_url):
    """An open dataset is not kept alive by a chunk that is sent now and then."""
    with helper(tmp_path, sqlite_url) as (datasets, _, clock):
        filled(datasets, measured(2))
        clock.seconds = (HOUR + 1) * 3600 + LIFETIME - 7200
        late = measured(1, [clock.seconds // 3600])
        datasets.add(ORIGIN, NAME, 1, late.chunk(0))
        datasets.forget()
        assert datasets.state(ORIGIN, NAME).accepted == 3
        clock.seconds += 7200
        datasets.forget()
        with pytest.raises(UnknownDataset):
            datasets.state(ORIGIN, NAME)
        assert [*(tmp_path / "columns").iterdir()] == []
        filled(datasets, late)
        assert datasets.state(ORIGIN, NAME).accepted == 1, "what is not past its lifetime may come again"


def test_a_claim_that_is_told_after_its_abort_leaves_no_ghost(tmp_path, sqlite_url, monkeypatch):
    with helper(tmp_path, sqlite_url) as (datasets, _, _):
        datasets.open(DOCUMENT, NAME, AGGREGATE)
        told, reports = datasets._context.ids.claimed, measured(5)

        def late(*arguments):
            datasets.abort(ORIGIN, NAME)
            told(*arguments)

        monkeypatch.setattr(datasets._context.ids, "claimed", late)
        datasets.add(ORIGIN, NAME, 0, reports.chunk(0))
        monkeypatch.undo()
        datasets.open(DOCUMENT, "april", AGGREGATE)
        assert datasets.add(ORIGIN, "april", 0, reports.chunk(0)).refused == {}


def test_a_name_that_is_being_aborted_can_be_opened(tmp_path, database_url, monkeypatch):
    with helper(tmp_path, database_url) as (datasets, _, _):
        reports = measured(2)
        filled(datasets, reports)
        finish = datasets._context.finish_aborts
        monkeypatch.setattr(datasets._context, "finish_aborts", lambda: None)
        datasets.abort(ORIGIN, NAME)  # Marked, and no more: its process is slow, or ended there.
        monkeypatch.setattr(datasets._context, "finish_aborts", finish)
        filled(datasets, reports)
        assert datasets.state(ORIGIN, NAME).accepted == 2


def test_a_freeze_whose_commit_fails_leaves_nothing(tmp_path, sqlite_url, monkeypatch):
    with helper(tmp_path, sqlite_url) as (datasets, ledger, _):
        filled(datasets, measured(2))

        def fails(*_):
            raise StorageUnavailable("away")

        monkeypatch.setattr(ledger, "freeze", fails)
        for _ in range(2):
            with pytest.raises(StorageUnavailable):
                freeze_all(datasets, 1)
        assert [path.name[:6] for path in (tmp_path / "columns" / "1").iterdir()] == ["chunk-"]
        monkeypatch.undo()
        assert freeze_all(datasets, 1).records == 2


def test_names_of_new_folders_are_durable(tmp_path, sqlite_url, monkeypatch):
    synced, fsync = [], os.fsync

    def record(handle):
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()).removeprefix(str(tmp_path)))
        fsync(handle)

    with helper(tmp_path, sqlite_url) as (datasets, _, _):
        datasets.open(DOCUMENT, NAME, AGGREGATE)
        monkeypatch.setattr(os, "fsync", record)
        datasets.add(ORIGIN, NAME, 0, measured(2).chunk(0))
        assert {"/columns", "/columns/1"} <= set(synced)
        synced.clear()
        freeze_all(datasets, 1)
        assert "/columns/1" in synced


def test_nobody_waits_for_a_freeze(tmp_path, sqlite_url, monkeypatch):
    with helper(tmp_path, sqlite_url) as (datasets, _, _):
        for name in (NAME, "april"):
            filled(datasets, measured(2), name)
        commit = datasets._freezer._commit

        def meanwhile(*arguments):
            for use in (
                lambda: freeze_all(datasets, 1),
                lambda: freeze_all(datasets, 1, "april"),
                lambda: datasets.abort(ORIGIN, NAME),
                lambda: datasets.abort(ORIGIN, "april"),
            ):
                with pytest.raises(Busy, match="again"):
                    use()
            commit(*arguments)

        monkeypatch.setattr(datasets._freezer, "_commit", meanwhile)
        frozen = freeze_all(datasets, 1)
        monkeypatch.undo()
        assert freeze_all(datasets, 1) == frozen
        assert freeze_all(datasets, 1, "april").records == 2


def test_an_opening_stands_for_one_dataset(tmp_path, database_url):
    first, second = b"1" * 16, b"2" * 16
    with helper(tmp_path, database_url) as (datasets, _, clock):
        state = datasets.open(DOCUMENT, NAME, AGGREGATE, first)
        assert datasets.open(DOCUMENT, NAME, AGGREGATE, first) == state
        with pytest.raises(DatasetConflict, match="attempt"):
            datasets.open(DOCUMENT, NAME, AGGREGATE, second)
        for use in (
            lambda: datasets.add(ORIGIN, NAME, 0, measured(1).chunk(0), second),
            lambda: datasets.freeze(ORIGIN, NAME, FreezeRequest(accepted=("80",)), second),
            lambda: datasets.abort(ORIGIN, NAME, second),
        ):
            with pytest.raises(UnknownDataset, match="another attempt"):
                use()
        datasets.abort(ORIGIN, NAME, first)
        clock.seconds += 2 * WINDOW_S
        datasets.forget()
        with pytest.raises(DatasetConflict, match="aborted"):
            datasets.open(DOCUMENT, NAME, AGGREGATE, first)
        assert datasets.open(DOCUMENT, NAME, AGGREGATE, second).attempt == second.hex()
        clock.seconds += ABORTED_S
        datasets.forget()
        assert datasets.open(DOCUMENT, "april", AGGREGATE, first).attempt == first.hex()
