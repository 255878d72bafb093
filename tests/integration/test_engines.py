"""The same requests give the same bytes and receipts from every engine, database and storage."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maskedlark.wire.datasets import ChunkAnswer, Frozen
from tests.integration import engine_life
from tests.integration.engine_life import CHUNKS, EACH, QUERIES, SHARD_BYTES, STEPS, Answers
from tests.unit.compute.ray_nodes import RayNodes, ray_nodes

WHOLE = 64 << 20
"""So that a dataset is one shard."""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("prepared") / "life"
    engine_life.prepare(folder)
    return folder


@pytest.fixture(scope="module")
def expected(prepared, tmp_path_factory) -> Answers:
    """Of the engine that all others must equal."""
    folder = tmp_path_factory.mktemp("serial") / "life"
    shutil.copytree(prepared, folder)
    return engine_life.led(folder, {"engine": "serial", "shard_bytes": SHARD_BYTES})


@pytest.fixture
def copied(prepared: Path, tmp_path: Path) -> Path:
    shutil.copytree(prepared, tmp_path / "life")
    return tmp_path / "life"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    with ray_nodes(1, cpus=4) as made:
        yield made


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[RayNodes]:
    with ray_nodes(3, cpus=2) as made:
        yield made


def compute(request: pytest.FixtureRequest, named: str, **changes: Any) -> dict[str, Any]:
    """The settings of an engine that is named like `local-2`, or `ray-4 three_nodes`."""
    name, _, nodes = named.partition(" ")
    engine, _, workers = name.partition("-")
    given = {"engine": engine, "workers": int(workers or 1), "shard_bytes": SHARD_BYTES} | changes
    if engine == "ray":
        cluster: RayNodes = request.getfixturevalue(nodes or "cluster")
        request.getfixturevalue("monkeypatch").setenv("RAY_AUTH_TOKEN", cluster.token)
        given["address"] = cluster.address
    return given


def shards(folder: Path) -> int:
    """Of the dataset to aggregate."""
    return len([*(folder / "state" / "columns").glob("*/columns-*/*.ids")])


def test_a_life_is_what_it_seems(expected):
    """Else equal bytes would mean little."""
    accepted = "f" * 7 + "c"
    for purpose in ("aggregate", "train"):
        for number in range(CHUNKS):
            assert ChunkAnswer.decode(expected[f"{purpose}-chunk-{number}"]).accepted == accepted
        assert Frozen.decode(expected[f"{purpose}-freeze"]).records == EACH * CHUNKS
        assert ChunkAnswer.decode(expected[f"{purpose}-other-chunk"]).refused == {"Replayed": EACH}
    asked = [*QUERIES, *(f"step-{number}" for number in range(STEPS))]
    assert len({expected[name] for name in asked}) == len(asked)


LONG = pytest.mark.long
ENGINES = [
    "serial",
    "local-2",
    "ray-2",
    pytest.param("local-1", marks=LONG),
    pytest.param("local-4", marks=LONG),
    *(pytest.param(f"ray-{workers}", marks=LONG) for workers in (1, 4)),
    *(pytest.param(f"ray-{workers} three_nodes", marks=LONG) for workers in (1, 2, 4)),
]


@pytest.mark.parametrize("named", ENGINES)
def test_every_engine_gives_the_same_bytes(request, named, copied, expected):
    assert engine_life.led(copied, compute(request, named)) == expected
    assert shards(copied) > 2


@pytest.mark.parametrize("named", ENGINES)
@LONG
def test_every_engine_gives_the_same_bytes_over_a_server(request, named, copied, expected, postgresql_url):
    assert engine_life.led(copied, compute(request, named), postgresql_url) == expected


@pytest.mark.parametrize("named", ["local-2", pytest.param("ray-2 three_nodes", marks=LONG)])
def test_sealed_files_give_the_same_bytes(request, named, copied, expected, postgresql_url, tmp_path):
    """As on several machines: a server, and storage that all reach."""
    sealed = compute(request, named, storage=f"file://{tmp_path}/sealed")
    assert engine_life.led(copied, sealed, postgresql_url) == expected
    assert not [*(copied / "state" / "columns").glob("*/columns-*")]


@pytest.mark.parametrize("named", ["serial", "local-2", pytest.param("ray-2", marks=LONG)])
def test_one_shard_gives_the_same_bytes_as_many(request, named, copied, expected):
    assert engine_life.led(copied, compute(request, named, shard_bytes=WHOLE)) == expected
    assert shards(copied) == 1


@pytest.mark.parametrize("then", ["local-2", pytest.param("ray-2", marks=LONG)])
def test_another_engine_over_what_one_has_charged_gives_the_same_bytes(request, then, copied, expected):
    """The answers that were kept are gone, so that every one is computed again from the stored seeds."""
    engine_life.led(copied, compute(request, "serial"), until="close")
    shutil.rmtree(copied / "state" / "answers")
    for name in (*QUERIES, f"step-{STEPS - 1}"):
        (copied / "answers" / name).unlink()
    assert engine_life.led(copied, compute(request, then)) == expected
