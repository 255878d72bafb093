"""Online shoppers' purchasing intention (UCI): 12,330 visits to a shop, of which 15.5 % ended in a purchase.

Three quarters of the rows train, drawn once with a fixed seed; the encoder is fitted to these alone, and sees
no label. 30 bytes a record.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from experiments.data import Split
from experiments.data.places import File, read
from maskedlark.features import Encoder

LABEL = "Revenue"
SPLIT_SEED = 0
TRAINED = 3 / 4
FILE = File(
    "online_shoppers/online_shoppers_intention.csv.gz",
    "ed94c9c95b15c20333f0539e69e06f4139ba9dd42cc8634f624c1595e02601f9",
    "UCI's online shoppers purchasing intention",
)

Table = Mapping[str, Sequence[str]]


def check() -> None:
    """Raise NotHere where the file is missing."""
    load()


@cache
def load(seed: int = SPLIT_SEED) -> Split:
    """Features as bytes, and whether the visit ended in a purchase. The seed draws who trains."""
    return split(table(read(FILE)), seed)


def table(data: bytes) -> dict[str, list[str]]:
    """A CSV's columns, by name."""
    rows = list(csv.DictReader(io.StringIO(data.decode())))
    return {name: [row[name] for row in rows] for name in rows[0]}


def split(columns: Table, seed: int = SPLIT_SEED) -> Split:
    """Rows to train with and to test with, encoded by what the former have."""
    bought = np.array([value == "TRUE" for value in columns[LABEL]], np.int64)
    train, test = parts(len(bought), seed)
    encoder = Encoder.fit(_some(columns, train), leave_out=[LABEL])
    rows = encoder.encode(columns)
    return Split(rows[train], bought[train], rows[test], bought[test])


def parts(rows: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places of rows to train with, and of those to test with."""
    order = np.random.default_rng(seed).permutation(rows)
    train, test = np.split(order, [int(TRAINED * rows)])
    return train, test


def _some(columns: Table, rows: NDArray[np.int64]) -> dict[str, list[str]]:
    return {name: [column[row] for row in rows] for name, column in columns.items()}
