"""Columns on disk: what was written piece by piece is read as one, or not at all."""

import json

import numpy as np
import pytest

from maskedlark.core import sharing
from maskedlark.core.candidates import Sample
from maskedlark.core.declared import Bag, Bytes, Category, Measure, Model, Value
from maskedlark.core.labels import LabelSpace
from maskedlark.core.records import AggregateRecords, Coded, TrainingRecords
from maskedlark.core.sharing import ID_BYTES
from maskedlark.helper import chunk_file, columns
from maskedlark.helper.columns import Contents, MeasuredWriter, TrainedWriter
from maskedlark.helper.errors import DamagedDataset
from maskedlark.helper.ingest import open_chunk
from maskedlark.randomness import SystemRandomness
from maskedlark.wire import batch
from maskedlark.wire.acceptance import Terms
from maskedlark.wire.batch import Envelope
from maskedlark.wire.columns import ABSENT, encode_typed, train_columns
from maskedlark.wire.datasets import encode_chunk
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.report import Opener, ReportLayout

MEASURE = Measure(("campaign", "size"), (Value("bought", 0, 9),))
MODELS = {"m": Model("m", (Bytes(3),)), "never": Model("never", (Bytes(2),))}


def some(names: list[str], start: int) -> AggregateRecords:
    """Records whose codes are made for these alone."""
    entries = tuple(dict.fromkeys(names))
    sizes = [len(name) for name in names]
    count = len(names)
    return AggregateRecords(
        np.full((count, ID_BYTES), start, np.uint8),
        {
            "campaign": Coded(
                np.array([entries.index(name) for name in names], np.int32), (*entries, "unused")
            ),
            "size": Coded(np.arange(count, dtype=np.int32), tuple(sizes)),
        },
        np.arange(start, start + 2 * count).reshape(count, 2),
    )


def written(folder) -> Contents:
    writer = MeasuredWriter(folder, MEASURE)
    for piece in (some(["pear", "fig", "pear"], 1), some([], 0), some(["apple", "fig"], 50)):
        writer.append(piece)
    return writer.close()


def test_pieces_become_one_dictionary_in_order(tmp_path):
    contents = Contents.model_validate_json(written(tmp_path).model_dump_json())
    found = columns.read_measured(tmp_path, contents, MEASURE)
    campaign, size = found.keys["campaign"], found.keys["size"]
    assert campaign.entries == ("apple", "fig", "pear"), "in order, and nothing that no record has"
    assert [campaign.entries[code] for code in campaign.codes] == ["pear", "fig", "pear", "apple", "fig"]
    assert [size.entries[code] for code in size.codes] == [4, 3, 4, 5, 3]
    assert size.entries == (3, 4, 5)
    assert found.shares.tolist() == [[1, 2], [3, 4], [5, 6], [50, 51], [52, 53]]
    assert found.shares[:, 1].flags.c_contiguous, "one value of all records lies together"
    assert found.ids[:, 0].tolist() == [1, 1, 1, 50, 50]
    assert contents.records == {"": 5}


def test_numbers_come_before_texts(tmp_path):
    writer = MeasuredWriter(tmp_path, Measure(("key",), ()))
    entries = ("2", 10, 9, "1")
    coded = Coded(np.arange(4, dtype=np.int32), entries)
    writer.append(
        AggregateRecords(np.zeros((4, ID_BYTES), np.uint8), {"key": coded}, np.zeros((4, 1), np.int64))
    )
    found = columns.read_measured(tmp_path, writer.close(), Measure(("key",), ()))
    assert found.keys["key"].entries == (9, 10, "1", "2")
    assert [found.keys["key"].entries[code] for code in found.keys["key"].codes] == list(entries)


def test_a_model_without_records_has_none(tmp_path):
    writer = TrainedWriter(tmp_path, MODELS)
    shown = (np.array([[0, 1]]),)
    for count in (2, 0, 1):
        ids, features = np.zeros((count, ID_BYTES), np.uint8), np.full((count, 3), count, np.uint8)
        writer.append({"m": TrainingRecords(ids, features, shown, np.full((count, 2), 7))})
    contents = writer.close()
    assert contents.records == {"m": 3, "never": 0}
    found, none = (columns.read_trained(tmp_path, contents, MODELS, tag) for tag in MODELS)
    assert found.features.tolist() == [[2] * 3, [2] * 3, [1] * 3]
    assert found.shares.shape == (3, 2)
    assert (len(none), none.features.shape, none.candidates[0].tolist()) == (0, (0, 2), [[0, 1]])


def test_indices_stay_with_their_records_through_chunk_and_dataset(tmp_path):
    """A category, a bag and bytes, all candidates and a sample: opened, kept in part, and read in order."""
    opener, body, truth = _indexed(30)
    opened = open_chunk(opener, body, tmp_path)
    assert opened.accepted.all()
    kept = np.arange(30) % 3 > 0
    records = chunk_file.read(tmp_path / opened.file, kept, INDEXED).records
    assert not isinstance(records, AggregateRecords)
    writer = TrainedWriter(tmp_path, INDEXED)
    for half in (slice(0, 10), slice(10, None)):
        writer.append({tag: _some(each, half) for tag, each in records.items()})
    contents = Contents.model_validate_json(writer.close().model_dump_json())
    assert contents.records == {"shown": 20, "sampled": 0}
    found = columns.read_trained(tmp_path, contents, INDEXED, "shown")
    order = sorted(np.flatnonzero(kept), key=lambda row: opened.ids[row].tobytes())
    assert found.ids.tobytes() == opened.ids[order].tobytes()
    assert [each.dtype for each in found.indices] == [np.uint32] * 2
    for stored, given in zip((found.features, *found.indices), truth, strict=True):
        assert np.array_equal(np.asarray(stored), given[order])
    nothing = columns.read_trained(tmp_path, contents, INDEXED, "sampled")
    assert [each.shape for each in nothing.indices] == [(0, 1)]
    assert [each.shape for each in nothing.candidates] == [(0, 3)]
    path = tmp_path / "0-indices-1"
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(DamagedDataset, match="0-indices-1"):
        columns.read_trained(tmp_path, contents, INDEXED, "shown")


INDEXED = {
    "shown": Model("shown", (Category(1000), Bytes(3), Bag(1 << 20, 4))),
    "sampled": Model("sampled", (Category(7),), (LabelSpace.categorical(9),), Sample(3)),
}


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


def _some(records: TrainingRecords, rows: slice) -> TrainingRecords:
    """Of a model that shows all candidates."""
    return TrainingRecords(
        records.ids[rows],
        records.features[rows],
        records.candidates,
        records.shares[rows],
        tuple(each[rows] for each in records.indices),
    )


def test_nothing_is_written_over(tmp_path):
    written(tmp_path)
    with pytest.raises(FileExistsError):
        written(tmp_path)


@pytest.mark.parametrize("name", ["ids", "codes-0", "codes-1", "shares", "entries.json"])
@pytest.mark.parametrize("damage", ["flipped", "longer", "shorter", "gone", "swapped"])
def test_a_file_is_exactly_what_was_written_or_damaged(tmp_path, name, damage):
    contents, path = written(tmp_path), tmp_path / name
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
        columns.read_measured(tmp_path, contents, MEASURE)


def test_contents_refuse_what_they_do_not_know(tmp_path):
    given = json.loads(written(tmp_path).model_dump_json())
    with pytest.raises(ValueError, match="extra"):
        Contents.model_validate_json(json.dumps(given | {"extra": 1}))
