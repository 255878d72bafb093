"""Ray, on several nodes of this machine: the same checks as for all engines, lost nodes, and bad settings."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from maskedlark.compute import errors
from maskedlark.compute.engine import Engine
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
        monkeypatch.setenv("RAY_AUTH_TOKEN", request.getfixturevalue("cluster").token)


def opened(address: str, workers: int = 2, owner: str = "helper-0") -> Engine:
    return open_engine(ComputeSettings(engine="ray", address=address, workers=workers), owner)


def conforms(engine: Engine, folder: Path) -> None:
    for check in CHECKS:
        (folder / check.__name__).mkdir()
        check(engine, folder / check.__name__)


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
def test_a_cluster_that_does_not_fit_is_refused(cluster, change, error, said):
    opened(cluster.address).close()
    with pytest.raises(error, match=said):
        opened(**{"address": cluster.address, **change})


@pytest.mark.parametrize("token", ["0" * 64, ""])
def test_a_wrong_token_is_refused(cluster, monkeypatch, tmp_path, token):
    monkeypatch.setenv("RAY_AUTH_TOKEN", token)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(errors.NotAuthenticated, match="refuses the helper's token, or there is none"):
        opened(cluster.address)


def test_a_cluster_that_asks_for_no_token_is_refused():
    refused = pytest.raises(errors.NotAuthenticated, match="takes work from anybody")
    with ray_nodes(1, mode="disabled") as cluster, refused:
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
        monkeypatch.setenv("RAY_AUTH_TOKEN", cluster.token)
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
        monkeypatch.setenv("RAY_AUTH_TOKEN", first.token)
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
        monkeypatch.setenv("RAY_AUTH_TOKEN", cluster.token)
        with pytest.raises(errors.OtherVersion, match="with other files: install the same on every node"):
            opened(cluster.address)


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
    script, folder = tmp_path / "parent.py", Path(tempfile.mkdtemp(prefix="ray-"))
    script.write_text(_PARENT.replace("ENDING", ending))
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "RAY_TMPDIR": str(folder), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, script], capture_output=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (code, b"")
    assert len(done.stdout.split()) == 2
    assert are_gone(map(int, done.stdout.split()))
    assert are_gone(with_argument(str(folder)))
    assert not (tmp_path / ".ray").exists()
    assert (code != 0) == any(folder.iterdir())
    shutil.rmtree(folder, ignore_errors=True)
