"""Workers on a Ray cluster, as the helper sees them: over a process of its own that speaks with Ray.

Ray takes over the process that connects to it: it handles signals, prints, and ends the process when the
cluster's head is gone. A helper must still answer then, so a child connects. When it ends, a new one is
started.
"""

import multiprocessing
import threading
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from maskedlark.compute import ray
from maskedlark.compute.errors import BadEngine, ClusterAway, WorkersLost
from maskedlark.compute.fingerprint import fingerprint
from maskedlark.compute.local import end, send
from maskedlark.compute.pool import PoolEngine, Worker, WorkerDied
from maskedlark.compute.ray_connection import Cluster
from maskedlark.compute.task import Common, result_of

START_WITHIN_S = 90.0
"""For connecting to a cluster, or starting one, and for starting all workers in it."""


class Driver:
    """The process that speaks with Ray. Threads may share it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._control: Connection | None = None
        self._places: list[Connection] = []
        self._put: set[bytes] = set()
        self._is_first = True

    def start(self) -> None:
        """Start it, unless it runs. Raises `BadEngine`."""
        with self._lock:
            self._started()

    def connection(self, place: int, common: Common) -> Connection:
        """To the thread in it that waits for this worker, which can read `common`.

        Under one lock: the process that has `common` is the one that is then asked.
        """
        with self._lock:
            control = self._started()
            if common.key and common.key not in self._put:
                send(control, common.key, common.data)
                if control.recv_bytes() != ray.DONE:
                    raise WorkerDied("Ray's object store did not take what was put into it")
                self._put.add(common.key)
            return self._places[place]

    def forget(self, common: Common) -> None:
        """Free it."""
        with self._lock:
            if common.key in self._put and self._control is not None:
                self._put.remove(common.key)
                try:
                    send(self._control, common.key, b"")
                    self._control.recv_bytes()
                except (EOFError, OSError):
                    pass  # It ended, and all that it held with it.

    def close(self) -> None:
        """End it, and with it all workers."""
        with self._lock:
            self._end()

    def _started(self) -> Connection:
        """Start it, unless it runs. Returns the connection to its control."""
        if self._control is None or self._process is None or not self._process.is_alive():
            self._end()
            return self._start()
        return self._control

    def _start(self) -> Connection:
        (self._control, control), *places = [multiprocessing.Pipe() for _ in range(self._cluster.workers + 1)]
        self._places = [ours for ours, _ in places]
        theirs = [control, *(each for _, each in places)]
        context = multiprocessing.get_context("spawn")
        arguments = (self._cluster, fingerprint(), self._is_first, *theirs)
        self._process = context.Process(target=ray.drive, args=arguments, daemon=True)
        self._process.start()
        for each in theirs:
            each.close()
        try:
            if not self._control.poll(START_WITHIN_S):
                raise TimeoutError
            result_of(self._control.recv_bytes())
        except BaseException as error:
            self._end()
            if isinstance(error, EOFError | OSError):
                raise ClusterAway(
                    f"the cluster at {self._cluster.address} did not answer within {START_WITHIN_S:.0f} s, "
                    "or this machine's Ray gave up: see Ray's logs"
                ) from None
            raise
        self._is_first = False
        return self._control

    def _end(self) -> None:
        # A place's connection is closed by who reads it last: another thread may be reading it now, and its
        # number must not be given to a new one meanwhile.
        self._places, self._put = [], set()
        process, control, self._process, self._control = self._process, self._control, None, None
        end(process, control)


class RayWorker(Worker):
    """An actor, over the driver."""

    def __init__(self, driver: Driver, place: int) -> None:
        self._driver, self._place = driver, place

    def perform(self, common: Common, call: bytes) -> bytes:
        """Have the actor of this place perform the call; a lost one was replaced when this raises."""
        try:
            connection = self._driver.connection(self._place, common)
            send(connection, common.key, call)
            outcome = connection.recv_bytes()
        except (EOFError, OSError):
            raise WorkerDied("the process that speaks with Ray is gone") from None
        except BadEngine as error:
            raise WorkersLost(
                f"the cluster cannot be used now: {error}; send the same request again"
            ) from error
        if outcome.startswith(ray.LOST):
            raise WorkerDied(outcome.removeprefix(ray.LOST).decode())
        return outcome

    def close(self) -> None:
        """The driver ends it."""


class RayEngine(PoolEngine):
    """Actors of a cluster, one per worker."""

    is_elsewhere = True

    def __init__(self, cluster: Cluster) -> None:
        self._driver = Driver(cluster)
        self._driver.start()
        super().__init__([RayWorker(self._driver, place) for place in range(cluster.workers)])

    def forget(self, common: Common) -> None:
        """Free it in the object store."""
        self._driver.forget(common)

    def close(self) -> None:
        """End all workers, and the process that speaks with Ray."""
        super().close()
        self._driver.close()
