"""Shards: the same records in the same order however they are cut, each file exactly as written."""

import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.compute.engine import SerialEngine
from maskedlark.core import sharing
from maskedlark.core.candidates import Sample
from maskedlark.core.declared import Bag, Bytes, Category, Measure, Model, Value
from maskedlark.core.labels import LabelSpace
from maskedlark.core.records import AggregateRecords, Coded, TrainingRecords, joined
from maskedlark.core.sharing import ID_BYTES
from maskedlark.helper import chunk_file, columns, sharding, shards
from maskedlark.helper.chunk_file import KeptRecords
from maskedlark.helper.columns import ENTRIES, Contents
from maskedlark.helper.dataset_files import DatasetFiles, LocalFiles, SealedFiles, key_of
from maskedlark.helper.errors import DamagedDataset, UnreadableStorage
from maskedlark.helper.id_runs import names
from maskedlark.helper.ingest import SentChunk, open_chunk
from maskedlark.helper.sharding import Range, RangeWriter, Sorting, sort_range
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.wire import batch
from maskedlark.wire.acceptance import Terms
from maskedlark.wire.batch import Envelope
from maskedlark.wire.columns import ABSENT, encode_typed, train_columns
from maskedlark.wire.datasets import encode_chunk
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.report import HEAD_BYTES, Opener, ReportLayout

MEASURE = Measure(("campaign", "size"), (Value("bought", 0, 9),))
INDEXED = {
    "shown": Model("shown", (Category(1000), Bytes(3), Bag(1 << 20, 4))),
    "sampled": Model("sampled", (Category(7),), (LabelSpace.categorical(9),), Sample(3)),
}
RNG = SystemRandomness()


@pytest.fixture(params=["own disk", "sealed", "sealed in memory"])
def files(request, tmp_path) -> DatasetFiles:
    """Where a dataset's files may be."""
    urls = {"sealed": f"file://{tmp_path}/storage", "sealed in memory": f"memory://{tmp_path}"}
    url = urls.get(request.param)
    made = LocalFiles(tmp_path / "own") if url is None else SealedFiles(url, key_of(b"secret")).within("7")
    made.make()
    return made


def kept(names_: list[str], ids: np.ndarray) -> KeptRecords:
    """Records to aggregate whose codes are made for these alone, and whose shares are numbered."""
    entries = tuple(dict.fromkeys(names_))
    codes = np.array([entries.index(name) for name in names_], np.int32)
    keys = {
        "campaign": Coded(codes, (*entries, "unused")),
        "size": Coded(np.arange(len(ids), dtype=np.int32), tuple(map(len, names_))),
    }
    heads = np.concatenate([ids, np.zeros((len(ids), HEAD_BYTES - ID_BYTES), np.uint8)], axis=1)
    shares = np.stack([ids[:, 0].astype(np.int64), ids[:, -1].astype(np.int64)], axis=1)
    return KeptRecords(AggregateRecords(ids, keys, shares), heads)


def cut(
    files: DatasetFiles, declared, pieces: list[KeptRecords], shards: int, often: bool = False
) -> Contents:
    """A dataset in about this many shards. `often`: pieces are written after every chunk."""
    ids = [each.heads[:, :ID_BYTES] for each in pieces]
    writer = RangeWriter(files, declared, sharding.ranges(ids, sum(map(len, ids)), shards, RNG))
    for each in pieces:
        writer.append(each)
        if often:
            writer.flush()
    writer.flush()
    entries, ranks = sharding.write_entries(files, writer)
    ranges = [Range(number, tuple(own)) for number, own in enumerate(writer.pieces)]
    made = SerialEngine().map(sort_range, Sorting(files, declared, ranks), ranges)
    heads = np.concatenate([sharding.sorted_heads(files, number) for number in range(len(ranges))])
    assert (np.sort(names(heads[:, :ID_BYTES])) == names(heads[:, :ID_BYTES])).all()
    contents = Contents(shards=tuple(made), files=entries)
    sharding.remove_all_but(files, contents)
    assert sorted(contents.all_files) == files.names(), "nothing else is left"
    return Contents.model_validate_json(contents.model_dump_json())


