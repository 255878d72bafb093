"""Sums by group: a helper over a shard's columns on disk, against pandas on the same columns in the clear."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from benches.timing import one_core, side_by_side
from maskedlark.core import field
from maskedlark.core.records import AggregateRecords, Coded
from maskedlark.functions.function import Table
from maskedlark.functions.sums import Sums
from maskedlark.randomness import SystemRandomness
from tests.unit.parameters.cases import make

RECORDS, GROUPS, ROUNDS = 1_000_000, 10_000, 21
VALUES = {"purchase": 50_000, "visit": 1}


def measure(progress: Callable[[str], None]) -> dict[str, object]:
    """One core. Ours returns groups of at least k records, with their sizes; pandas its usual frame."""
    one_core()
    document = make(keys=["campaign"], decoys=[], fake_rate=0.0, k=1)
    rng = SystemRandomness()
    group = rng.below(GROUPS, RECORDS)
    clear = {name: rng.below(largest + 1, RECORDS) for name, largest in VALUES.items()}
    with tempfile.TemporaryDirectory() as folder:
        progress("writing a million records")
        records, mask = _write(Path(folder), group, clear)
        question = Sums().ask(document, {"values": list(VALUES), "by": [["campaign"]]})
        frame = pd.DataFrame({"campaign": pd.Categorical.from_codes(group, _names()), **clear})
        as_text = frame.astype({"campaign": object})

        def ours() -> Table:
            return question.share([records], 1)[0]

        def texts() -> pd.DataFrame:
            return as_text.groupby("campaign")[list(VALUES)].sum()

        def categorical() -> pd.DataFrame:
            return frame.groupby("campaign", observed=True)[list(VALUES)].sum()

        _check(ours(), categorical(), mask, group)
        progress("against a column of categories")
        ours_s, pandas_s, ratio = side_by_side(ours, categorical, ROUNDS)
        progress("against a column of texts")
        _, text_s, text_ratio = side_by_side(ours, texts, ROUNDS // 3)
    return {
        "records": RECORDS,
        "groups": GROUPS,
        "values": len(VALUES),
        "helper_ms": round(ours_s * 1e3, 2),
        "pandas_ms": round(pandas_s * 1e3, 2),
        "groupby_ratio": round(ratio, 3),
        "pandas_text_ms": round(text_s * 1e3, 2),
        "groupby_text_ratio": round(text_ratio, 3),
    }


def _names() -> list[str]:
    return [f"campaign-{number:05}" for number in range(GROUPS)]


def _write(
    folder: Path, group: np.ndarray, clear: dict[str, np.ndarray]
) -> tuple[AggregateRecords, np.ndarray]:
    """A shard as freezing writes it, memory-mapped; and the other helper's shares of it."""
    secrets = np.stack([np.ones(RECORDS, np.int64), *clear.values()], axis=1)
    mask = SystemRandomness().below(field.P, secrets.size).reshape(secrets.shape)
    group.astype(np.int32).tofile(folder / "codes")
    field.subtract(secrets, mask).T.tofile(folder / "shares")  # One value of all records lies together.
    codes = np.memmap(folder / "codes", np.int32, "r").view(np.ndarray)
    shares = np.memmap(folder / "shares", np.int64, "r", shape=secrets.shape[::-1]).view(np.ndarray).T
    keys = {"campaign": Coded(codes, tuple(_names()))}
    return AggregateRecords(np.zeros((RECORDS, 0), np.uint8), keys, shares), mask


def _check(table: Table, truth: pd.DataFrame, mask: np.ndarray, group: np.ndarray) -> None:
    """The shares of both helpers add up to what pandas finds."""
    assert [row[0] for row in table.rows] == list(truth.index)
    for place, name in enumerate(VALUES, start=1):
        other = field.total_by(np.ascontiguousarray(mask[:, place]), group, GROUPS)
        found = field.to_signed(field.add(table.shares[place - 1][:, 0], other[np.unique(group)]))
        assert np.array_equal(found, truth[name].to_numpy())
