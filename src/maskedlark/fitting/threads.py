"""One thread, where the order of sums in floats decides what is asked. Run by the ad server."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


@contextmanager
def alone() -> Iterator[None]:
    """Numpy, scipy, scikit-learn and torch on one thread: another order must not make another question."""
    before = torch.get_num_threads()
    with threadpool_limits(1):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)
