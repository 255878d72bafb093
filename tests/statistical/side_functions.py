"""Functions that tell, for helpers of tests to load: one by its time, one by its words."""

import time

import numpy as np

from maskedlark.core.records import AggregateRecords
from maskedlark.functions.sums import Sums, SumsQuery

LEAK_S = 0.005


class Leaky(Sums):
    """Sums that take longer when a helper's share is odd."""

    name = "leaky"

    def ask(self, document, arguments):
        asked = super().ask(document, arguments)
        assert isinstance(asked, SumsQuery)
        return _LeakyQuery(**vars(asked))


class _LeakyQuery(SumsQuery):
    def over(self, records, device="cpu"):
        if isinstance(records, AggregateRecords) and parity(records.shares):
            time.sleep(LEAK_S)
        return super().over(records, device)


class Loud(Sums):
    """Sums that fail, and say all that they know."""

    name = "loud"

    def ask(self, document, arguments):
        asked = super().ask(document, arguments)
        assert isinstance(asked, SumsQuery)
        return _LoudQuery(**vars(asked))


class _LoudQuery(SumsQuery):
    def over(self, records, device="cpu"):
        assert isinstance(records, AggregateRecords)
        raise ValueError(records.keys, records.shares)


def parity(shares: np.ndarray) -> int:
    """Of the sum of all; that it overflows does not change it."""
    return int(shares.sum()) % 2
