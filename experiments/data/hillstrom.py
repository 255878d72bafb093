"""Hillstrom's e-mail challenge (MineThatData, 2008): 64,000 customers, one of two e-mails or none, two weeks.

What an advertiser knows of a customer are the keys; what the customer did is the secret: visited, bought, and
for how much.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.data.places import File, read
from experiments.data.shoppers import table

KEYS = ("segment", "channel", "zip_code", "history_segment")
"""The e-mail that was sent; how the customer bought before; where; and for how much."""
FILE = File(
    "hillstrom/hillstrom.csv.gz",
    "ff9e59285e9dc3f5fa3e0975419e6631ea5bdccd65d818991473d2367e02979c",
    "the MineThatData e-mail challenge of 2008",
)


class Customers(NamedTuple):
    """A column for every key, and what every customer did."""

    keys: Mapping[str, Sequence[str]]
    visit: NDArray[np.int64]
    conversion: NDArray[np.int64]
    spend: NDArray[np.int64]
    """In cents; 0 for who bought nothing."""

    def __len__(self) -> int:
        return len(self.visit)


def check() -> None:
    """Raise NotHere where the file is missing."""
    load()


@cache
def load() -> Customers:
    """All of them, in the file's order."""
    return customers(table(read(FILE)))


def customers(columns: Mapping[str, Sequence[str]]) -> Customers:
    """As whole numbers, which is what values are."""
    cents = np.rint(100 * np.array(columns["spend"], np.float64)).astype(np.int64)
    visit, conversion = (np.array(columns[name], np.int64) for name in ("visit", "conversion"))
    return Customers({name: columns[name] for name in KEYS}, visit, conversion, cents)