def measured(files: DatasetFiles, contents: Contents) -> AggregateRecords:
    read = [
        columns.read_measured(files, own, number, contents.files[ENTRIES], MEASURE)
        for number, own in enumerate(contents.shards)
    ]
    found = joined(read)
    assert isinstance(found, AggregateRecords)
    return found


FRUIT = ["pear", "fig", "pear", "apple", "fig", "plum", "quince"]


@pytest.mark.parametrize("shards", [1, 2, 5, 100])
@pytest.mark.parametrize("often", [False, True])
def test_pieces_become_one_dictionary_in_order(files, shards, often):
    ids = sharing.random_rows(len(FRUIT), ID_BYTES, RNG)
    pieces = [kept(FRUIT[:3], ids[:3]), kept([], ids[:0]), kept(FRUIT[3:], ids[3:])]
    contents = cut(files, MEASURE, pieces, shards, often)
    order = np.argsort(names(ids))
    found = measured(files, contents)
    campaign, size = found.keys["campaign"], found.keys["size"]
    assert campaign.entries == ("apple", "fig", "pear", "plum", "quince"), "in order, and none unused"
    assert [campaign.entries[code] for code in campaign.codes] == [FRUIT[row] for row in order]
    assert [size.entries[code] for code in size.codes] == [len(FRUIT[row]) for row in order]
    assert found.ids.tobytes() == ids[order].tobytes()
    assert found.shares.tolist() == ids[order][:, [0, -1]].tolist()
    assert contents.records == {"": len(FRUIT)}
    assert sum(own.records[""] for own in contents.shards) == len(FRUIT)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 4), st.booleans())
@settings(max_examples=40, deadline=None)
def test_records_are_the_same_however_they_are_cut(tmp_path_factory, count, shards, chunks, close):
    """Ids of every distribution: browsers choose them."""
    folder = tmp_path_factory.mktemp("cut")
    ids = sharing.random_rows(count, ID_BYTES, RNG).copy()
    if close:
        ids[:, :14] = 7
    ids = np.unique(ids, axis=0)[np.random.default_rng(count).permutation(len(np.unique(ids, axis=0)))]
    words = [f"{row[0] % 5}" for row in ids]
    found = []
    for name, number in (("one", 1), ("many", shards)):
        files = LocalFiles(folder / name)
        files.make()
        pieces = [kept(words[k::chunks], ids[k::chunks]) for k in range(chunks)]
        found.append(measured(files, cut(files, MEASURE, pieces, number)))
    one, many = found
    assert one.ids.tobytes() == many.ids.tobytes()
    assert one.shares.tolist() == many.shares.tolist()
    assert all(
        one.keys[key].entries == many.keys[key].entries
        and one.keys[key].codes.tolist() == many.keys[key].codes.tolist()
        for key in MEASURE.keys
    )


def test_ranges_have_about_as_many_records_each():
    """Also where nearly all ids begin alike."""
    ids = sharing.random_rows(200_000, ID_BYTES, RNG).copy()
    ids[:190_000, :8] = 3
    starts = sharding.ranges([ids[:50_000], ids[50_000:]], len(ids), 16, FixedRandomness(b"cuts"))
    sizes = np.bincount(np.searchsorted(starts, names(ids), side="right"), minlength=16)
    assert len(starts) == 15
    assert sizes.min() > 0.8 * len(ids) / 16
    assert sizes.max() < 1.2 * len(ids) / 16


def test_no_order_of_ids_makes_one_range_hold_nearly_all(monkeypatch):
    """The ad server orders reports: here all ids but every 195th, spread as if they were all, come first."""
    monkeypatch.setattr(sharding, "SAMPLED", 1 << 10)
    ids = sharing.random_rows(200_000, ID_BYTES, RNG).copy()
    ids[:, 0] = 0
    ids[::195, 0] = 1
    starts = sharding.ranges([ids[:50_001], ids[50_001:]], len(ids), 16, FixedRandomness(b"cuts"))
    sizes = np.bincount(np.searchsorted(starts, names(ids), side="right"), minlength=16)
    assert sizes.max() < 2 * len(ids) / 16


