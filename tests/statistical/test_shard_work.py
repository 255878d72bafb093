"""The work of workers does not tell who is in a batch, on any engine, also for one who is alone in a shard.

The attacker is stronger than any real one: it sees every computation of every worker, and is told for half of
the steps whether the victim was in the batch. It wins where only shards with a record of the batch are
visited, and where a shard computes over its records of the batch alone.

It has a clock at the engine too, which neither the ledger's disk nor noise blurs. A step is compared with the
next if one of them has the victim in its batch. Which of the two that is, is a coin of the sampling, so
whatever else the machine does can favour neither: signed ranks are too far off once in ten thousand runs.
"""

import base64
import hashlib
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from maskedlark import workflow
from maskedlark.audit import answers
from maskedlark.compute.engine import Engine
from maskedlark.compute.settings import ComputeSettings, open_engine
from maskedlark.core import batches
from maskedlark.core.records import TrainingRecords
from maskedlark.dp.sampling import Sampling
from maskedlark.functions import model
from maskedlark.functions.cells import Cells
from maskedlark.helper.shards import StoredShard
from maskedlark.randomness import SystemRandomness
from maskedlark.release import parts, shards
from maskedlark.release.messages import Request
from maskedlark.workflow import FrozenDataset
from tests.statistical.shard_work import HeldShard, TimedEngine, WatchedEngine, stored
from tests.statistical.sides import FALSE_ALARM, evidence
from tests.unit.compute.ray_nodes import ray_nodes
from tests.unit.release import stepping
from tests.unit.release.stepping import ORIGIN, Rig

RECORDS, STEPS, RATE = 60, 40, 0.5
VICTIM = 17
SAMPLING = Sampling(kind="poisson", rate=RATE)
TIMED = ["serial-1", "local-2", "ray-2"]
BOUND = NormalDist().inv_cdf(1 - FALSE_ALARM / len(TIMED) / 2)
TIMES, WARM = 540, 20
"""Steps whose times are compared, but for the first."""
CUTS = 1000
"""Pairs of batches whose rows are found, with the victim and without."""
CUT = [((1,), 0.5, 0), ((17, 1, 42), 0.5, VICTIM), ((1000, 1, 4000), 0.02, 1000), ((5000,), 0.02, 2500)]
"""Sizes of shards, the rate, and the victim's place: alone in its shard, or among others."""


@pytest.fixture(
    scope="module",
    params=[
        "serial-1",
        "local-2",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("local-4", "ray-2")),
    ],
)
def engine(request) -> Iterator[Engine]:
    kind, _, workers = request.param.partition("-")
    if kind != "ray":
        with closing(open_engine(ComputeSettings(engine=kind, workers=int(workers)), "helper-0")) as made:
            yield made
        return
    with pytest.MonkeyPatch.context() as patch, ray_nodes(1) as cluster:
        cluster.let_in(patch)
        settings = ComputeSettings(
            engine="ray", address=cluster.address, workers=int(workers), storage="memory://unused"
        )
        with closing(open_engine(settings, "helper-0")) as made:
            yield made


def pieces(dataset: FrozenDataset, tag: str) -> list[TrainingRecords]:
    """The records of a model in three shards, of which the second has the victim and nobody else."""
    held = dataset.held[tag]
    assert isinstance(held, TrainingRecords)
    cuts = np.split(np.arange(len(held)), [VICTIM, VICTIM + 1])
    return [held.select_rows(rows) for rows in cuts]


def alone(dataset: FrozenDataset, tag: str) -> list[HeldShard]:
    return [HeldShard(each) for each in pieces(dataset, tag)]


def attacked(engine: Engine, folder, monkeypatch) -> tuple[int, answers.Guesses]:
    """How many kinds of steps the attacker sees, and how often it is right where it was told nothing."""
    watched = WatchedEngine(engine)
    monkeypatch.setattr(FrozenDataset, "shards", alone)
    monkeypatch.setattr(workflow, "SerialEngine", lambda: watched)
    with closing(Rig(folder, stepping.document(), (RECORDS,))) as rig:
        request = rig.request(sampling=SAMPLING, steps=STEPS)
        pipeline = rig.pipelines[0]
        pipeline.open_session(ORIGIN, request.encode(), request)
        for step in range(STEPS):
            pipeline.step(ORIGIN, bytes.fromhex(request.id), step, stepping.body(stepping.network()))
        seed = rig.seeds[rig.digests[0]]
        drawn = [batches.poisson(seed, "clicks", step, RATE, RECORDS) for step in range(STEPS)]
    return guessed(watched, np.array([VICTIM in each.batch for each in drawn]))


