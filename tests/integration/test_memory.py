"""A helper's memory does not grow with a dataset: freezing, a query, a held-out part and a step.

Each in a process of its own, with N records and with 4 N. Before datasets were cut into shards, freezing took
216 bytes for each record; with one shard, and all that is held at once, the test finds more than that.
"""

import json
import os
import subprocess
import sys

import pytest

RECORDS = 300_000
"""More than are drawn or filled at once (`batches.BLOCK`): below that, memory grows with the blocks."""
SHARDS, WHOLE = (4 << 20, 8 << 20), (1 << 50, 1 << 50)
"""The bytes of a shard, and those that are held before they are written."""
WORKERS, KEPT = 2, 16 << 20
"""Worker processes, and the bytes of sealed shards that each keeps."""
SLOPE = 4
"""Bytes per record that are no record's: names of files, bitmaps, pages that are freed late."""


def taken(folder, records, sizes):
    """The most bytes that everything took, by what it was."""
    given = map(str, (folder / f"{records}", records, *sizes))
    command = [sys.executable, "-m", "tests.integration.memory_of_a_helper", *given]
    # What is freed goes back to the system at once, so that the most is what was held.
    fixed = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    done = subprocess.run(command, env=os.environ | fixed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["records"] == records
    return found


@pytest.mark.long
def test_memory_does_not_grow_with_the_dataset(tmp_path):
    less, more = (taken(tmp_path, records, SHARDS) for records in (RECORDS, 4 * RECORDS))
    grows = {what: (more[what] - less[what]) / (3 * RECORDS) for what in ("freeze", "query", "part", "step")}
    assert grows["freeze"] < SLOPE, "of 132 bytes in its columns"
    assert grows["query"] < SLOPE
    # As docs/OPERATIONS.md has it, with a tenth held out and a rate of 0.01.
    assert grows["part"] < 8 + SLOPE
    assert 2 < grows["step"] < 5 + SLOPE, "4 of them are how often each was in a batch"


@pytest.mark.long
def test_a_dataset_that_is_held_at_once_is_noticed(tmp_path):
    assert taken(tmp_path, RECORDS, WHOLE)["freeze"] > 216 * RECORDS


@pytest.mark.long
@pytest.mark.parametrize(("kept", "takes_less"), [(KEPT, True), (1 << 30, False)])
def test_a_helper_and_its_workers_take_less_than_a_sealed_dataset(tmp_path, kept, takes_less):
    """Beyond what they have before they begin. If workers kept all shards it would be more."""
    found = taken(tmp_path, 4 * RECORDS, (*SHARDS, WORKERS, kept))
    assert (found["all"] < found["bytes"]) == takes_less
