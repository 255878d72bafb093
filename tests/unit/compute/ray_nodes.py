"""A Ray cluster of several nodes on this machine, in a process of its own: Ray changes the one it runs in."""

import atexit
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

ROOT = Path(__file__).parents[3]
CPUS = 2
"""Of each node, unless said."""


class RayNodes:
    """The cluster, as a test sees it."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path, token: str) -> None:
        self.folder, self.token, self._process = folder, token, process
        self.address = self._answer()

    def let_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Give this process the token, and the certificates: the nodes have addresses of the network."""
        for name, value in {"RAY_AUTH_TOKEN": self.token, **_tls()}.items():
            monkeypatch.setenv(name, value)

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
    settings = {"RAY_AUTH_MODE": mode, "RAY_AUTH_TOKEN": token, "RAY_TMPDIR": str(folder), **_tls()}
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


@cache
def _tls() -> dict[str, str]:
    """Ray's settings for TLS, with an authority of this process and a certificate for this machine."""
    folder, key = Path(tempfile.mkdtemp(prefix="ray-tls-")), ec.generate_private_key(ec.SECP256R1())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    now, name = datetime.now(UTC), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ray")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(list(map(x509.IPAddress, _addresses()))), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    (folder / "node.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / "node.key").write_bytes(key.private_bytes(*private))
    files = {"CA_CERT": "node.pem", "SERVER_CERT": "node.pem", "SERVER_KEY": "node.key"}
    return {"RAY_USE_TLS": "1"} | {f"RAY_TLS_{name}": str(folder / file) for name, file in files.items()}


def _addresses() -> Iterator[IPv4Address]:
    """Of this machine: Ray takes the one that it would reach others from."""
    yield IPv4Address("127.0.0.1")
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unconnected:
        unconnected.connect(("192.0.2.1", 1))
        yield IPv4Address(unconnected.getsockname()[0])


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
