"""How much memory freezing, a query, a part and a step take at a helper: run as a process of its own.

`python -m tests.integration.memory_of_a_helper FOLDER RECORDS SHARD_BYTES HELD_BYTES` prints, as JSON, the
most bytes that each took beyond what there was before it. Memory that is mapped from files does not count:
the system takes it back when it needs it.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benches.ingest import TAG, document_of
from benches.scale import _gradient, _moments
from maskedlark.clock import SECONDS_AN_HOUR, SystemClock
from maskedlark.compute.engine import SerialEngine
from maskedlark.core import field
from maskedlark.core.purpose import Purpose
from maskedlark.core.sharing import ID_BYTES
from maskedlark.dp.sampling import Sampling
from maskedlark.functions.function import Part, Query
from maskedlark.helper import sharding
from maskedlark.helper.dataset_files import LocalFiles
from maskedlark.helper.freezing import AgreedChunk, Merged, merge
from maskedlark.helper.shards import FrozenDataset
from maskedlark.randomness import SystemRandomness
from maskedlark.release import parts
from maskedlark.release.parts import Batches
from maskedlark.release.shards import Computation, ShardRows, compute
from maskedlark.wire.datasets import pack
from maskedlark.wire.report import HEAD_BYTES, Head

CHUNK, FEATURES, BATCH = 16_384, 100, 1_000


def anonymous() -> int:
    """This process's bytes that are of no file."""
    status = Path("/proc/self/status").read_text().split()
    return int(status[status.index("RssAnon:") + 1]) << 10


def taken(work: Callable[[], object]) -> int:
    """The most bytes that some work takes."""
    before, most, over = anonymous(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.is_set():
            most = max(most, anonymous())
            time.sleep(0.001)

    watching = threading.Thread(target=watch)
    watching.start()
    work()
    over.set()
    watching.join()
    return most - before


def chunks(files: LocalFiles, records: int) -> list[AgreedChunk]:
    """Chunks as ingest writes them, made directly."""
    rng, hour, agreed = np.random.default_rng(1), SystemClock().now() // SECONDS_AN_HOUR, []
    tail = np.frombuffer(Head(bytes(ID_BYTES), hour, bytes(32)).encode()[ID_BYTES:], np.uint8)
    for number, start in enumerate(range(0, records, CHUNK)):
        size = min(CHUNK, records - start)
        heads = np.empty((size, HEAD_BYTES), np.uint8)
        heads[:, :ID_BYTES], heads[:, ID_BYTES:] = rng.integers(0, 256, (size, ID_BYTES), np.uint8), tail
        arrays = {
            "parts": np.arange(size, dtype=np.uint32),
            "heads": heads,
            "tags": np.frombuffer(json.dumps([TAG]).encode(), np.uint8),
            "0-rows": np.arange(size, dtype=np.uint32),
            "0-features": rng.integers(0, 256, (size, FEATURES), dtype=np.uint8),
            "0-shares": rng.integers(0, field.P, (size, 2)),
            "0-candidates-0": np.array([[0, 1]]),
        }
        name = files.unique("chunk-")
        with (files.folder / name).open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        bits = pack(np.ones(size, np.bool_))
        agreed.append(AgreedChunk(number, name, size, bits, bits, 0))
    return agreed


def main(folder: Path, records: int, shard_bytes: int, held_bytes: int) -> None:
    """Measure."""
    sharding.HELD_BYTES = held_bytes
    document, engine, rng = document_of("none"), SerialEngine(), SystemRandomness()
    files = LocalFiles(folder / "dataset")
    files.make()
    target = files.within("columns")
    target.make()
    agreed, made = chunks(files, records), list[Merged]()
    frozen = taken(
        lambda: made.append(merge(engine, files, target, document, Purpose.TRAIN, agreed, shard_bytes, rng))
    )
    dataset = FrozenDataset(bytes(32), document, Purpose.TRAIN, 1 << 40, target, made[0].contents)
    shards = dataset.shards(TAG)
    poisson = Sampling(kind="poisson", rate=BATCH / records)

    def asked(query: Query, rows: Callable[[], list[ShardRows]]) -> int:
        work = Computation(query)
        compute(engine, work, rows()[:1])  # What is loaded, or chosen by size, once.
        return taken(lambda: query.tables(compute(engine, work, rows()), 1))

    figures = {
        "records": dataset.size(TAG),
        "shards": len(shards),
        "freeze": frozen,
        "query": asked(_moments(), lambda: [ShardRows(shard) for shard in shards]),
        "part": asked(
            _moments(),
            lambda: parts.of_part(Part("held_out", 0.1), [bytes(32)], TAG, [records]).cut([shards], rng),
        ),
        "step": asked(
            _gradient(),
            lambda: Batches(poisson, TAG, [bytes(32)], [0], [records]).work(0).cut([shards], rng),
        ),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
