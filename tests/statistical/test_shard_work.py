"""The work of workers does not tell who is in a batch, on any engine, also for one who is alone in a shard.

The attacker is stronger than any real one: it sees every computation of every worker, and is told for half of
the steps whether the victim was in the batch. It wins where only shards with a record of the batch are
visited, and where a shard computes over its records of the batch alone.
"""

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from maskedlark import workflow
from maskedlark.audit import answers
from maskedlark.compute.engine import Engine
from maskedlark.compute.settings import ComputeSettings, open_engine
from maskedlark.core import batches
from maskedlark.core.records import TrainingRecords
from maskedlark.dp.sampling import Sampling
from maskedlark.release import parts, shards
from maskedlark.workflow import FrozenDataset
from tests.statistical.shard_work import HeldShard, WatchedEngine
from tests.unit.compute.ray_nodes import ray_nodes
from tests.unit.release import stepping
from tests.unit.release.stepping import ORIGIN, Rig

RECORDS, STEPS, RATE = 60, 40, 0.5
VICTIM = 17
SAMPLING = Sampling(kind="poisson", rate=RATE)


@pytest.fixture(
    scope="module",
    params=["serial-1", "local-2", pytest.param("local-4", marks=pytest.mark.long), "ray-2"],
)
def engine(request) -> Iterator[Engine]:
    kind, _, workers = request.param.partition("-")
    if kind != "ray":
        with closing(open_engine(ComputeSettings(engine=kind, workers=int(workers)), "helper-0")) as made:
            yield made
        return
    with pytest.MonkeyPatch.context() as patch, ray_nodes(1) as cluster:
        patch.setenv("RAY_AUTH_TOKEN", cluster.token)
        settings = ComputeSettings(engine="ray", address=cluster.address, workers=int(workers))
        with closing(open_engine(settings, "helper-0")) as made:
            yield made


def alone(dataset: FrozenDataset, tag: str) -> list[HeldShard]:
    """The records of a model in three shards, of which the second has the victim and nobody else."""
    held = dataset.held[tag]
    assert isinstance(held, TrainingRecords)
    cuts = np.split(np.arange(len(held)), [VICTIM, VICTIM + 1])
    return [HeldShard(held.taken(rows)) for rows in cuts]


def attacked(engine: Engine, folder, monkeypatch) -> tuple[int, answers.Guesses]:
    """How many kinds of steps the attacker sees, and how often it is right where it was told nothing."""
    watched = WatchedEngine(engine)
    monkeypatch.setattr(FrozenDataset, "shards", alone)
    monkeypatch.setattr(workflow, "SerialEngine", lambda: watched)
    with closing(Rig(folder, stepping.document(), (RECORDS,))) as rig:
        request = rig.request(sampling=SAMPLING, steps=STEPS)
        desk = rig.desks[0]
        desk.open_session(ORIGIN, request.encode(), request)
        for step in range(STEPS):
            desk.step(ORIGIN, bytes.fromhex(request.id), step, stepping.body(stepping.network()))
        seed = rig.seeds[rig.digests[0]]
        drawn = [batches.poisson(seed, "clicks", step, RATE, RECORDS) for step in range(STEPS)]
    assert len(watched.seen) == STEPS
    truth = np.array([VICTIM in each.batch for each in drawn])
    visited = np.array([sum(map(len, each)) for each in watched.seen])
    rows = np.array([sum(map(sum, each)) for each in watched.seen])
    smallest = np.array([min(min(own, default=0) for own in each) for each in watched.seen])
    guesses = answers.learned([visited, rows, smallest], truth)
    half = truth[STEPS // 2 :]
    print(len(set(watched.seen)), "kinds of steps")
    return len(set(watched.seen)), answers.guessed(guesses, half, answers.base_rate(half))


def test_work_tells_nothing_of_one_who_is_alone_in_a_shard(engine, tmp_path, monkeypatch):
    kinds, found = attacked(engine, tmp_path, monkeypatch)
    print(found)
    assert kinds == 1
    assert not found.leaks


def visiting_some(engine, computation, rows):
    """Only shards that have a record of the batch."""
    return plain(engine, computation, [each for each in rows if each.counted.any()])


plain = shards.compute


def unpadded(rows, size, room, rng):
    """Only records of the batch."""
    return rows, np.ones(len(rows), np.bool_)


@pytest.mark.parametrize(
    ("module", "name", "naive"), [(shards, "compute", visiting_some), (parts, "_padded", unpadded)]
)
def test_a_helper_that_saves_work_is_seen(engine, tmp_path, monkeypatch, module, name, naive):
    monkeypatch.setattr(module, name, naive)
    _, found = attacked(engine, tmp_path, monkeypatch)
    print(found)
    assert found.right == 1.0
    assert found.allowed < 0.8
