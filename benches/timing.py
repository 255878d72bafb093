"""Timing two things against each other on a machine that is shared and noisy."""

import gc
import os
import statistics
import time
from collections.abc import Callable


def one_core() -> None:
    """Keep this process on one core for the rest of its life."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def side_by_side(
    ours: Callable[[], object], peer: Callable[[], object], rounds: int
) -> tuple[float, float, float]:
    """Median seconds of ours and of the peer, and the median of their ratio ours / peer.

    They take turns, so a slow spell of the machine hits both of a round, and the ratio of a round stands.
    """
    ours(), peer()
    gc.collect()
    pairs = [(seconds(ours), seconds(peer)) for _ in range(rounds)]
    ratio = statistics.median(mine / theirs for mine, theirs in pairs)
    return (
        statistics.median(mine for mine, _ in pairs),
        statistics.median(theirs for _, theirs in pairs),
        ratio,
    )
