"""Sums by a million keys over ten million records in shards, against DuckDB on the same columns in the clear.

The shards are files as a helper writes them, made directly. DuckDB has the key as a column of integers, which
is its fastest; as texts it takes twice the time. Both give keys, sizes and sums of every group.
"""

import json
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from benches.ingest import watched
from benches.timing import seconds, side_by_side
from maskedlark.compute.engine import Engine, SerialEngine
from maskedlark.compute.local import LocalEngine
from maskedlark.core import field
from maskedlark.core.field import FieldArray, Totals
from maskedlark.core.purpose import Purpose
from maskedlark.functions.function import Query, Table
from maskedlark.functions.sums import Sums
from maskedlark.helper import columns
from maskedlark.helper.columns import Contents, ShardContents
from maskedlark.helper.dataset_files import LocalFiles
from maskedlark.helper.shards import FrozenDataset
from maskedlark.release.shards import Computation, ShardRows, compute_counted
from tests.unit.parameters.cases import make

RECORDS, KEYS, SHARDS, ROUNDS = 10_000_000, 1_000_000, 10, 7
VALUES = {"purchase": 50_000, "visit": 1}
DOCUMENT = make(keys=["campaign"], decoys=[], fake_rate=0.0, k=1)
QUERY = (
    "SELECT key, count(*) AS records, sum(purchase) AS purchase, sum(visit) AS visit FROM clear GROUP BY key"
)


def measure(progress: Callable[[str], None]) -> dict[str, object]:
    """Seconds of both, and ours / theirs, on one core and on two."""
    query = question()
    with tempfile.TemporaryDirectory() as folder:
        progress("writing ten million records")
        made = write(Path(folder))
        check(ask(SerialEngine(), made, query), made)
        progress("one core each")
        made.peer.execute("SET threads = 1")
        serial = SerialEngine()
        ours_s, duckdb_s, ratio = side_by_side(lambda: ask(serial, made, query), made.ask_peer, ROUNDS)
        progress("two cores each")
        made.peer.execute("SET threads = 2")
        with closing(LocalEngine(2)) as engine:
            check(ask(engine, made, query), made)
            with watched(os.getpid()) as peak:
                two_s, duckdb_two_s, two_ratio = side_by_side(
                    lambda: ask(engine, made, query), made.ask_peer, ROUNDS
                )
        texts_s = _texts(made)
    return {
        "records": RECORDS,
        "keys": KEYS,
        "shards": SHARDS,
        "values": len(VALUES),
        "one_core_ms": round(ours_s * 1e3),
        "one_core_duckdb_ms": round(duckdb_s * 1e3),
        "one_core_ratio": round(ratio, 3),
        "two_cores_ms": round(two_s * 1e3),
        "two_cores_duckdb_ms": round(duckdb_two_s * 1e3),
        "groupby_ratio": round(two_ratio, 3),
        "two_cores_duckdb_texts_ms": round(texts_s * 1e3),
        "groupby_peak_mb": peak.each_mb,
    }


def question() -> Query:
    """The sums of both values by the key."""
    return Sums().ask(DOCUMENT, {"values": list(VALUES), "by": [["campaign"]]})


@dataclass(frozen=True)
class Columns:
    """A frozen dataset, what the other helper's shares add to each group, and the peer with the truth."""

    dataset: FrozenDataset
    names: tuple[str, ...]
    others: tuple[FieldArray, ...]
    peer: duckdb.DuckDBPyConnection

    def ask_peer(self) -> dict[str, np.ndarray]:
        """The peer's answer, as columns."""
        return self.peer.execute(QUERY).fetchnumpy()


def write(folder: Path) -> Columns:
    """Shards of a helper, one of two, and the same records in the clear as a table of the peer."""
    rng, clear, shards, files = np.random.default_rng(1), [], [], LocalFiles(folder)
    totals = tuple(Totals(KEYS) for _ in VALUES)
    for number in range(SHARDS):
        codes = rng.integers(0, KEYS, RECORDS // SHARDS).astype(np.int32)
        values = {name: rng.integers(0, top + 1, len(codes)) for name, top in VALUES.items()}
        mask = rng.integers(0, field.P, (1 + len(VALUES), len(codes)))
        secrets = np.stack([np.ones(len(codes), np.int64), *values.values()])
        arrays: dict[str, np.ndarray] = {
            "ids": rng.integers(0, 256, (len(codes), 16), dtype=np.uint8),
            "codes-0": codes,
            "shares": field.subtract(secrets, mask),
        }
        shards.append(write_shard(files, number, arrays, {"": len(codes)}))
        for total, own in zip(totals, mask[1:], strict=True):
            total.add(own, codes.astype(np.intp))
        clear.append(pd.DataFrame({"key": codes, **values}))
    peer = duckdb.connect()
    peer.register("frame", pd.concat(clear))
    peer.execute("CREATE TABLE clear AS SELECT * FROM frame")
    peer.unregister("frame")
    names = _names()
    text = np.frombuffer(json.dumps([names]).encode(), np.uint8)
    entries = {columns.ENTRIES: columns.write(files, columns.ENTRIES, text, "|u1")}
    contents = Contents(shards=tuple(shards), files=entries)
    dataset = FrozenDataset(bytes(32), DOCUMENT, Purpose.AGGREGATE, 1 << 40, files, contents)
    return Columns(dataset, names, tuple(total.sums() for total in totals), peer)


def write_shard(
    files: LocalFiles, number: int, arrays: Mapping[str, np.ndarray], records: dict[str, int]
) -> ShardContents:
    """A shard as freezing writes it, made directly."""
    kinds: dict[str, columns.Kind] = {"uint8": "|u1", "int32": "<i4", "int64": "<i8"}
    written = {
        (name := columns.file_name(number, column)): columns.write(
            files, name, array, kinds[str(array.dtype)]
        )
        for column, array in arrays.items()
    }
    return ShardContents(files=written, records=records)


def check(table: Table, made: Columns) -> None:
    """Both helpers' shares add up to what the peer found, group by group."""
    found = made.ask_peer()
    order = np.argsort(found["key"])
    key = found["key"][order]
    assert list(table.rows) == [(made.names[each],) for each in key.tolist()]
    assert np.array_equal(table.records, found["records"][order])
    for name, share, other in zip(VALUES, table.shares, made.others, strict=True):
        assert np.array_equal(
            field.to_signed(field.add(np.ascontiguousarray(share[:, 0]), other[key])),
            found[name][order].astype(np.int64),
        )


def ask(engine: Engine, made: Columns, query: Query) -> Table:
    """The query as a helper computes it: every worker adds up its shards."""
    rows = [ShardRows(shard) for shard in made.dataset.shards(None)]
    (table,) = query.tables(compute_counted(engine, Computation(query), rows), 1)
    return table


def _names() -> tuple[str, ...]:
    return tuple(f"campaign-{number:07}" for number in range(KEYS))


def _texts(made: Columns) -> float:
    """The peer's time if the key is a column of texts."""
    made.peer.register("names", pd.DataFrame({"key": np.arange(KEYS, dtype=np.int32), "name": made.names}))
    made.peer.execute(
        "CREATE OR REPLACE TABLE clear AS "
        "SELECT name AS key, purchase, visit FROM clear JOIN names USING (key)"
    )
    return statistics.median(seconds(made.ask_peer) for _ in range(3))
