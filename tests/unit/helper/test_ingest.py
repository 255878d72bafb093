"""Workers: they open what one process would, end with the helper, and one that dies harms no other chunk."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from maskedlark.core.declared import Bytes, Model
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import AggregateRecords
from maskedlark.errors import Truncated, UnsupportedVersion, WrongLength
from maskedlark.helper import chunk_file
from maskedlark.helper.errors import DamagedDataset, IngestInterrupted
from maskedlark.helper.ingest import ChunkWorkers, open_chunk
from maskedlark.wire.acceptance import Terms
from maskedlark.wire.datasets import MAX_EXPANDED, MAX_PARTS, max_parts
from maskedlark.wire.report import Opener, ReportLayout
from tests.unit.helper.cases import DOCUMENT, KEYS, LIFETIME, NOW, measured

LAYOUT = DOCUMENT.layout(Purpose.AGGREGATE)
SIZE = LAYOUT.part_size(0)


def opener() -> Opener:
    return Opener(LAYOUT, 0, {KEYS[0].key_id: KEYS[0]}, Terms(LIFETIME, NOW))


@pytest.fixture
def workers():
    made = ChunkWorkers(2)
    yield made
    made.close()


def test_workers_take_what_one_process_takes(tmp_path, workers):
    bodies = [measured(5).chunk(0) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        opened = [*threads.map(lambda body: workers.open(opener(), body, tmp_path), bodies)]
    assert 1 <= len(workers._pool._processes) <= 2
    assert len({each.file for each in opened}) == 4
    for body, each in zip(bodies, opened, strict=True):
        mine = open_chunk(opener(), body, tmp_path)
        assert np.array_equal(mine.ids, each.ids)
        assert np.array_equal(mine.hours, each.hours)
        assert each.accepted.tolist() == [True] * 5
        assert each.refused == {}
        ours, theirs = (
            chunk_file.read(tmp_path / name, each.accepted, {}).records for name in (mine.file, each.file)
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
    made = ChunkWorkers(workers)
    with pytest.raises(error):
        made.open(opener(), body, tmp_path)
    made.close()
    assert [*tmp_path.iterdir()] == []


def test_a_chunk_has_so_many_parts_at_most(tmp_path):
    with pytest.raises(WrongLength):
        open_chunk(opener(), b"\2" + bytes(SIZE * (MAX_PARTS + 1)), tmp_path)


def test_parts_that_are_none_are_refused_one_by_one(tmp_path):
    good = measured(1).chunk(0)
    opened = open_chunk(opener(), good[:1] + bytes(2 * SIZE) + good[1:], tmp_path)
    assert opened.accepted.tolist() == [False, False, True]
    assert sum(opened.refused.values()) == 2


def test_a_worker_that_is_killed_is_replaced(tmp_path, workers):
    body = measured(2).chunk(0)
    workers.open(opener(), body, tmp_path)
    for process in list(workers._pool._processes.values()):
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    with pytest.raises(IngestInterrupted, match="send it again"):
        workers.open(opener(), body, tmp_path)
    assert workers.open(opener(), body, tmp_path).accepted.all()


def test_workers_leave_interrupts_to_the_helper(tmp_path, workers):
    body = measured(2).chunk(0)
    workers.open(opener(), body, tmp_path)
    before = set(workers._pool._processes)
    for pid in before:
        os.kill(pid, signal.SIGINT)
    assert workers.open(opener(), body, tmp_path).accepted.all()
    assert before <= set(workers._pool._processes)


_PARENT = """
import os, sys
from pathlib import Path
from maskedlark.helper.ingest import ChunkWorkers
from tests.unit.helper.test_ingest import opener
from tests.unit.helper.cases import measured
if __name__ == "__main__":
    workers = ChunkWorkers(2)
    workers.open(opener(), measured(1).chunk(0), Path(sys.argv[1]))
    print(*workers._pool._processes, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_workers_end_with_a_helper_that_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
        env=environment,
    )
    workers = [int(pid) for pid in done.stdout.split()]
    assert done.returncode == -signal.SIGKILL
    assert workers
    deadline = time.monotonic() + 30
    while any(_runs(pid) for pid in workers):
        assert time.monotonic() < deadline, "a worker is left, and it holds keys"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_chunk_file_of_other_parts_is_damaged(tmp_path):
    opened = open_chunk(opener(), measured(3).chunk(0), tmp_path)
    path = tmp_path / opened.file
    with pytest.raises(DamagedDataset, match="other parts"):
        chunk_file.read(path, np.ones(2, np.bool_), {})
    with pytest.raises(DamagedDataset, match="fewer"):
        chunk_file.read(path, np.ones(4, np.bool_), {})


def test_a_small_chunk_cannot_expand_without_limit(tmp_path):
    """A seed of 16 bytes expands to as many shares as a record shows: 1,024 labels are 8 KiB."""
    model = Model("wide", (Bytes(1),), (LabelSpace.integers(0, 1023),) * 4)
    layout = ReportLayout("ads.example", bytes(32), ("helper-0", "helper-1"), (model,))
    most = max_parts(layout)
    assert most * layout.part_size(0) <= MAX_EXPANDED < (most + 1) * layout.part_size(0)
    wide = Opener(layout, 1, {}, Terms(86_400, 0))
    with pytest.raises(WrongLength, match=f"1 to {most} parts"):
        open_chunk(wide, b"\2" + bytes(layout.part_size(1) * (most + 1)), tmp_path)
