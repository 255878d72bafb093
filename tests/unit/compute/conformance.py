"""What every engine does, as checks of an open one. `test_engines.py` and `test_ray.py` run them."""

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from maskedlark.compute.engine import Engine, SerialEngine
from maskedlark.compute.errors import WorkersLost, WorkFailed
from maskedlark.helper.errors import FolderInUse
from maskedlark.release.shards import Computation, ShardRows, compute_counted
from maskedlark.release.under_way import UnderWay
from maskedlark.wire.errors import OutOfRange
from tests.unit.compute import work

Check = Callable[[Engine, Path], None]


def results_are_in_order(engine: Engine, folder: Path) -> None:
    for count in (0, 1, engine.workers, 5 * engine.workers + 1):
        assert engine.map(work.multiply, 3, range(count)) == [3 * item for item in range(count)]
    assert engine.run(work.double, 4) == 8


def a_place_is_a_worker(engine: Engine, folder: Path) -> None:
    first = engine.map(work.process_of, None, range(engine.workers))
    assert len(set(first)) == engine.workers
    again = engine.map(work.process_of, None, range(4 * engine.workers))
    assert again == 4 * first


def every_worker_can_be_checked(engine: Engine, folder: Path) -> None:
    (folder / "probe").write_text("here")
    assert engine.map(work.read, folder, range(engine.workers)) == ["here"] * engine.workers
    with pytest.raises(FileNotFoundError):
        engine.map(work.read, folder / "elsewhere", range(engine.workers))


def common_is_decoded_once_by_a_worker(engine: Engine, folder: Path) -> None:
    seen = set(engine.map(work.identity_of, ["a list", "of ours"], range(6 * engine.workers)))
    assert len(seen) == engine.workers


def progress_counts_in_the_caller(engine: Engine, folder: Path) -> None:
    for count in (1, 7):
        told: list[int] = []
        threads: list[int] = []

        def tell(done: int, told: list[int] = told, threads: list[int] = threads) -> None:
            told.append(done)
            threads.append(threading.get_ident())

        engine.map(work.multiply, 1, range(count), tell)
        assert told == [*range(1, count + 1)]
        assert set(threads) == {threading.get_ident()}


def queries_are_counted_by_shards(engine: Engine, folder: Path) -> None:
    """And add up to the same, in rounds or at once."""
    for by, count in itertools.product(
        ((), ("key",)), (0, 1, engine.workers + 1, 4 * engine.workers + 1, 100 * engine.workers + 3)
    ):
        question: Any = work.Adding(*by)
        rows: list[Any] = [ShardRows(work.Number(number)) for number in range(count)]  # type: ignore[arg-type]
        told: list[int] = []
        with patch.object(UnderWay, "counted", lambda _, what, of, told=told: nullcontext(told.append)):
            found = compute_counted(engine, Computation(question), rows)
        assert sum(found) == sum(range(count))  # type: ignore[arg-type]
        assert told == sorted(set(told))
        *_, before, end = 0, *(told or [0])
        assert end == count
        assert end - before != 1 or count == 1, "a single shard would be the helper's own work"
        rounds = count // engine.workers // (8 if by else 1)
        assert min(rounds, 16) / 2 <= len(told) <= 16, "not all at once: there is progress to see"


def errors_keep_their_type_and_content(engine: Engine, folder: Path) -> None:
    with pytest.raises(FolderInUse) as raised:
        engine.run(work.fail_with_arguments, folder)
    assert str(raised.value) == str(FolderInUse(folder, "1234"))
    assert raised.value.pid == "1234"
    with pytest.raises(KeyError, match="a key"):
        engine.run(work.fail_as_a_library, work.SECRET)
    with pytest.raises(OutOfRange, match=r"item 5$"):
        engine.map(work.fail_from, 5, range(6 * engine.workers))
    assert engine.map(work.multiply, 2, range(3)) == [0, 2, 4]


def errors_that_cannot_be_sent_are_named(engine: Engine, folder: Path) -> None:
    if isinstance(engine, SerialEngine):
        return
    with pytest.raises(
        WorkFailed, match=r"HoldsALock, raised by a worker, at tests\.unit\.compute\.work:"
    ) as raised:
        engine.run(work.fail_unsendable, work.SECRET)
    assert work.SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


def large_items_and_results_arrive(engine: Engine, folder: Path) -> None:
    common, items = b"common" * 300_000, [bytes([place]) * 3_000_000 for place in range(1, 6)]
    assert engine.map(work.reversed_bytes, common, items) == [item + common for item in items]


def threads_share_it(engine: Engine, folder: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        maps = [threads.submit(engine.map, work.multiply, factor, range(9)) for factor in range(8)]
        runs = [threads.submit(engine.run, work.double, item) for item in range(16)]
        assert [each.result() for each in maps] == [
            [factor * item for item in range(9)] for factor in range(8)
        ]
        assert [each.result() for each in runs] == [2 * item for item in range(16)]


def a_lost_worker_is_replaced(engine: Engine, folder: Path) -> None:
    if isinstance(engine, SerialEngine):
        return
    marks = folder / "marks"
    marks.mkdir()
    items = range(engine.workers + 1)
    assert engine.map(work.end_once, marks, items) == [item * item for item in items]
    assert len([*marks.iterdir()]) == len(items)


def an_item_that_ends_workers_is_given_up(engine: Engine, folder: Path) -> None:
    if isinstance(engine, SerialEngine):
        return
    with pytest.raises(WorkersLost, match="send the same request again") as raised:
        engine.map(work.end_always, work.SECRET, [1, 2])
    assert work.SECRET not in str(raised.value)
    results_are_in_order(engine, folder)


CHECKS: tuple[Check, ...] = (
    results_are_in_order,
    a_place_is_a_worker,
    every_worker_can_be_checked,
    common_is_decoded_once_by_a_worker,
    progress_counts_in_the_caller,
    queries_are_counted_by_shards,
    errors_keep_their_type_and_content,
    errors_that_cannot_be_sent_are_named,
    large_items_and_results_arrive,
    threads_share_it,
    a_lost_worker_is_replaced,
    an_item_that_ends_workers_is_given_up,
)
