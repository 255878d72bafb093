"""Workers on a Ray cluster, as Ray sees them: actors. Run by the helper's child process."""

import itertools
import os
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from maskedlark.compute.child_process import follow_parent
from maskedlark.compute.errors import BadEngine, ClusterTooSmall, OtherVersion
from maskedlark.compute.fingerprint import Fingerprint, fingerprint
from maskedlark.compute.local import receive
from maskedlark.compute.ray_connection import Cluster, connect, disconnect
from maskedlark.compute.task import Performer, failure, success

DONE, LOST = b"+", b"?"
"""Answers to the helper that are no outcomes: none begins like this."""
ACTORS_WITHIN_S = 45.0
TRY_S, REPLACED_WITHIN_S = 8.0, 90.0
"""For one attempt to replace a worker, which Ray may send to a node that is lost, and for all attempts."""


class WorkerActor:
    """A worker. What a call raises is in its outcome, since Ray would log it."""

    def __init__(self) -> None:
        self._performer = Performer()

    def fingerprint(self) -> Fingerprint:
        """Which code it runs."""
        return fingerprint()

    def perform(self, key: bytes, data: bytes, call: bytes) -> bytes:
        """As `Performer.perform`."""
        return self._performer.perform(key, data, call)


def drive(
    cluster: Cluster, ours: Fingerprint, is_first: bool, control: Connection, *places: Connection
) -> None:
    """Serve the helper until it closes its ends. Run by the child."""
    follow_parent()
    _silence()
    try:
        workers = _Workers(cluster, ours, is_first)
    except BadEngine as error:
        control.send_bytes(failure(error))
        return
    control.send_bytes(success(None))
    for place, connection in enumerate(places):
        threading.Thread(target=workers.serve, args=(place, connection), daemon=True).start()
    workers.share(control)


def _silence() -> None:
    """Ray prints what nobody has checked, also to standard output. It keeps its own logs."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)


class _Workers:
    """The actors of a cluster, and what was put into its object store for them."""

    def __init__(self, cluster: Cluster, ours: Fingerprint, is_first: bool) -> None:
        self._ray, self._cluster, self._ours = connect(cluster), cluster, ours
        self._refs: dict[bytes, Any] = {}
        if is_first:
            self._check_size()
        # Later the cluster may be smaller than it was, and still do the work: processors are shared then.
        self._actors = [self._create(int(is_first)) for _ in range(cluster.workers)]
        if not self._are_ready(self._actors, ACTORS_WITHIN_S):
            free = self._ray.available_resources().get("CPU", 0)
            raise ClusterTooSmall(
                f"the cluster did not start {cluster.workers} workers in {ACTORS_WITHIN_S:.0f} s, "
                f"{free:.0f} of its processors are free: end what else runs there, or lower workers"
            )

    def _check_size(self) -> None:
        kinds = {"CPU": "processors"} | ({"GPU": "GPUs"} if self._cluster.cuda else {})
        has, wanted = self._ray.cluster_resources(), self._cluster.workers
        for kind, name in kinds.items():
            if has.get(kind, 0) < wanted:
                raise ClusterTooSmall(
                    f"the cluster has {has.get(kind, 0):.0f} {name}, and workers = {wanted} wants {wanted}: "
                    "add nodes, or lower workers"
                )

    def _create(self, cpus: int) -> Any:  # noqa: ANN401 - an actor's handle
        gpus = 1 if self._cluster.cuda else 0
        made = self._ray.remote(num_cpus=cpus, num_gpus=gpus, scheduling_strategy="SPREAD")(WorkerActor)
        return made.remote()

    def _are_ready(self, actors: list[Any], within_s: float) -> bool:
        """Whether they started in time. Refuses actors that run other code than the helper."""
        ready = [actor.fingerprint.remote() for actor in actors]
        waiting = self._ray.wait(ready, num_returns=len(ready), timeout=within_s)[1]
        if waiting:
            return False
        try:
            theirs = set(self._ray.get(ready))
        except self._ray.exceptions.RayError as error:
            if getattr(error, "actor_init_failed", False):
                raise OtherVersion(
                    f"a worker could not load maskedlark: install {self._ours.version} on every node"
                ) from None
            raise BadEngine(
                f"a worker ended as it started ({type(error).__name__}): see Ray's logs on its node, and "
                "whether there is enough memory"
            ) from None
        for other in theirs - {self._ours}:
            raise OtherVersion(
                f"a worker runs maskedlark {other.version} on Python {other.python}, the helper "
                f"{self._ours.version} on {self._ours.python}"
                + (", with other files" if other[:2] == self._ours[:2] else "")
                + ": install the same on every node, and start Ray there anew"
            )
        return True

    def serve(self, place: int, connection: Connection) -> None:
        """Have the actor of this place perform calls. Run in a thread."""
        with suppress(EOFError):
            while True:
                key, call = receive(connection, 2)
                connection.send_bytes(self._perform(place, key, call))

    def _perform(self, place: int, key: bytes, call: bytes) -> bytes:
        if self._actors[place] is None:
            self._replace(place)
        actor, data = self._actors[place], self._refs[key] if key else b""
        try:
            outcome: bytes = self._ray.get(actor.perform.remote(key, data, call))
        except Exception as error:  # noqa: BLE001 - no error of the call: that is in the outcome
            self._actors[place] = None
            self._kill(actor)
            return LOST + type(error).__name__.encode()
        return outcome

    def _replace(self, place: int) -> None:
        deadline = time.monotonic() + REPLACED_WITHIN_S
        # When a node is gone, the others may have no processor to spare: later attempts share theirs.
        for cpus in itertools.chain([1], itertools.repeat(0)):
            actor = self._create(cpus)
            with suppress(Exception):
                if self._are_ready([actor], TRY_S):
                    self._actors[place] = actor
                    return
            self._kill(actor)
            if time.monotonic() > deadline:
                _give_up()
            time.sleep(0.2)

    def _kill(self, actor: Any) -> None:  # noqa: ANN401 - an actor's handle
        with suppress(Exception):
            self._ray.kill(actor)

    def share(self, control: Connection) -> None:
        """Put what items have in common where all actors read it, until the helper ends this."""
        with suppress(EOFError):
            while True:
                key, data = receive(control, 2)
                control.send_bytes(self._put(key, data))
        disconnect(self._ray, self._cluster)

    def _put(self, key: bytes, data: bytes) -> bytes:
        try:
            if data:
                self._refs[key] = self._ray.put(data)
            else:
                del self._refs[key]
        except self._ray.exceptions.RayError as error:
            return LOST + type(error).__name__.encode()
        return DONE


def _give_up() -> NoReturn:
    """Nothing starts any more: this machine's Ray is gone. The helper starts a new child, which says so."""
    os._exit(1)