def test_numbers_come_before_texts(tmp_path):
    files, measure = LocalFiles(tmp_path), Measure(("key",), ())
    entries = ("2", 10, 9, "1")
    ids = np.arange(4, dtype=np.uint8)[:, None] * np.ones((1, ID_BYTES), np.uint8)
    heads = np.concatenate([ids, np.zeros((4, HEAD_BYTES - ID_BYTES), np.uint8)], axis=1)
    coded = Coded(np.arange(4, dtype=np.int32), entries)
    records = AggregateRecords(ids, {"key": coded}, np.zeros((4, 1), np.int64))
    contents = cut(files, measure, [KeptRecords(records, heads)], 1)
    found = columns.read_measured(files, contents.shards[0], 0, contents.files[ENTRIES], measure)
    assert found.keys["key"].entries == (9, 10, "1", "2")
    assert [found.keys["key"].entries[code] for code in found.keys["key"].codes] == list(entries)


@pytest.mark.parametrize("shards", [1, 4])
def test_indices_stay_with_their_records_through_chunk_and_dataset(files, shards):
    """A category, a bag and bytes, all candidates and a sample: opened, kept in part, and read in order."""
    opener, body, truth = _indexed(30)
    opened = open_chunk(SentChunk(opener, body, files))
    assert opened.accepted.all()
    which = np.arange(30) % 3 > 0
    read = chunk_file.read(files, opened.file, which, INDEXED)
    files.remove(opened.file)
    contents = cut(files, INDEXED, [read], shards)
    assert contents.records == {"shown": 20, "sampled": 0}
    shown, sampled = (
        joined(
            [
                columns.read_trained(files, own, number, place, model)
                for number, own in enumerate(contents.shards)
            ]
        )
        for place, model in enumerate(INDEXED.values())
    )
    assert isinstance(shown, TrainingRecords)
    assert isinstance(sampled, TrainingRecords)
    order = sorted(np.flatnonzero(which), key=lambda row: opened.ids[row].tobytes())
    assert shown.ids.tobytes() == opened.ids[order].tobytes()
    assert [each.dtype for each in shown.indices] == [np.uint32] * 2
    for stored, given_ in zip((shown.features, *shown.indices), truth, strict=True):
        assert np.array_equal(np.asarray(stored), given_[order])
    assert [each.shape for each in sampled.indices] == [(0, 1)]
    assert [each.shape for each in sampled.candidates] == [(0, 3)]
    assert [each.tolist() for each in shown.candidates] == [[[0, 1]]]


def _indexed(count: int) -> tuple[Opener, bytes, list[np.ndarray]]:
    """A chunk of records of the first model; byte features, category and bag of every one."""
    rng, key = SystemRandomness(), OpeningKey.generate(SystemRandomness())
    layout = ReportLayout("ads.example", bytes(32), ("first", "second"), tuple(INDEXED.values()))
    envelope = Envelope(layout, (key.sealing, OpeningKey.generate(rng).sealing))
    model, category = INDEXED["shown"], rng.below(1000, count)
    features = sharing.random_rows(count, 3, rng)
    bag = np.sort(rng.below(1 << 20, 4 * count).reshape(count, 4), axis=1)
    bag[::2, 2:] = ABSENT
    rows = encode_typed(model.columns, [category, features, bag])
    shown, secrets = model.mask([rng.below(2, count)], np.ones(count, np.bool_), rng)
    made = batch.seal(envelope, 0, train_columns(0, model, rows, shown), secrets, [1000] * count, rng)
    opener = Opener(layout, 0, {key.key_id: key}, Terms(86_400 * 30, 1000 * 3600))
    return opener, encode_chunk(layout.parts(made, 0)), [features, category[:, None], bag]


