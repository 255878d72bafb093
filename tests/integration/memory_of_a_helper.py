"""How much memory freezing, a query, a part and a step take at a helper: run as a process of its own.

`python -m tests.integration.memory_of_a_helper FOLDER RECORDS SHARD_BYTES HELD_BYTES` prints, as JSON, the
most bytes that each took beyond what there was before it. One shard stays in memory. With `WORKERS
KEPT_BYTES` more there are worker processes, which count too and keep so many bytes of shards, and what
datasets are in is sealed.
"""

import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benches.ingest import TAG, document_of
from benches.scale import _gradient, _moments
from maskedlark.clock import SECONDS_AN_HOUR, SystemClock
from maskedlark.compute.engine import Engine, SerialEngine
from maskedlark.compute.local import LocalEngine
from maskedlark.core import field
from maskedlark.core.purpose import Purpose
from maskedlark.core.sharing import ID_BYTES
from maskedlark.dp.sampling import Sampling
from maskedlark.functions.function import Part, Query
from maskedlark.helper import sharding, shards
from maskedlark.helper.dataset_files import DatasetFiles, LocalFiles, SealedFiles, key_of
from maskedlark.helper.freezing import AgreedChunk, Merged, merge
from maskedlark.helper.shards import FrozenDataset
from maskedlark.randomness import SystemRandomness
from maskedlark.release import parts
from maskedlark.release.parts import Batches
from maskedlark.release.shards import Computation, ShardRows, compute
from maskedlark.wire.datasets import pack
from maskedlark.wire.report import HEAD_BYTES, Head

CHUNK, FEATURES, RATE = 16_384, 100, 0.01


MOST: list[int] = []
"""What there was at most, at each work."""


def anonymous() -> int:
    """The bytes of this process and its workers that are of no file."""
    pids = [os.getpid(), *(each.pid for each in multiprocessing.active_children())]
    every = [Path(f"/proc/{pid}/status").read_text().split() for pid in pids]
    return sum(int(status[status.index("RssAnon:") + 1]) for status in every) << 10


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
    MOST.append(most)
    return most - before


def limit(kept_bytes: int, _: int) -> None:
    """Keep fewer bytes of shards. Run by a worker."""
    shards.KEPT_BYTES = kept_bytes


def chunks(files: DatasetFiles, records: int) -> list[AgreedChunk]:
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
        files.write(name, partial(np.savez, **arrays))  # type: ignore[arg-type]
        bits = pack(np.ones(size, np.bool_))
        agreed.append(AgreedChunk(number, name, size, bits, bits, 0))
    return agreed


def main(
    folder: Path, records: int, shard_bytes: int, held_bytes: int, workers: int = 0, kept_bytes: int = 0
) -> None:
    """Measure."""
    sharding.HELD_BYTES = held_bytes
    document, rng = document_of("none"), SystemRandomness()
    limit(kept_bytes, 0)
    engine: Engine = LocalEngine(workers) if workers else SerialEngine()
    files: DatasetFiles = LocalFiles(folder / "dataset")
    if workers:
        engine.map(limit, kept_bytes, range(workers))
        files = SealedFiles(f"file://{folder}/storage", key_of(b"secret"))
    files.make()
    start = anonymous()
    target = files.within("columns")
    target.make()
    agreed, made = chunks(files, records), list[Merged]()
    frozen = taken(
        lambda: made.append(merge(engine, files, target, document, Purpose.TRAIN, agreed, shard_bytes, rng))
    )
    dataset = FrozenDataset(bytes(32), document, Purpose.TRAIN, 1 << 40, target, made[0].contents)
    every = dataset.shards(TAG)
    poisson, session = Sampling(kind="poisson", rate=RATE), list[Batches]()

    def step() -> list[ShardRows]:
        session.append(Batches(poisson, TAG, [bytes(32)], [0], [records], lambda _: 1))
        return session[0].work(0).cut([every], rng)

    def asked(query: Query, rows: Callable[[], list[ShardRows]]) -> int:
        work = Computation(query)
        compute(engine, work, rows()[:1])  # What is loaded, or chosen by size, once.
        session.clear()
        return taken(lambda: query.tables(compute(engine, work, rows()), 1))

    figures = {
        "records": dataset.size(TAG),
        "shards": len(every),
        "bytes": dataset.stored_bytes(TAG),
        "freeze": frozen,
        "query": asked(_moments(), lambda: [ShardRows(shard) for shard in every]),
        "part": asked(
            _moments(),
            lambda: parts.of_part(Part("held_out", 0.1), [bytes(32)], TAG, [records]).cut([every], rng),
        ),
        "step": asked(_gradient(), step),
    }
    print(json.dumps(figures | {"all": max(MOST) - start}))
    engine.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
