"""A `[compute]` that a helper cannot work with: one line at its start, an exit code, nothing served."""

import shutil
from pathlib import Path

import pytest

from maskedlark.compute.settings import ComputeSettings, open_engine
from maskedlark.randomness import FixedRandomness
from maskedlark.web import key_file, serving
from tests.unit.cli.helper_folder import World, one_line
from tests.unit.compute.ray_nodes import CPUS, ROOT, RayNodes, ray_nodes


@pytest.fixture(scope="module")
def cluster():
    with ray_nodes(1) as made:
        yield made


@pytest.fixture(autouse=True)
def one_identity(monkeypatch):
    """All tests are of the helper that their cluster works for."""
    create = key_file.create
    monkeypatch.setattr(key_file, "create", lambda path, _: create(path, FixedRandomness(b"identity")))


def fill_in(world: World, compute: dict[str, str | int]) -> None:
    table = "\n".join(f"{name} = {value!r}" for name, value in compute.items())
    text = world.toml.read_text()
    assert "[compute]\nworkers = 1" in text
    world.toml.write_text(text.replace("[compute]\nworkers = 1", f"[compute]\n{table}\n"))


@pytest.fixture
def refused(world, monkeypatch):
    """What `serve` says to the settings of `[compute]`."""
    monkeypatch.setattr(serving, "serve", lambda *_, **_more: pytest.fail("it must not start"))
    world.run("rotate", *world.config, *world.identity)

    def serve(said: str, **compute: str | int) -> None:
        fill_in(world, compute)
        one_line(world.run("serve", *world.config, code=1), said)
        assert not [*Path(world.folder, "h", "state", "columns").glob("probe-*")]

    return serve


def on(made: RayNodes, monkeypatch: pytest.MonkeyPatch, **changes: str | int) -> dict[str, str | int]:
    made.let_in(monkeypatch)
    storage = f"file://{made.folder}/datasets"
    return {"engine": "ray", "address": made.address, "workers": 1, "storage": storage, **changes}


@pytest.mark.parametrize(
    ("compute", "said"),
    [
        ({"engine": "ray", "workers": 1}, "needs the cluster's address"),
        ({"engine": "dask"}, "'local', 'serial' or 'ray'"),
        (
            {"engine": "ray", "address": "127.0.0.1:1"},
            "need storage that they reach, where datasets are sealed",
        ),
        (
            {"engine": "ray", "address": "127.0.0.1:1", "storage": "memory://datasets"},
            "ClusterAway: nothing answers at 127.0.0.1:1",
        ),
        (
            {"engine": "ray", "address": "192.0.2.1:6379", "storage": "memory://datasets"},
            "NotEncrypted: keys and shares would cross the network to 192.0.2.1 in the clear",
        ),
        (
            {"storage": "nosuch://bucket", "workers": 1},
            "UnreadableStorage: nosuch:// cannot be used",
        ),
        ({"storage": "/a/folder", "workers": 1}, "storage: "),
        ({"storage": "memory://datasets", "workers": 2}, "UnreadableStorage: 2 of 2 workers cannot read"),
    ],
)
def test_settings_that_need_no_cluster_to_be_wrong(refused, compute, said):
    refused(said, **compute)


def test_a_cluster_that_is_too_small(refused, cluster, monkeypatch):
    said = f"ClusterTooSmall: the cluster has {CPUS} processors, and workers = {CPUS + 1} wants {CPUS + 1}"
    refused(said, **on(cluster, monkeypatch, workers=CPUS + 1))


def test_workers_that_cannot_read_the_storage(refused, cluster, monkeypatch):
    """What is in the memory of one process is in no other's."""
    said = (
        "UnreadableStorage: 1 of 1 workers cannot read where this helper keeps datasets (FileNotFoundError)"
    )
    refused(said, **on(cluster, monkeypatch, storage="memory://datasets"))


def test_a_token_that_is_wrong(refused, cluster, monkeypatch):
    compute = on(cluster, monkeypatch)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    refused("NotAuthenticated: the cluster refuses the helper's token, or there is none", **compute)


@pytest.mark.long
def test_a_cluster_that_takes_work_from_anybody(refused, monkeypatch):
    with ray_nodes(1, mode="disabled") as open_to_all:
        refused("NotAuthenticated: the cluster at ", **on(open_to_all, monkeypatch))


@pytest.mark.long
def test_a_cluster_of_another_helper_of_the_same_name(refused, monkeypatch):
    with ray_nodes(1) as taken:
        compute, other = on(taken, monkeypatch), f"helper-0 {'0' * 64}"
        open_engine(ComputeSettings.model_validate(compute), other).close()
        refused(f"ClusterTaken: another helper uses this cluster, {other}: ", **compute)


@pytest.mark.long
def test_workers_of_another_version(refused, monkeypatch, tmp_path):
    source = tmp_path / "other" / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    with (source / "maskedlark" / "clock.py").open("a") as file:
        file.write("# One line more.\n")
    with ray_nodes(1, source=source) as other:
        refused("OtherVersion: a worker runs maskedlark ", **on(other, monkeypatch))


def test_a_cluster_of_the_same_settings_is_served(world: World, cluster, monkeypatch):
    """Else the tests above would mean nothing."""
    seen: list[object] = []
    monkeypatch.setattr(serving, "serve", lambda made, **_: seen.append(made))
    world.run("rotate", *world.config, *world.identity)
    fill_in(world, on(cluster, monkeypatch))
    world.run("serve", *world.config)
    assert len(seen) == 1
