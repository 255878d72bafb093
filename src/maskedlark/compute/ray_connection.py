"""Connects to a Ray cluster, if it is one that a helper may use. Run by the helper's child process.

The only module that imports Ray, and only in a function: importing it changes a process.
"""

import ipaddress
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from maskedlark.compute.errors import (
    ClusterAway,
    ClusterTaken,
    NotAuthenticated,
    NotEncrypted,
    OtherVersion,
)
from maskedlark.storage import file_lock
from maskedlark.storage.errors import LockHeld

THIS_MACHINE = "local"
CONNECT_WITHIN_S = 5.0
STORE_BYTES, MOST_STORE_BYTES = 64 << 20, 8 << 30
"""Of the object store of a cluster of one's own, for each worker and for what all share: a chunk and an
answer of the usual sizes. What does not fit Ray writes to its folder. More than 10 GB it refuses to start
with, where /dev/shm has less."""
_NAMESPACE = "maskedlark"
_FOLDER, _RUNNING = "ray-", "maskedlark-runs"
"""The folder of a cluster that is started here, and the lock in it. A short name: sockets are in it."""
_LOCKS = ExitStack()
_TOKEN = "start it with RAY_AUTH_MODE=token, and give the helper its token in RAY_AUTH_TOKEN_PATH"  # noqa: S105


class Cluster(NamedTuple):
    """Which cluster, what is wanted of it, and for whom."""

    address: str
    workers: int
    cuda: bool
    owner: str
    """The helper's name and the public key of its identity: two operators may choose one name."""


def connect(cluster: Cluster) -> Any:  # noqa: ANN401 - the module `ray`
    """Ray, connected; or started on this machine, to end with this process."""
    own = cluster.address == THIS_MACHINE
    if not own:
        _check_encrypted([cluster.address.rpartition(":")[0].strip("[]")])
    import ray  # noqa: PLC0415 - it installs hooks, and is an optional dependency
    from ray.experimental import internal_kv  # noqa: PLC0415

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if own:
        # Ray lets everybody into its folder, where its sockets are, so that folder is in a private one.
        os.environ["RAY_TMPDIR"] = str(
            _own_folder(Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()))
        )
        # Only this process and what it starts may use it. Nothing is written to the home folder.
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        _set_authentication(ray, "token")
    else:
        _reach(cluster.address)
        _authenticate(ray, cluster.address)
    try:
        ray.init(
            address=cluster.address,
            num_cpus=cluster.workers if own else None,
            object_store_memory=min(STORE_BYTES * (cluster.workers + 1), MOST_STORE_BYTES) if own else None,
            include_dashboard=False,
            log_to_driver=False,
            namespace=_NAMESPACE,
        )
    except Exception as error:  # noqa: BLE001 - Ray raises whatever it met
        said = str(error).strip().partition("\n")[0][:200]
        if "version mismatch" in str(error).lower():
            raise OtherVersion(
                "the cluster runs another Ray or Python: install the same on all nodes"
            ) from None
        raise ClusterAway(
            f"this machine cannot work with the cluster at {cluster.address}, of which it must be a node "
            f"(ray start --address={cluster.address}): {said}"
        ) from None
    try:
        if not own:
            # Nodes may be on other machines, whatever the address of the head.
            _check_encrypted(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"])
        _claim(internal_kv, cluster.owner)
    except BaseException:
        ray.shutdown()
        raise
    return ray


def disconnect(ray: Any, cluster: Cluster) -> None:  # noqa: ANN401 - the module
    """End all workers, and a cluster that was started here with all that it wrote."""
    ray.shutdown(wait_for_processes=True)
    if cluster.address == THIS_MACHINE:
        shutil.rmtree(os.environ["RAY_TMPDIR"], ignore_errors=True)


def _own_folder(parent: Path) -> Path:
    """A private folder for a cluster of this process. Removes those of processes that were killed.

    What did not fit into memory is in them: chunks, with the keys to open them. Its owner holds a lock in
    each for as long as it runs.
    """
    for lock in parent.glob(f"{_FOLDER}*/{_RUNNING}"):
        with suppress(LockHeld, OSError), file_lock.held(lock, wait=False):
            if lock.stat().st_uid == os.getuid():
                shutil.rmtree(lock.parent, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=parent))
    # Locked before it has the name that others look for; never let go: it ends with this process.
    _LOCKS.enter_context(file_lock.held(folder / "starting"))
    (folder / "starting").rename(folder / _RUNNING)
    return folder


def _check_encrypted(hosts: Iterable[str]) -> None:
    """Refuse other machines without TLS: decryption keys and the key of sealed files go to workers there."""
    if os.environ.get("RAY_USE_TLS", "").lower() in ("1", "true"):  # As Ray reads it.
        return
    for host in hosts:
        if not _is_loopback(host):
            raise NotEncrypted(
                f"keys and shares would cross the network to {host} in the clear: start Ray, and the helper, "
                "with RAY_USE_TLS=1 and its certificates"
            )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reach(address: str) -> None:
    """Refuse an address where nothing listens: Ray would try for long."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_WITHIN_S).close()
    except (OSError, OverflowError) as error:
        raise ClusterAway(
            f"nothing answers at {address} ({type(error).__name__}): is it the head's, and does it run?"
        ) from None


def _authenticate(ray: Any, address: str) -> None:  # noqa: ANN401 - the module
    """Refuse a cluster that asks for no token: anybody could run code there, and read shares."""
    if _is_let_in(ray, address, "disabled"):
        raise NotAuthenticated(f"the cluster at {address} takes work from anybody: {_TOKEN}")
    # Without a token Ray would abort; with a wrong one it would try for long.
    has_token = ray._raylet.AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)
    if not has_token or not _is_let_in(ray, address, "token"):
        raise NotAuthenticated(f"the cluster refuses the helper's token, or there is none: {_TOKEN}")


def _is_let_in(ray: Any, address: str, mode: str) -> bool:  # noqa: ANN401 - the module
    _set_authentication(ray, mode)
    try:
        ray._raylet.GcsClient(address=address)
    except ray.exceptions.AuthenticationError:
        return False
    except Exception as error:  # noqa: BLE001 - Ray raises whatever it met
        raise ClusterAway(f"what answers at {address} is no Ray cluster ({type(error).__name__})") from None
    return True


def _set_authentication(ray: Any, mode: str) -> None:  # noqa: ANN401 - the module
    os.environ["RAY_AUTH_MODE"] = mode
    ray._raylet.Config.initialize("")  # Ray read its environment when it was imported.


def _claim(store: Any, owner: str) -> None:  # noqa: ANN401 - the module
    """Note in the cluster, for as long as it runs, which helper it works for. Refuse that of another."""
    key, space = b"owner", _NAMESPACE.encode()
    store._internal_kv_put(key, owner.encode(), overwrite=False, namespace=space)
    theirs = store._internal_kv_get(key, namespace=space)
    if theirs != owner.encode():
        raise ClusterTaken(
            f"another helper uses this cluster, {theirs.decode(errors='replace')}: two on one would pool "
            "their shares. Give each its own cluster"
        )
