"""Columns on disk: what was written piece by piece is read as one, or not at all."""

import json

import numpy as np
import pytest

from maskedlark.core.declared import Bytes, Measure, Model, Value
from maskedlark.core.records import AggregateRecords, Coded, TrainingRecords
from maskedlark.core.sharing import ID_BYTES
from maskedlark.helper import columns
from maskedlark.helper.columns import Contents, MeasuredWriter, TrainedWriter
from maskedlark.helper.errors import DamagedDataset

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
