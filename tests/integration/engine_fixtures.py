"""A helper's life that is led over every engine: its fixtures, for tests of bytes and of faults."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration import engine_life
from tests.integration.engine_life import SHARD_BYTES, Answers
from tests.unit.compute.ray_nodes import RayNodes, ray_nodes

LONG = pytest.mark.long


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
        cluster.let_in(request.getfixturevalue("monkeypatch"))
        given["address"] = cluster.address
        given.setdefault("storage", f"file://{request.getfixturevalue('tmp_path')}/sealed")
    return given
