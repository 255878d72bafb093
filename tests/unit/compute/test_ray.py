"""Ray, on several nodes of this machine: the same checks as for all engines, lost nodes, and bad settings."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import pytest

from maskedlark.compute import errors, ray, ray_connection
from maskedlark.compute.engine import Engine
from maskedlark.compute.fingerprint import Fingerprint
from maskedlark.compute.ray_connection import Cluster
from maskedlark.compute.settings import ComputeSettings, open_engine
from tests.unit.compute import work
from tests.unit.compute.conformance import CHECKS
from tests.unit.compute.processes import are_gone, with_argument
from tests.unit.compute.ray_nodes import CPUS, ROOT, RayNodes, ray_nodes


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    with ray_nodes(3) as made:
        yield made


@pytest.fixture(autouse=True)
def token(request, monkeypatch):
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").let_in(monkeypatch)


def opened(address: str, workers: int = 2, owner: str = "helper-0") -> Engine:
    settings = ComputeSettings(engine="ray", address=address, workers=workers, storage="memory://unused")
    return open_engine(settings, owner)


def conforms(engine: Engine, folder: Path) -> None:
    for check in CHECKS:
        (folder / check.__name__).mkdir()
        check(engine, folder / check.__name__)


@pytest.mark.long
def test_ray_conforms_and_logs_nothing_of_an_item(cluster, tmp_path, capfd):
    with closing(opened(cluster.address, 4)) as engine:
        conforms(engine, tmp_path)
        processes = engine.map(work.process_of, None, range(4))
    assert are_gone(processes)
    assert capfd.readouterr().out == ""
    logs = [*cluster.logs()]
    assert len(logs) > 10
    assert not [path for path in logs if work.SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"workers": 3 * CPUS + 1}, errors.ClusterTooSmall, "has 6 processors, and workers = 7 wants 7"),
        ({"owner": "helper-1"}, errors.ClusterTaken, "another helper uses this cluster"),
        ({"address": "127.0.0.1:1"}, errors.ClusterAway, "nothing answers at 127.0.0.1:1"),
    ],
)
@pytest.mark.long
def test_a_cluster_that_does_not_fit_is_refused(cluster, change, error, said):
    opened(cluster.address).close()
    with pytest.raises(error, match=said):
        opened(**{"address": cluster.address, **change})


@pytest.mark.long
@pytest.mark.parametrize("token", ["0" * 64, ""])
def test_a_wrong_token_is_refused(cluster, monkeypatch, tmp_path, token):
    cluster.let_in(monkeypatch)
    monkeypatch.setenv("RAY_AUTH_TOKEN", token)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(errors.NotAuthenticated, match="refuses the helper's token, or there is none"):
        opened(cluster.address)


@pytest.mark.long
def test_a_cluster_that_asks_for_no_token_is_refused(monkeypatch):
    refused = pytest.raises(errors.NotAuthenticated, match="takes work from anybody")
    with ray_nodes(1, mode="disabled") as cluster, refused:
        cluster.let_in(monkeypatch)
        opened(cluster.address)


@pytest.mark.long
def test_what_answers_is_no_cluster():
    refused = pytest.raises(errors.ClusterAway, match="is no Ray cluster")
    with socket.create_server(("127.0.0.1", 0)) as server, refused:
        opened(f"127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.long
def test_any_number_of_workers_and_nodes_conforms(monkeypatch, tmp_path, nodes, workers):
    with ray_nodes(nodes, cpus=4) as cluster:
        cluster.let_in(monkeypatch)
        with closing(opened(cluster.address, workers)) as engine:
            conforms(engine, tmp_path)


@pytest.mark.long
def test_a_lost_node_is_done_without(cluster, tmp_path):
    """All processors of the cluster were taken, so that those of the node that is left are shared."""
    expected = [2 * item for item in range(24)]
    with closing(opened(cluster.address, 3 * CPUS)) as engine:
        slow = threading.Thread(target=engine.map, args=(work.wait_for, tmp_path, range(3 * CPUS)))
        slow.start()
        while len([*tmp_path.iterdir()]) < 3 * CPUS:
            time.sleep(0.02)
        cluster.remove_node()
        (tmp_path / "go").touch()
        slow.join()
        assert engine.map(work.multiply, 2, range(24)) == expected
    cluster.add_node()


def compute_on(engine: Engine) -> None:
    """Until something is raised: what runs goes on for a while without the head."""
    while True:
        assert engine.map(work.multiply, 2, range(4)) == [0, 2, 4, 6]
        time.sleep(0.1)


@pytest.mark.long
def test_a_lost_head_is_said_and_the_next_one_is_used(monkeypatch):
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "3")
    with ray_nodes(1) as first:
        first.let_in(monkeypatch)
        engine = opened(first.address)
        assert engine.map(work.multiply, 2, range(4)) == [0, 2, 4, 6]
        first.kill_head()
        with pytest.raises(errors.WorkersLost, match="send the same request again"):
            compute_on(engine)
    with ray_nodes(1, address=first.address, token=first.token), closing(engine):
        assert engine.map(work.multiply, 2, range(4)) == [0, 2, 4, 6]


@pytest.mark.long
def test_a_worker_of_other_files_is_refused(monkeypatch, tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "src" / "maskedlark" / "clock.py").open("a") as file:
        file.write("# One line more.\n")
    with ray_nodes(1, source=tmp_path / "src") as cluster:
        cluster.let_in(monkeypatch)
        with pytest.raises(errors.OtherVersion, match="with other files: install the same on every node"):
            opened(cluster.address)


@pytest.mark.long
def test_a_node_without_maskedlark_is_refused(monkeypatch, tmp_path):
    package = tmp_path / "src" / "maskedlark"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('it is not here')")
    with ray_nodes(1, source=tmp_path / "src") as cluster:
        cluster.let_in(monkeypatch)
        with pytest.raises(errors.OtherVersion, match="could not load maskedlark: install"):
            opened(cluster.address)


class ActorDiedError(Exception):
    """As Ray has it."""

    def __init__(self, actor_init_failed: bool) -> None:
        self.actor_init_failed = actor_init_failed


@pytest.mark.parametrize(
    ("raised", "error", "said"),
    [
        (ActorDiedError(True), errors.OtherVersion, "could not load maskedlark: install 9.9"),
        (ActorDiedError(False), errors.BadEngine, r"ended as it started \(ActorDiedError\)"),
    ],
)
def test_workers_that_do_not_start_say_why(raised, error, said):
    """That a worker was killed is not said to be another version."""

    def get(_: object) -> NoReturn:
        raise raised

    made = object.__new__(ray._Workers)
    made._ray = SimpleNamespace(
        wait=lambda *_, **__: ([], []),
        get=get,
        exceptions=SimpleNamespace(RayError=ActorDiedError),
    )
    made._ours = Fingerprint("9.9", "3.11", "")
    with pytest.raises(error, match=said) as refused:
        made._are_ready([], 1)
    assert type(refused.value) is error


def test_a_cluster_of_another_ray_is_refused(monkeypatch, tmp_path):
    """Ray compares versions itself, and raises RuntimeError: what it says is all that tells."""
    spec = importlib.util.find_spec("ray")
    assert spec is not None
    assert spec.origin is not None
    said = "Version mismatch: "
    assert said in (Path(spec.origin).parent / "_private" / "utils.py").read_text()

    def init(**_: object) -> NoReturn:
        raise RuntimeError(f"{said}The cluster was started with:\n    Ray: 2.0.0\n    Python: 3.8.1")

    fake_ray(monkeypatch, tmp_path, init)
    with pytest.raises(
        errors.OtherVersion, match="runs another Ray or Python: install the same on all nodes"
    ):
        ray_connection.connect(Cluster("local", 1, False, "helper-0"))
    ray_connection._LOCKS.close()


@pytest.mark.parametrize(
    ("workers", "size"), [(1, 128 << 20), (4, 320 << 20), (1024, 8 << 30)], ids=["one", "some", "many"]
)
def test_a_cluster_of_ones_own_takes_memory_by_its_workers(monkeypatch, tmp_path, workers, size):
    """Ray would take 30 % of the machine's. It refuses less than 75 MiB, and much more than there is."""
    given: dict[str, Any] = {}

    def init(**arguments: object) -> NoReturn:
        given.update(arguments)
        raise RuntimeError("enough")

    fake_ray(monkeypatch, tmp_path, init)
    with pytest.raises(errors.ClusterAway, match="enough"):
        ray_connection.connect(Cluster("local", workers, False, "helper-0"))
    ray_connection._LOCKS.close()
    assert given["object_store_memory"] == size


