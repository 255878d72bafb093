"""A synthetic table with every kind of column, and its many forms."""

import csv
import io
import random

import numpy as np

from maskedlark.features.column import is_missing

ROWS = 600


def columns(rows=ROWS, seed=1):
    rng = random.Random(seed)
    return {
        "age": [
            rng.choice([None, float("nan"), *[rng.randint(18, 90) for _ in range(18)]]) for _ in range(rows)
        ],
        "spent": [round(rng.expovariate(0.02), 2) for _ in range(rows)],
        "city": [rng.choice(["Oslo", "São Paulo", "Roma", "", "Oslo", "Oslo"]) for _ in range(rows)],
        "agent": [f"agent {rng.randint(0, 300)}" for _ in range(rows)],
        "member": [rng.choice([True, False]) for _ in range(rows)],
        "region": [rng.randint(1, 4) for _ in range(rows)],
    }


def as_rows(table):
    return [dict(zip(table, cells, strict=True)) for cells in zip(*table.values(), strict=True)]


def as_csv(table):
    """Through a file and back: everything is text, None and not-a-number are empty."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(table))
    writer.writeheader()
    writer.writerows({k: None if is_missing(v) else v for k, v in row.items()} for row in as_rows(table))
    file.seek(0)
    return csv.DictReader(file)


def as_arrays(table):
    """As numpy holds them: floats where numbers are missing."""
    floats = [np.nan if age is None else age for age in table["age"]]
    return {name: np.array(floats if name == "age" else cells) for name, cells in table.items()}


def as_structured(table):
    arrays = as_arrays(table)
    answer = np.empty(len(arrays["age"]), [(name, array.dtype) for name, array in arrays.items()])
    for name, array in arrays.items():
        answer[name] = array
    return answer


class Series:
    """As much of a pandas series as the encoder may use."""

    def __init__(self, array):
        self.array = array

    def to_numpy(self):
        return self.array

    def __iter__(self):
        return iter(self.array)


class Frame:
    """As much of a pandas data frame as the encoder may use."""

    def __init__(self, table):
        self.table = {name: Series(array) for name, array in as_arrays(table).items()}
        self.columns = list(table)

    def __getitem__(self, name):
        return self.table[name]