def guessed(watched: WatchedEngine, truth: np.ndarray) -> tuple[int, answers.Guesses]:
    """What the attacker makes of all that it saw."""
    rounds, rest = divmod(len(watched.seen), STEPS)
    assert rest == 0
    seen = [sum(watched.seen[start : start + rounds], ()) for start in range(0, len(watched.seen), rounds)]
    visited = np.array([sum(map(len, each)) for each in seen])
    rows = np.array([sum(map(sum, each)) for each in seen])
    smallest = np.array([min(min(own, default=0) for own in each) for each in seen])
    guesses = answers.learned([visited, rows, smallest], truth)
    half = truth[STEPS // 2 :]
    print(len(set(seen)), "kinds of steps")
    return len(set(seen)), answers.guessed(guesses, half, answers.base_rate(half))


def test_work_tells_nothing_of_one_who_is_alone_in_a_shard(engine, tmp_path, monkeypatch):
    kinds, found = attacked(engine, tmp_path, monkeypatch)
    print(found)
    assert kinds == 1
    assert not found.leaks


def question(rig: Rig, number: int) -> Request:
    """Counts in two cells, over half of the records."""
    arguments = {
        "tag": "clicks",
        "model": model.describe(stepping.network()).model_dump(mode="json"),
        "weights": base64.b64encode(stepping.body(stepping.network())).decode(),
        "tables": [{"cells": {"kind": "buckets", "edges": [0.5]}}],
        "part": "held_out",
        "held_out": 0.5,
    }
    digests = tuple(digest.hex() for digest in rig.digests)
    return Request(id=f"{number:032x}", datasets=digests, function="cells", arguments=arguments, noise=1e-3)


def asked(engine: Engine, folder, monkeypatch) -> tuple[int, answers.Guesses]:
    """The same of counts in cells over a held-out part, whose shards are files. Each time it is another."""
    watched, shown, out = WatchedEngine(engine), dict[str, list[StoredShard]](), list[bool]()
    held_out = batches.held_out

    def in_files(dataset: FrozenDataset, tag: str) -> list[StoredShard]:
        if tag not in shown:
            shown[tag] = stored(folder / "files", dataset.document.declared_models[tag], pieces(dataset, tag))
        return shown[tag]

    def drawn(seed: bytes, tag: str, share: float, size: int) -> np.ndarray:
        mine = held_out(hashlib.sha256(seed + bytes([len(out)])).digest(), tag, share, size)
        out.append(bool(mine[VICTIM]))
        return mine

    monkeypatch.setattr(FrozenDataset, "shards", in_files)
    monkeypatch.setattr(batches, "held_out", drawn)
    monkeypatch.setattr(workflow, "SerialEngine", lambda: watched)
    huge = {"epsilon": 1e6, "delta": 1e-3}
    quiet = {name: {"kind": "laplace", "noise_floor": 1e-3} for name in ("sums", "cells")}
    budgets: dict[str, Any] = {"budget": huge, "training": {"adserver": huge, "coalition": huge}}
    document = stepping.document(mechanisms=quiet, **budgets)
    with closing(Rig(folder, document, (RECORDS,), {"cells": Cells()})) as rig:
        for number in range(STEPS):
            request = question(rig, number + 1)
            rig.pipelines[0].answer(ORIGIN, request.encode(), request)
    return guessed(watched, np.array(out))


@pytest.mark.long
def test_the_work_of_a_held_out_part_tells_nothing_over_stored_shards(engine, tmp_path, monkeypatch):
    kinds, found = asked(engine, tmp_path, monkeypatch)
    print(found)
    assert kinds == 1
    assert not found.leaks


def visiting_some(engine, computation, rows):
    """Only shards that have a record of the batch."""
    return plain(engine, computation, [each for each in rows if each.counted.any()] or rows)


plain = shards.compute


def unpadded(rows, size, rng):
    """Only records of the batch."""
    own = rows[rows < size]
    return own, np.ones(len(own), np.bool_)


@pytest.mark.parametrize(
    ("module", "name", "naive"), [(shards, "compute", visiting_some), (parts, "_padded", unpadded)]
)
@pytest.mark.parametrize("attack", [attacked, pytest.param(asked, marks=pytest.mark.long)])
def test_a_helper_that_saves_work_is_seen(engine, tmp_path, monkeypatch, module, name, naive, attack):
    monkeypatch.setattr(module, name, naive)
    _, found = attack(engine, tmp_path, monkeypatch)
    print(found)
    assert found.right == 1.0
    assert found.allowed < 0.8


def timed(engine: Engine, folder: Path, steps: int) -> float:
    """By how many standard deviations steps with the victim took longer."""
    clock, times = TimedEngine(engine), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FrozenDataset, "shards", alone)
        patch.setattr(workflow, "SerialEngine", lambda: clock)
        with closing(Rig(folder, stepping.document(), (RECORDS,))) as rig:
            request, body = rig.request(sampling=SAMPLING, steps=steps), stepping.body(stepping.network())
            rig.pipelines[0].open_session(ORIGIN, request.encode(), request)
            for step in range(steps):
                clock.took_s = 0.0
                rig.pipelines[0].step(ORIGIN, bytes.fromhex(request.id), step, body)
                times.append(clock.took_s)
            seed = rig.seeds[rig.digests[0]]
    is_in = [VICTIM in batches.poisson(seed, "clicks", step, RATE, RECORDS).batch for step in range(steps)]
    differences, before = [], WARM
    for step in range(WARM + 1, steps):
        if before < step and is_in[before] != is_in[step]:
            differences.append((times[step] - times[before]) * (1 if is_in[step] else -1))
            before = step + 1
        else:
            before = step
    print(f"{len(differences)} pairs, off by {np.median(differences):.1e} s of {np.median(times):.1e} s")
    return evidence(differences)