@pytest.mark.parametrize("name", ["0.ids", "1.codes-0", "0.codes-1", "1.shares", "entries.json"])
@pytest.mark.parametrize("damage", ["flipped", "longer", "shorter", "gone", "swapped"])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_file_is_exactly_what_was_written_or_damaged(tmp_path, name, damage, sealed):
    files = SealedFiles(f"file://{tmp_path}", key_of(b"secret")) if sealed else LocalFiles(tmp_path)
    ids = np.arange(8, dtype=np.uint8)[:, None] * np.ones((1, ID_BYTES), np.uint8)
    contents = cut(files, MEASURE, [kept((FRUIT * 2)[:8], ids)], 2)
    assert len(measured(files, contents)) == 8
    columns.forget()
    path = tmp_path / name
    data = path.read_bytes()
    changed = {
        "flipped": bytes([data[0] ^ 1]) + data[1:],
        "longer": data + b"\0",
        "shorter": data[:-1],
        "swapped": data[::-1],
        "gone": None,
    }[damage]
    path.unlink()
    if changed is not None:
        assert changed != data
        path.write_bytes(changed)
    with pytest.raises(DamagedDataset, match=name):
        measured(files, contents)


@pytest.mark.parametrize("sealed", [False, True])
def test_what_a_worker_left_that_ended_is_written_anew(tmp_path, sealed):
    files = SealedFiles(f"file://{tmp_path}", key_of(b"secret")) if sealed else LocalFiles(tmp_path)
    columns.write(files, "0.ids", np.ones(5), "|u1")
    before = files.data("0.ids")
    stored = columns.write(files, "0.ids", np.zeros(3), "|u1")
    assert columns.read(files, "0.ids", stored).tolist() == [0, 0, 0]
    assert before.tolist() == [1] * 5, "it is another file"


@pytest.mark.parametrize("sealed", [False, True])
def test_a_file_is_replaced_by_a_whole_one_only(tmp_path, sealed):
    """A worker that was cut off may come to it when its dataset is frozen, and then be killed."""
    files = SealedFiles(f"file://{tmp_path}", key_of(b"secret")) if sealed else LocalFiles(tmp_path)
    stored = columns.write(files, "0.ids", np.ones(5), "|u1")

    def ended(file):
        file.write(b"some")
        file.flush()
        assert columns.read(files, "0.ids", stored).tolist() == [1] * 5
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write("0.ids", ended)
    assert columns.read(files, "0.ids", stored).tolist() == [1] * 5
    assert files.names() == ["0.ids"]


@pytest.mark.parametrize("sealed", [False, True])
def test_what_a_killed_writer_left_is_seen_and_removed(tmp_path, sealed):
    """It is named like no file of a dataset, and goes with the first freezing or sweeping."""
    files = SealedFiles(f"file://{tmp_path}", key_of(b"secret")) if sealed else LocalFiles(tmp_path)
    (tmp_path / ".writing-abc").write_bytes(b"some")
    assert files.names() == [".writing-abc"]
    cut(files, MEASURE, [kept(FRUIT, sharing.random_rows(7, ID_BYTES, RNG))], 2)
    assert ".writing-abc" not in files.names()


@pytest.mark.parametrize("sealed", [False, True])
def test_a_range_is_sorted_again_to_the_same_files(tmp_path, sealed):
    """An engine runs an item again when its worker ended, however far that had come."""
    files = SealedFiles(f"file://{tmp_path}", key_of(b"secret")) if sealed else LocalFiles(tmp_path)
    writer = RangeWriter(files, MEASURE, names(np.empty((0, ID_BYTES), np.uint8)))
    writer.append(kept(FRUIT, sharing.random_rows(len(FRUIT), ID_BYTES, RNG)))
    writer.flush()
    _, ranks = sharding.write_entries(files, writer)
    sorting, own = sharding.Sorting(files, MEASURE, ranks), sharding.Range(0, tuple(writer.pieces[0]))
    assert sharding.sort_range(sorting, own) == sharding.sort_range(sorting, own)


def test_contents_refuse_what_they_do_not_know(tmp_path):
    contents = cut(LocalFiles(tmp_path), MEASURE, [kept(FRUIT, sharing.random_rows(7, ID_BYTES, RNG))], 2)
    given_ = json.loads(contents.model_dump_json())
    with pytest.raises(ValueError, match="extra"):
        Contents.model_validate_json(json.dumps(given_ | {"extra": 1}))
    with pytest.raises(ValueError, match="shards"):
        Contents.model_validate_json(json.dumps(given_ | {"shards": []}))


