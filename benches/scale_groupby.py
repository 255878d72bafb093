"""Sums by a million keys over ten million records in shards, against DuckDB on the same columns in the clear.

The shards are files as a helper writes them, made directly. DuckDB has the key as a column of integers, which
is its fastest; as texts it takes twice the time. Both give keys, sizes and sums of every group.
"""

import multiprocessing
import os
import pickle
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from benches.timing import seconds, side_by_side
from maskedlark.core import field
from maskedlark.core.field import FieldArray, Totals
from maskedlark.core.records import AggregateRecords, Coded
from maskedlark.functions.function import Query, Table
from maskedlark.functions.sums import Sums
from tests.unit.parameters.cases import make

RECORDS, KEYS, SHARDS, ROUNDS = 10_000_000, 1_000_000, 10, 7
VALUES = {"purchase": 50_000, "visit": 1}
QUERY = (
    "SELECT key, count(*) AS records, sum(purchase) AS purchase, sum(visit) AS visit FROM clear GROUP BY key"
)


def measure(progress: Callable[[str], None]) -> dict[str, object]:
    """Seconds of both, and ours / theirs, on one core and on two."""
    query = question()
    with tempfile.TemporaryDirectory() as folder:
        progress("writing ten million records")
        made = write(Path(folder))
        shards = [made.shard(number) for number in range(SHARDS)]
        check(query.share(shards, 1)[0], made)
        progress("one core each")
        made.peer.execute("SET threads = 1")
        ours_s, duckdb_s, ratio = side_by_side(lambda: query.share(shards, 1), made.ask_peer, ROUNDS)
        progress("two cores each")
        made.peer.execute("SET threads = 2")
        with workers(made, 2) as pool:
            check(ask(pool, query)[0], made)
            two_s, duckdb_two_s, two_ratio = side_by_side(lambda: ask(pool, query), made.ask_peer, ROUNDS)
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
    }


def question() -> Query:
    """The sums of both values by the key."""
    document = make(keys=["campaign"], decoys=[], fake_rate=0.0, k=1)
    return Sums().ask(document, {"values": list(VALUES), "by": [["campaign"]]})


@dataclass(frozen=True)
class Columns:
    """Shards in a folder, what the other helper's shares add to each group, and the peer with the truth."""

    folder: Path
    names: tuple[str, ...]
    others: tuple[FieldArray, ...]
    peer: duckdb.DuckDBPyConnection

    def shard(self, number: int) -> AggregateRecords:
        """One shard, memory-mapped."""
        return _shard(self.folder, number, self.names)

    def ask_peer(self) -> dict[str, np.ndarray]:
        """The peer's answer, as columns."""
        return self.peer.execute(QUERY).fetchnumpy()


def write(folder: Path) -> Columns:
    """Shards of a helper, one of two, and the same records in the clear as a table of the peer."""
    rng, clear = np.random.default_rng(1), []
    totals = tuple(Totals(KEYS) for _ in VALUES)
    for number in range(SHARDS):
        codes = rng.integers(0, KEYS, RECORDS // SHARDS).astype(np.int32)
        values = {name: rng.integers(0, top + 1, len(codes)) for name, top in VALUES.items()}
        mask = rng.integers(0, field.P, (1 + len(VALUES), len(codes)))
        secrets = np.stack([np.ones(len(codes), np.int64), *values.values()])
        codes.tofile(folder / f"{number}-codes-0")
        field.subtract(secrets, mask).tofile(folder / f"{number}-shares")
        for total, own in zip(totals, mask[1:], strict=True):
            total.add(own, codes.astype(np.intp))
        clear.append(pd.DataFrame({"key": codes, **values}))
    peer = duckdb.connect()
    peer.register("frame", pd.concat(clear))
    peer.execute("CREATE TABLE clear AS SELECT * FROM frame")
    peer.unregister("frame")
    return Columns(folder, _names(), tuple(total.sums() for total in totals), peer)


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


@contextmanager
def workers(made: Columns, count: int) -> Iterator[list[Connection]]:
    """Processes on a core each, every one with its own part of the shards."""
    context, pool, cores = multiprocessing.get_context("spawn"), [], sorted(os.sched_getaffinity(0))
    for number in range(count):
        here, there = context.Pipe()
        shards = range(number * SHARDS // count, (number + 1) * SHARDS // count)
        core = cores[number % len(cores)]
        process = context.Process(target=_work, args=(there, made.folder, shards, core), daemon=True)
        process.start()
        pool.append((here, process))
    yield [here for here, _ in pool]
    for here, process in pool:
        here.send_bytes(b"")
        process.join()


def ask(pool: Sequence[Connection], query: Query) -> list[Table]:
    """The query through these processes: each adds up its shards, and sends what they add."""
    sent = pickle.dumps(query)
    for each in pool:
        each.send_bytes(sent)
    return query.tables([pickle.loads(each.recv_bytes()) for each in pool], 1)


def _work(parent: Connection, folder: Path, numbers: Sequence[int], core: int) -> None:
    os.sched_setaffinity(0, {core})
    names = _names()
    shards = [_shard(folder, number, names) for number in numbers]
    while sent := parent.recv_bytes():
        query: Query = pickle.loads(sent)
        parent.send_bytes(pickle.dumps(query.combined([query.over(each) for each in shards]), 5))


def _shard(folder: Path, number: int, names: tuple[str, ...]) -> AggregateRecords:
    codes = np.memmap(folder / f"{number}-codes-0", np.int32, "r").view(np.ndarray)
    shares = np.memmap(folder / f"{number}-shares", np.int64, "r", shape=(1 + len(VALUES), len(codes)))
    ids = np.zeros((len(codes), 0), np.uint8)
    return AggregateRecords(ids, {"campaign": Coded(codes, names)}, shares.view(np.ndarray).T)


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