@pytest.mark.long
@pytest.mark.parametrize("engine", TIMED, indirect=True, scope="module")
def test_time_tells_nothing_of_one_who_is_alone_in_a_shard(engine, tmp_path):
    found = timed(engine, tmp_path, TIMES)
    print(found)
    assert abs(found) < BOUND


@pytest.mark.long
@pytest.mark.parametrize("engine", TIMED, indirect=True, scope="module")
def test_a_helper_that_saves_work_is_seen_by_its_time(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "compute", visiting_some)
    # More of them: here it is the machine's noise that must not hide it.
    found = timed(engine, tmp_path, 3 * TIMES)
    print(found)
    assert found > BOUND


def cutting(sizes: tuple[int, ...], rate: float, victim: int) -> float:
    """By how many standard deviations finding the rows of every shard takes longer with the victim.

    Everything else is the same, the memory that says who is in the batch too.
    """
    total, rng = sum(sizes), np.random.default_rng(0)
    cuts = np.split(np.arange(total), np.cumsum(sizes)[:-1])
    datasets, counted = [[range(len(each)) for each in cuts]], rng.random(total) < rate
    work = parts.Work((np.arange(total, dtype=np.int32),), counted, rate)

    def took(is_in: bool) -> int:
        counted[victim] = is_in
        start = time.perf_counter_ns()
        work.cut(datasets, SystemRandomness())  # type: ignore[arg-type]
        return time.perf_counter_ns() - start

    differences = []
    for first in (rng.integers(0, 2, CUTS + WARM) == 1).tolist():
        times = {is_in: took(is_in) for is_in in (first, not first)}
        differences.append(float(times[True] - times[False]))
    return evidence(differences[WARM:])


@pytest.mark.parametrize(("sizes", "rate", "victim"), CUT)
def test_time_to_find_the_rows_of_a_shard_tells_nothing_of_its_batch(sizes, rate, victim):
    found = cutting(sizes, rate, victim)
    print(found)
    assert abs(found) < NormalDist().inv_cdf(1 - FALSE_ALARM / len(CUT) / 2)


def by_the_batch(rows, size, rng):
    """The rows of a batch, sought out and written down: the fewer the sooner."""
    counted = np.zeros(size, np.bool_)
    counted[rows[rows < size]] = True
    return batches.places(size), counted


@pytest.mark.parametrize(("sizes", "rate", "victim"), CUT[:2])
def test_rows_that_are_found_by_who_is_in_the_batch_are_seen(sizes, rate, victim, monkeypatch):
    monkeypatch.setattr(parts, "_padded", by_the_batch)
    found = cutting(sizes, rate, victim)
    print(found)
    assert found > 2 * BOUND
