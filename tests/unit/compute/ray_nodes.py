"""A Ray cluster of several nodes on this machine, in a process of its own: Ray changes the one it runs in."""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]
CPUS = 2
"""Of each node, unless said."""


class RayNodes:
    """The cluster, as a test sees it."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path, token: str) -> None:
        self.folder, self.token, self._process = folder, token, process
        self.address = self._answer()

    def remove_node(self, node: str = "") -> str:
        """Kill all processes of the node with this id, else of the one that came last. Returns its id."""
        return self._tell(f"remove {node}")

    def add_node(self) -> None:
        """One more."""
        self._tell("add")

    def kill_head(self) -> None:
        """Kill the head's server, without which nothing can be started."""
        self._tell("head")

    def _tell(self, what: str) -> str:
        assert self._process.stdin is not None
        print(what, file=self._process.stdin, flush=True)
        done, _, told = self._answer().partition(" ")
        assert done == what.split(maxsplit=1)[0]
        return told

    def _answer(self) -> str:
        assert self._process.stdout is not None
        while (line := self._process.stdout.readline()).strip():
            if line.startswith("> "):
                return line[2:].strip()
        raise AssertionError("the cluster did not start; see its logs")

    def logs(self) -> Iterator[Path]:
        """All that Ray has written: logs, and objects that did not fit into memory."""
        return (path for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink())


@contextmanager
def ray_nodes(
    nodes: int,
    mode: str = "token",
    source: Path = ROOT / "src",
    cpus: int = CPUS,
    address: str = "",
    token: str = "",
    head_cpus: int | None = None,
) -> Iterator[RayNodes]:
    """A cluster; the head has as many processors as the others, unless said. Its folder has a short name: it
    holds sockets.
    """
    folder, token = Path(tempfile.mkdtemp(prefix="ray-")), token or secrets.token_hex(32)
    settings = {"RAY_AUTH_MODE": mode, "RAY_AUTH_TOKEN": token, "RAY_TMPDIR": str(folder)}
    paths, port = os.pathsep.join([str(source), str(ROOT)]), address.rpartition(":")[2]
    process = subprocess.Popen(
        [sys.executable, __file__, *map(str, (nodes, cpus, cpus if head_cpus is None else head_cpus)), port],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **settings, "PYTHONPATH": paths},
    )
    try:
        with process:
            yield RayNodes(process, folder, token)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(nodes: int, cpus: int, head_cpus: int, port: str) -> None:
    """Start the nodes, do what is told on standard input, and end them with it."""
    from ray.cluster_utils import Cluster

    arguments = {"num_cpus": head_cpus, "include_dashboard": False} | (
        {"gcs_server_port": int(port)} if port else {}
    )
    cluster = Cluster(initialize_head=True, head_node_args=arguments)
    others = [cluster.add_node(num_cpus=cpus) for _ in range(nodes - 1)]
    print(">", cluster.address, flush=True)
    for line in sys.stdin:
        told, (what, *which) = "", line.split()
        if what == "remove":
            node = next((each for each in others if each._node_id in which), others[-1])
            others.remove(node)
            cluster.remove_node(node, allow_graceful=False)
            told = node._node_id
        elif what == "add":
            others.append(cluster.add_node(num_cpus=cpus))
        elif what == "head":
            cluster.head_node.kill_gcs_server()
        print(">", what, told, flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
