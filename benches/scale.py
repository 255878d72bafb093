"""Ten million records at a helper, on two cores: sums by a million keys, a gradient step, moments, ingest.

Columns are made directly, in the files that freezing writes. A million reports are really sealed, sent and
opened: with one worker, with two, and on a Ray cluster of this machine.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benches import scale_groupby
from benches.ingest import (
    MILLION,
    TAG,
    Chunk,
    document_of,
    helper_process,
    make_body,
    parameter_service,
    send_dataset,
    watched,
)
from benches.scale_groupby import write_shard
from benches.timing import seconds
from maskedlark.adserver.sending import IN_FLIGHT
from maskedlark.compute.local import LocalEngine
from maskedlark.core import field
from maskedlark.core.purpose import Purpose
from maskedlark.dp.sampling import Sampling
from maskedlark.exact.clip import Clip, Norm
from maskedlark.exact.losses import BinaryCrossEntropy
from maskedlark.exact.moments import Representation
from maskedlark.exact.network import Network
from maskedlark.exact.quantise import Quantised, quantise
from maskedlark.functions.function import Query
from maskedlark.functions.gradient import GradientQuery
from maskedlark.functions.moments import MomentsQuery
from maskedlark.helper.columns import Contents
from maskedlark.helper.dataset_files import LocalFiles
from maskedlark.helper.shards import FrozenDataset
from maskedlark.parameters.document import Document
from maskedlark.randomness import SystemRandomness
from maskedlark.release.parts import Batches
from maskedlark.release.shards import Computation, ShardRows, compute
from maskedlark.wire.datasets import PARTS
from maskedlark.wire.hpke import SealingKey
from tests.unit.exact.models import dense, random_parameters

RECORDS, FEATURES, SHARDS, BATCH, ROUNDS = 10_000_000, 100, 20, 100_000, 5
WORKERS = 2


def measure(progress: Callable[[str], None]) -> dict[str, object]:
    """Ratios, seconds, and the memory of every process."""
    figures = scale_groupby.measure(progress)
    figures |= _training(progress)
    return figures | _ingest(progress)


def _training(progress: Callable[[str], None]) -> dict[str, object]:
    """A step over a batch, and moments of all records, by two workers."""
    document = document_of("none")
    with tempfile.TemporaryDirectory() as folder, closing(LocalEngine(WORKERS)) as engine:
        progress("writing ten million records to train")
        dataset = _written(LocalFiles(Path(folder)), document)
        shards = dataset.shards(TAG)
        batches = Batches(Sampling(kind="poisson", rate=BATCH / RECORDS), TAG, [bytes(32)], [0], [RECORDS])
        step = _gradient()
        rng, took = SystemRandomness(), []
        with watched(os.getpid()) as peak:
            for number in range(ROUNDS + 1):
                progress(f"step {number} of {ROUNDS}")
                start = time.perf_counter()
                rows = batches.work(number).cut([shards], rng)
                step.tables(compute(engine, Computation(step), rows), 1)
                took.append(time.perf_counter() - start)
            progress("moments of all")
            question, every = _moments(), [ShardRows(shard) for shard in shards]
            moments_s = seconds(lambda: question.tables(compute(engine, Computation(question), every), 1))
    return {
        "step_network": "100-128-64-1",
        "step_batch": BATCH,
        "step_s": round(sorted(took[1:])[ROUNDS // 2], 3),
        "first_step_s": round(took[0], 3),
        "moments_all_s": round(moments_s, 2),
        "training_peak_mb": peak.each_mb,
    }


def _written(files: LocalFiles, document: Document) -> FrozenDataset:
    rng, each = np.random.default_rng(2), RECORDS // SHARDS
    shards = []
    for number in range(SHARDS):
        arrays: dict[str, np.ndarray] = {
            "0-ids": rng.integers(0, 256, (each, 16), dtype=np.uint8),
            "0-features": rng.integers(0, 256, (each, FEATURES), dtype=np.uint8),
            "0-shares": rng.integers(0, field.P, (each, 2)),
        }
        shards.append(write_shard(files, number, arrays, {TAG: each}))
    contents = Contents(shards=tuple(shards), files={})
    return FrozenDataset(bytes(32), document, Purpose.TRAIN, 1 << 40, files, contents)


def _gradient() -> Query:
    network = _network(128, 64)
    return GradientQuery(TAG, network, _weights(network), Clip(1.0, Norm.L2, 19, 0))


def _moments() -> Query:
    network = _network()
    sent = _weights(network)
    phi = Representation(network, sent, 1.0, Norm.L2, 16)
    spaces = document_of("none").declared_models[TAG].labels
    return MomentsQuery(TAG, network, sent, phi, spaces, (0,))


def _weights(network: Network) -> Quantised:
    activations = (8,) * (len(network.layers) - 1)
    return quantise(network, random_parameters(network, 0), activations)


def _network(*hidden: int) -> Network:
    return dense((FEATURES, *hidden, 1), BinaryCrossEntropy())


def _ingest(progress: Callable[[str], None]) -> dict[str, object]:
    """The same sealed reports, sent to helpers that differ in their engines."""
    document, cores = document_of("none"), set(os.sched_getaffinity(0))
    engines = {
        "one": "workers = 1",
        "two": f"workers = {WORKERS}",
        "ray": f'engine = "ray", address = "local", workers = {WORKERS}',
    }
    took, cpu, memory = {}, {}, {}
    with tempfile.TemporaryDirectory() as name, parameter_service(Path(name), document) as service:
        folder, keys, chunks = Path(name), None, []
        for engine, settings in engines.items():
            with helper_process(folder / engine, service, settings, cores, keys) as helper:
                if keys is None:
                    keys = folder / engine / "state" / "keys"
                    chunks = _sealed(document, helper.key.sealing, progress)
                    # The first start of workers, and of what they import, is no part of it.
                with ThreadPoolExecutor(IN_FLIGHT) as threads:
                    send_dataset(document, helper, "warm", _warm(document, helper.key.sealing), threads)
                    progress(f"a million reports, {settings}")
                    before = time.process_time()
                    with watched(helper.pid) as peak:
                        took[engine] = seconds(
                            lambda: send_dataset(document, helper, "million", iter(chunks), threads)  # noqa: B023
                        )
                    cpu[engine], memory[engine] = time.process_time() - before, peak.each_mb
    return {
        "reports": len(chunks) * PARTS,
        "ingest_s": {engine: round(each, 1) for engine, each in took.items()},
        "two_over_one": round(took["one"] / took["two"], 3),
        "ray_over_local": round(took["two"] / took["ray"], 3),
        "sender_cpu_s": {engine: round(each, 1) for engine, each in cpu.items()},
        "ingest_peak_mb": memory,
    }


def _sealed(document: Document, key: SealingKey, progress: Callable[[str], None]) -> list[Chunk]:
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as makers:
        made: list[Chunk] = []
        for chunk in makers.map(partial(make_body, document), [key] * -(-MILLION // PARTS)):
            if len(made) % 100 == 0:
                progress(f"{len(made) * PARTS} of {MILLION} reports are sealed")
            made.append(chunk)
    return made


def _warm(document: Document, key: SealingKey) -> Iterator[Chunk]:
    for _ in range(2 * WORKERS):
        yield make_body(document, key)
