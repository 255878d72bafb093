"""Processes that end with the one that started them, even if that one is killed. Run by the child.

A pipe from the parent ends when the parent does, however it ends, on every system.
"""

import multiprocessing
import os
import signal
import threading
from contextlib import suppress


def follow_parent() -> None:
    """End with the parent: a killed one leaves no worker behind, which might hold keys. Run by a worker."""
    # These reach the whole group. The parent first finishes its requests, then ends its workers.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker was started by somebody"

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def stop_with_input() -> None:
    """Stop this process, in order, when standard input ends. Run by a service."""

    def wait() -> None:
        # Not through `sys.stdin`, whose lock a thread must not hold when the interpreter ends. A connection
        # whose other end was killed before it read all that came fails instead of ending.
        with suppress(OSError):
            while os.read(0, 1024):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()