def fake_ray(monkeypatch: pytest.MonkeyPatch, folder: Path, init: Callable[..., NoReturn]) -> None:
    """Ray as far as its `init`."""
    for name, value in (("TMPDIR", str(folder)), ("AUTH_TOKEN", ""), ("AUTH_MODE", "")):
        monkeypatch.setenv(f"RAY_{name}", value)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    fake, experimental = ModuleType("ray"), ModuleType("ray.experimental")
    vars(fake)["_raylet"] = SimpleNamespace(Config=SimpleNamespace(initialize=lambda _: None))
    vars(fake)["init"], vars(experimental)["internal_kv"] = init, None
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setitem(sys.modules, "ray.experimental", experimental)


_PARENT = """
import os
from maskedlark.compute.settings import ComputeSettings, open_engine
from tests.unit.compute import work
if __name__ == "__main__":
    engine = open_engine(ComputeSettings(engine="ray", address="local", workers=2), "helper-0")
    print(*engine.map(work.process_of, None, range(2)), flush=True)
    ENDING
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("ending", "code"), [("os.kill(os.getpid(), 9)", -signal.SIGKILL), ("engine.close()", 0)]
)
def test_a_cluster_of_ones_own_ends_with_the_helper(tmp_path, ending, code):
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    done = on_a_cluster_of_its_own(tmp_path, folder, ending)
    assert (done.returncode, done.stderr) == (code, b"")
    assert len(done.stdout.split()) == 2
    assert are_gone(map(int, done.stdout.split()))
    assert are_gone(with_argument(str(folder)))
    assert not (tmp_path / ".ray").exists()
    assert (code != 0) == any(folder.iterdir())
    if code:
        # What was left goes with the next start.
        assert on_a_cluster_of_its_own(tmp_path, folder, "engine.close()").returncode == 0
        assert not any(folder.iterdir())
    shutil.rmtree(folder, ignore_errors=True)


def on_a_cluster_of_its_own(home: Path, folder: Path, ending: str) -> "subprocess.CompletedProcess[bytes]":
    script = home / "parent.py"
    script.write_text(_PARENT.replace("ENDING", ending))
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "RAY_TMPDIR": str(folder), "HOME": str(home)}
    return subprocess.run([sys.executable, script], capture_output=True, check=False, env=environment)


def test_folders_of_clusters_that_run_stay_and_others_go(tmp_path):
    """A lock says which is which; a folder without one is not ours."""
    (tmp_path / "ray-of-others").mkdir()
    running, ended = ray_connection._own_folder(tmp_path), tmp_path / "ray-ended"
    ended.mkdir()
    (ended / "maskedlark-runs").touch()
    (ended / "spilled").write_bytes(b"chunks")
    again = ray_connection._own_folder(tmp_path)
    assert {*tmp_path.iterdir()} == {tmp_path / "ray-of-others", running, again}
    ray_connection._LOCKS.close()
