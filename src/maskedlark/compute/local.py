"""Worker processes on this machine, started on demand."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from maskedlark.compute.child_process import follow_parent
from maskedlark.compute.engine import C, Progress, R, T, no_progress
from maskedlark.compute.pool import PoolEngine, Worker, WorkerDied
from maskedlark.compute.task import Common, Performer

END_WITHIN_S = 10.0


class LocalWorker(Worker):
    """A process. Spawned, since a fork would copy threads' locks and the helper's keys."""

    def __init__(self) -> None:
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._held = b""

    def perform(self, common: Common, call: bytes) -> bytes:
        """Send the call, and `common` unless the process has it; wait for the outcome."""
        try:
            connection = self._connection or self._start()
            is_held = common.key == self._held
            send(connection, common.key, b"" if is_held else common.data, call)
            self._held = common.key or self._held
            return connection.recv_bytes()
        except (EOFError, OSError):
            self.close()
            raise WorkerDied("the process is gone") from None

    def _start(self) -> Connection:
        self._connection, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        with _one_thread_each():
            self._process.start()
        # Only the process holds its end now, so that this end notices when it is gone.
        theirs.close()
        return self._connection

    def close(self) -> None:
        """End the process. A process that was told to end, by the end of its pipe, has END_WITHIN_S."""
        end(self._process, self._connection)
        self._process = self._connection = None
        self._held = b""


class LocalEngine(PoolEngine):
    """As many processes as there are workers."""

    def __init__(self, workers: int) -> None:
        super().__init__([LocalWorker() for _ in range(workers)])

    def map(
        self,
        function: Callable[[C, T], R],
        common: C,
        items: Sequence[T],
        progress: Progress = no_progress,
    ) -> list[R]:
        """As `Engine.map` says, but for a single item: sending it away would only take longer."""
        if len(items) == 1:
            result = function(common, items[0])
            progress(1)
            return [result]
        return super().map(function, common, items, progress)


_STARTING = threading.Lock()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Numerical libraries of a process that is started now use one thread, unless the operator says more.

    They read the environment when they are loaded. As many threads as processors in every worker would spin
    against each other.
    """
    with _STARTING:
        added = [name for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if name not in os.environ]
        os.environ |= dict.fromkeys(added, "1")
        try:
            yield
        finally:
            for name in added:
                del os.environ[name]


def send(connection: Connection, *frames: bytes) -> None:
    """Send frames, which `receive` returns at the other end. Not one pickle: that would copy them."""
    for frame in frames:
        connection.send_bytes(frame)


def receive(connection: Connection, count: int) -> list[bytes]:
    """The next frames."""
    return [connection.recv_bytes() for _ in range(count)]


def end(process: BaseProcess | None, *connections: Connection | None) -> None:
    """Close the connections, and see to it that the process ends."""
    for connection in connections:
        if connection is not None:
            connection.close()
    if process is not None and process.pid is not None:
        process.join(END_WITHIN_S)
        process.kill()
        process.join()
        with suppress(ValueError):  # Another thread, which starts a process, may be the one that reaps it.
            process.close()


def _serve(connection: Connection) -> None:
    """Perform calls until the pipe ends. Run by a worker."""
    follow_parent()
    performer = Performer()
    while True:
        try:
            key, data, call = receive(connection, 3)
        except EOFError:
            return
        connection.send_bytes(performer.perform(key, data, call))
