"""Workers: they open what one process would, end with the helper, and one that dies harms no other chunk."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from maskedlark.compute.local import LocalEngine
from maskedlark.compute.settings import ComputeSettings, open_engine
from maskedlark.core.declared import Bytes, Model
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import AggregateRecords
from maskedlark.errors import UnsupportedVersion, WrongLength
from maskedlark.helper import chunk_file
from maskedlark.helper.dataset_files import LocalFiles
from maskedlark.helper.errors import DamagedDataset
from maskedlark.helper.ingest import SentChunk, open_chunk
from maskedlark.wire.acceptance import Terms
from maskedlark.wire.datasets import MAX_EXPANDED, MAX_PARTS, max_parts
from maskedlark.wire.errors import Truncated
from maskedlark.wire.report import Opener, ReportLayout
from tests.unit.helper.cases import DOCUMENT, KEYS, LIFETIME, NOW, measured

LAYOUT = DOCUMENT.layout(Purpose.AGGREGATE)
SIZE = LAYOUT.part_size(0)


def opener() -> Opener:
    return Opener(LAYOUT, 0, {KEYS[0].key_id: KEYS[0]}, Terms(LIFETIME, NOW))


def sent(body: bytes, folder: Path) -> SentChunk:
    return SentChunk(opener(), body, LocalFiles(folder))


def test_workers_take_what_one_process_takes(tmp_path):
    bodies = [measured(5).chunk(0) for _ in range(4)]
    with closing(LocalEngine(2)) as engine, ThreadPoolExecutor(4) as threads:
        opened = [*threads.map(lambda body: engine.run(open_chunk, sent(body, tmp_path)), bodies)]
    assert len({each.file for each in opened}) == 4
    for body, each in zip(bodies, opened, strict=True):
        mine = open_chunk(sent(body, tmp_path))
        assert np.array_equal(mine.ids, each.ids)
        assert np.array_equal(mine.hours, each.hours)
        assert each.accepted.tolist() == [True] * 5
        assert each.refused == {}
        ours, theirs = (
            chunk_file.read(LocalFiles(tmp_path), name, each.accepted, {}).records
            for name in (mine.file, each.file)
        )
        assert isinstance(ours, AggregateRecords)
        assert isinstance(theirs, AggregateRecords)
        assert np.array_equal(ours.shares, theirs.shares)
        assert ours.keys["place"].entries == theirs.keys["place"].entries


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", Truncated),
        (b"\1" + bytes(SIZE), UnsupportedVersion),
        (b"\2", WrongLength),
        (b"\2abc", WrongLength),
    ],
)
def test_what_is_no_chunk_is_refused_by_name(tmp_path, workers, body, error):
    with closing(open_engine(ComputeSettings(workers=workers), "helper-0")) as engine, pytest.raises(error):
        engine.run(open_chunk, sent(body, tmp_path))
    assert [*tmp_path.iterdir()] == []


def test_a_chunk_has_so_many_parts_at_most(tmp_path):
    with pytest.raises(WrongLength):
        open_chunk(sent(b"\2" + bytes(SIZE * (MAX_PARTS + 1)), tmp_path))


def test_parts_that_are_none_are_refused_one_by_one(tmp_path):
    good = measured(1).chunk(0)
    opened = open_chunk(sent(good[:1] + bytes(2 * SIZE) + good[1:], tmp_path))
    assert opened.accepted.tolist() == [False, False, True]
    assert sum(opened.refused.values()) == 2


def test_a_chunk_file_of_other_parts_is_damaged(tmp_path):
    opened = open_chunk(sent(measured(3).chunk(0), tmp_path))
    files = LocalFiles(tmp_path)
    with pytest.raises(DamagedDataset, match="other parts"):
        chunk_file.read(files, opened.file, np.ones(2, np.bool_), {})
    with pytest.raises(DamagedDataset, match="fewer"):
        chunk_file.read(files, opened.file, np.ones(4, np.bool_), {})


def test_a_small_chunk_cannot_expand_without_limit(tmp_path):
    """A seed of 16 bytes expands to as many shares as a record shows: 1,024 labels are 8 KiB."""
    model = Model("wide", (Bytes(1),), (LabelSpace.integers(0, 1023),) * 4)
    layout = ReportLayout("ads.example", bytes(32), ("helper-0", "helper-1"), (model,))
    most = max_parts(layout)
    assert most * layout.part_size(0) <= MAX_EXPANDED < (most + 1) * layout.part_size(0)
    wide = Opener(layout, 1, {}, Terms(86_400, 0))
    with pytest.raises(WrongLength, match=f"1 to {most} parts"):
        open_chunk(SentChunk(wide, b"\2" + bytes(layout.part_size(1) * (most + 1)), LocalFiles(tmp_path)))
