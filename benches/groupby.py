"""Sums by group: a helper over ingested columns on disk, against pandas on the same columns in the clear."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from benches.timing import one_core, side_by_side
from maskedlark.core import field, sharing
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import AggregateRecords, Coded
from maskedlark.functions.function import Query, Table
from maskedlark.functions.sums import Sums
from maskedlark.helper import sharding
from maskedlark.helper.chunk_file import KeptRecords
from maskedlark.helper.columns import Contents
from maskedlark.helper.dataset_files import LocalFiles
from maskedlark.helper.sharding import Range, RangeWriter, Sorting
from maskedlark.helper.shards import FrozenDataset
from maskedlark.parameters.document import Document
from maskedlark.randomness import SystemRandomness
from maskedlark.wire.datasets import PARTS
from maskedlark.wire.report import HEAD_BYTES
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
        dataset, mask = _write(Path(folder), document, group, clear)
        question = Sums().ask(document, {"values": list(VALUES), "by": [["campaign"]]})
        frame = pd.DataFrame({"campaign": pd.Categorical.from_codes(group, _names()), **clear})
        as_text = frame.astype({"campaign": object})

        def ours() -> Table:
            return _share(question, dataset)

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
    folder: Path, document: Document, group: np.ndarray, clear: dict[str, np.ndarray]
) -> tuple[FrozenDataset, np.ndarray]:
    """A frozen dataset as freezing writes it, chunk after chunk; and the other helper's shares of it."""
    rng = SystemRandomness()
    files, heads = LocalFiles(folder), np.zeros((PARTS, HEAD_BYTES), np.uint8)
    writer = RangeWriter(files, document.measure, sharding.ranges([], 0, 1, rng))
    secrets = np.stack([np.ones(RECORDS, np.int64), *clear.values()], axis=1)
    mask = rng.below(field.P, secrets.size).reshape(secrets.shape)
    shares, names = field.subtract(secrets, mask), _names()
    for start in range(0, RECORDS, PARTS):
        some = slice(start, start + PARTS)
        entries, codes = np.unique(group[some], return_inverse=True)
        coded = Coded(codes.astype(np.int32), tuple(names[entry] for entry in entries))
        ids = sharing.random_rows(len(codes), sharing.ID_BYTES, rng)
        records = AggregateRecords(ids, {"campaign": coded}, shares[some])
        writer.append(KeptRecords(records, heads[: len(codes)]))
    writer.flush()
    entries_file, ranks = sharding.write_entries(files, writer)
    shard = sharding.sort_range(Sorting(files, document.measure, ranks), Range(0, tuple(writer.pieces[0])))
    contents = Contents(shards=(shard,), files=entries_file)
    return FrozenDataset(bytes(32), document, Purpose.AGGREGATE, 1 << 40, files, contents), mask


def _share(question: Query, dataset: FrozenDataset) -> Table:
    (table,) = question.share([dataset.records(None)], 1)
    return table


def _check(table: Table, truth: pd.DataFrame, mask: np.ndarray, group: np.ndarray) -> None:
    """The shares of both helpers add up to what pandas finds."""
    assert [row[0] for row in table.rows] == list(truth.index)
    for place, name in enumerate(VALUES, start=1):
        other = field.total_by(np.ascontiguousarray(mask[:, place]), group, GROUPS)
        found = field.to_signed(field.add(table.shares[place - 1][:, 0], other[np.unique(group)]))
        assert np.array_equal(found, truth[name].to_numpy())