def test_sealed_files_tell_nothing_and_stay_where_they_are(tmp_path):
    """Neither their content, nor is one taken for another, nor for one of another helper or dataset."""
    files = SealedFiles(f"file://{tmp_path}", key_of(b"secret")).within("1")
    files.make()
    secret = b"\7" * 4096
    files.write("a", lambda file: file.write(secret))
    files.write("b", lambda file: file.write(secret))
    stored = (tmp_path / "1" / "a").read_bytes()
    assert secret[:16] not in stored
    assert stored != (tmp_path / "1" / "b").read_bytes(), "equal content does not show"
    with files.open("a") as file:
        assert file.read() == secret
    for other in (
        SealedFiles(f"file://{tmp_path}", key_of(b"other")).within("1"),
        SealedFiles(f"file://{tmp_path}/1", key_of(b"secret")),
    ):
        with pytest.raises(DamagedDataset):
            other.open("a")
    (tmp_path / "1" / "b").write_bytes(stored)
    with pytest.raises(DamagedDataset):
        files.open("b")
    assert pickle.loads(pickle.dumps(files)) == files, "workers find it"
    assert "secret" not in repr(files)
    assert key_of(b"secret").hex() not in repr(files)


@pytest.mark.parametrize(("url", "said"), [("s3://bucket/x", "s3fs"), ("nothing://x", "nothing")])
def test_storage_that_cannot_be_used_says_why(url, said):
    with pytest.raises(UnreadableStorage, match=said):
        SealedFiles(url, key_of(b"secret")).make()


class BucketError(Exception):
    """As libraries of buckets have it: no `OSError`."""


@pytest.mark.parametrize("error", [PermissionError(13, "not now"), BucketError("slow down")])
def test_storage_that_is_away_is_not_taken_for_damage(tmp_path, monkeypatch, error):
    files = SealedFiles(f"file://{tmp_path}", key_of(b"secret"))
    stored = columns.write(files, "0.ids", np.zeros(3), "|u1")

    def away(*_, **__):
        raise error

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.cat_file", away)
    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.ls", away)
    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.makedirs", away)
    for use in (lambda: columns.read(files, "0.ids", stored), files.names, files.make):
        with pytest.raises(StorageUnavailable, match="try again"):
            use()
    monkeypatch.undo()
    (tmp_path / "0.ids").unlink()
    with pytest.raises(DamagedDataset):
        columns.read(files, "0.ids", stored)


class Numbered:
    """A shard whose records are its number, and which counts how often it is opened."""

    place, stored_bytes = 0, 10

    def __init__(self, files, number):
        self.files, self.number, self.opened = files, number, 0

    def open(self, rows=None):
        self.opened += 1
        return self.number


def test_of_more_shards_than_fit_some_stay_through_all_steps(tmp_path, monkeypatch):
    """If a process kept those that it used last, it would find none of them again."""
    monkeypatch.setattr(shards, "KEPT_BYTES", 49)
    now = [0.0]
    opened: Any = shards._OpenedShards(lambda: now[0])
    files = SealedFiles(f"file://{tmp_path}", key_of(b"secret"))
    first, second = ([Numbered(files.within(name), number) for number in range(9)] for name in "ab")
    for _ in range(10):
        assert [opened.get(each) for each in first] == [*range(9)]
    assert [each.opened for each in first] == [1] * 4 + [10] * 5
    for _ in range(2):
        assert [opened.get(each) for each in second] == [*range(9)]
    assert [each.opened for each in second] == [2] * 9, "those of another are in use"
    now[0] += shards.IDLE_S
    for _ in range(3):
        assert [opened.get(each) for each in second] == [*range(9)]
    assert [each.opened for each in second] == [3] * 4 + [5] * 5, "and when they are not, they go"


def test_a_shard_larger_than_all_room_is_kept_if_it_is_the_only_one(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "KEPT_BYTES", 5)
    opened: Any = shards._OpenedShards()
    alone = Numbered(SealedFiles(f"file://{tmp_path}", key_of(b"s")), 7)
    assert [opened.get(alone), opened.get(alone), alone.opened] == [7, 7, 1]
