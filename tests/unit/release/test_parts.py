"""Parts of a dataset: who is held out, who is in a batch, and columns that stay together."""

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.core import batches
from maskedlark.core.batches import Draw
from maskedlark.core.records import TrainingRecords
from maskedlark.dp.sampling import Sampling
from maskedlark.functions.function import Part, Query
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.release import parts, shards
from maskedlark.release.parts import Batches, Work

SEED = b"p" * 32


def records(count, one_row=False):
    shown = np.array([[0, 1]]) if one_row else np.arange(2 * count).reshape(count, 2)
    return TrainingRecords(
        np.arange(16 * count, dtype=np.uint8).reshape(count, 16),
        np.arange(count, dtype=np.uint8)[:, None],
        (shown,),
        np.arange(2 * count).reshape(count, 2),
    )


def counted(work, place=0):
    """Who counts, of one dataset."""
    ends = np.cumsum([0, *map(len, work.rows)])
    return sorted(work.rows[place][work.counted[ends[place] : ends[place + 1]]].tolist())


def of_part(part, *sizes, seeds=(SEED, b"q" * 32, b"r" * 32)):
    return parts.of_part(part, seeds[: len(sizes)], "m", sizes)


def session(sampling, *sizes, first=0, most=None, seeds=(SEED, b"q" * 32, b"r" * 32)):
    return Batches(sampling, "m", seeds[: len(sizes)], (first,) * len(sizes), sizes, most)


@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
def test_held_out_and_training_records_are_all_and_apart(share):
    out, others = of_part(Part("held_out", share), 500), of_part(Part("training", share), 500)
    assert sorted([*counted(out), *counted(others)]) == list(range(500))
    assert counted(out) == np.flatnonzero(batches.held_out(SEED, "m", share, 500)).tolist()


@pytest.mark.parametrize("which", ["held_out", "training"])
def test_the_work_of_a_part_follows_from_sizes_and_share_alone(which):
    found = [of_part(Part(which, 0.1), 400, 300, seeds=(bytes([i]) * 32, SEED)) for i in range(20)]
    sizes = {sum(map(len, work.rows)) for work in found}
    assert sizes == {batches.room(0.1 if which == "held_out" else 1 - 0.1, 700)}


@pytest.mark.parametrize(
    ("sampling", "most"),
    [
        (Sampling(kind="whole"), 110),
        (Sampling(kind="partition", batches=7), 8 + 9),
        (Sampling(kind="partition", batches=200), 2),
        (Sampling(kind="poisson", rate=1.0), 110),
        (Sampling(kind="poisson", rate=0.05, held_out=0.5), batches.room(0.025, 110)),
    ],
)
def test_no_batch_has_more_records_than_the_field_is_checked_for(sampling, most):
    sizes = [np.count_nonzero(session(sampling, 50, 60).work(step).counted) for step in range(20)]
    assert max(sizes) <= sampling.most([50, 60]) == most
    assert max(sizes) == most or sampling.kind == "poisson"


def test_who_is_held_out_does_not_change_with_the_step():
    sampling = Sampling(kind="whole", held_out=0.3)
    drawn = [
        counted(session(sampling, 200, first=first).work(step)) for first, step in ((0, 0), (0, 5), (90, 1))
    ]
    assert drawn[0] == drawn[1] == drawn[2] == counted(of_part(Part("training", 0.3), 200))


def test_more_held_out_are_those_of_before_and_others():
    few = counted(of_part(Part("held_out", 0.1), 500))
    assert set(few) < set(counted(of_part(Part("held_out", 0.2), 500)))


def test_slots_count_from_the_sessions_first():
    sampling = Sampling(kind="poisson", rate=0.5)
    one = counted(session(sampling, 300, first=10).work(4))
    assert one == counted(session(sampling, 300, first=14).work(0))
    assert one == batches.poisson(SEED, "m", 14, 0.5, 300).batch.tolist()


def test_an_epochs_order_is_that_of_its_first_slot():
    drawn = session(Sampling(kind="partition", batches=4), 50, first=7)
    for step in range(8):
        first = 7 + step // 4 * 4
        wanted = np.flatnonzero(batches.partition(SEED, "m", first, 4, 50) == step % 4)
        assert counted(drawn.work(step)) == wanted.tolist()


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.8])
@pytest.mark.parametrize("held_out", [0.0, 0.2])
@pytest.mark.parametrize("sizes", [(2000,), (900, 20, 1080)])
def test_the_work_of_a_step_follows_from_sizes_and_rate_alone(rate, held_out, sizes):
    drawn = session(Sampling(kind="poisson", rate=rate, held_out=held_out), *sizes)
    work = [drawn.work(step) for step in range(20)]
    assert {sum(map(len, each.rows)) for each in work} == {batches.room(rate * (1 - held_out), 2000)}
    assert len({int(each.counted.sum()) for each in work}) > 1
    for place, size in enumerate(sizes):
        out = batches.held_out((SEED, b"q" * 32, b"r" * 32)[place], "m", held_out, size)
        for step, each in enumerate(work):
            taken = batches.poisson((SEED, b"q" * 32, b"r" * 32)[place], "m", step, rate, size).batch
            assert counted(each, place) == taken[~out[taken]].tolist()


def test_below_k_nobody_counts_and_the_work_is_the_same():
    work = of_part(Part("held_out", 0.1), 500)
    few, enough = work.at_least(int(work.counted.sum()) + 1), work.at_least(int(work.counted.sum()))
    assert not few.counted.any()
    assert enough.counted.tolist() == work.counted.tolist()
    assert [each.tolist() for each in few.rows] == [each.tolist() for each in work.rows]


def test_what_is_over_the_room_is_left_out():
    """Which hardly ever happens: here the room is cut down."""
    drawn = [batches.everybody(5), Draw(np.arange(4), np.array([False, True, True, False]))]
    work = parts._filled(drawn, 6, 0.5)
    assert [each.tolist() for each in work.rows] == [[0, 1, 2, 3, 4], [1]]
    assert work.counted.all()


@settings(max_examples=60)
@given(st.lists(st.lists(st.booleans(), max_size=40), min_size=1, max_size=3), st.data())
def test_rows_filled_in_blocks_are_those_that_are_sorted_at_once(taken, data):
    """Taken ones first, then others, each in their order; also where a block ends anywhere."""
    flat = np.array([each for own in taken for each in own], np.bool_)
    most = data.draw(st.integers(0, len(flat)))
    rng = np.random.default_rng(0)
    drawn = [Draw(rng.permutation(len(own)), np.array(own, np.bool_)) for own in taken]
    with patch.object(parts, "_BLOCK", data.draw(st.integers(1, 9))):
        work = parts._filled(drawn, most, None)
    order = np.sort(np.argsort(~flat, kind="stable")[:most])
    assert np.concatenate(work.rows).tolist() == np.concatenate([each.rows for each in drawn])[order].tolist()
    assert work.counted.tolist() == flat[order].tolist()


def test_no_record_is_in_more_batches_than_are_allowed():
    drawn = session(Sampling(kind="poisson", rate=0.5), 300, most=lambda step: 1 + step // 4)
    seen = np.zeros(300, int)
    for step in range(12):
        rows = counted(drawn.work(step))
        seen[rows] += 1
        assert seen.max() <= 1 + step // 4
        plain = batches.poisson(SEED, "m", step, 0.5, 300).batch
        assert set(rows) <= set(plain.tolist())
    assert len(rows) < len(plain)
    # After a restart, from any step on: the same.
    again = session(Sampling(kind="poisson", rate=0.5), 300, most=lambda step: 1 + step // 4)
    assert counted(again.work(11)) == rows
    assert counted(again.work(11)) == rows
    again.forget()
    assert counted(again.work(11)) == rows


@pytest.mark.parametrize(
    ("sampling", "each"),
    [
        (Sampling(kind="whole"), 0),
        (Sampling(kind="poisson", rate=0.5), 4),
        (Sampling(kind="poisson", rate=0.5, held_out=0.2), 5),
        (Sampling(kind="partition", batches=255), 1),
        (Sampling(kind="partition", batches=256, held_out=0.2), 3),
    ],
    ids=str,
)
def test_what_a_session_keeps_is_known_beforehand(sampling, each):
    drawn = session(sampling, 300, 200, most=lambda _: 9)
    assert drawn.kept_bytes == 500 * each
    for step in (0, 1, 300):
        drawn.work(step)
        kept = drawn._kept.seen, drawn._kept.held_out, drawn._kept.parts
        assert sum(array.nbytes for arrays in kept for array in arrays) == 500 * each


@dataclass(eq=False)
class Held:
    """A shard in memory, of the records from `start` on."""

    start: int
    held: TrainingRecords

    def __len__(self):
        return len(self.held)

    def records(self, rows=None):
        return self.held.select_rows(rows)


def cut_at(size, *ends):
    """A dataset of this size in shards that end there."""
    whole = records(size)
    rows = [range(*each) for each in pairwise((0, *ends, size))]
    return [Held(each.start, whole.select_rows(np.array(each, np.intp))) for each in rows]


@pytest.mark.parametrize("ends", [(), (300,), (0, 1, 150, 150, 600)])
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(kind="poisson", rate=0.02),
        Sampling(kind="poisson", rate=0.3, held_out=0.2),
        Sampling(kind="poisson", rate=1.0),
        Sampling(kind="partition", batches=7),
        Sampling(kind="partition", batches=7, held_out=0.5),
        Sampling(kind="whole"),
        Sampling(kind="whole", held_out=0.2),
    ],
    ids=str,
)
def test_every_shard_does_work_of_a_public_size_and_who_counts_is_the_same(sampling, ends):
    """A victim alone in a shard: the shard is visited in every step, and does the same in each."""
    drawn = session(sampling, 700, 90)
    datasets = [cut_at(700, *ends), cut_at(90)]
    sizes = []
    for step in range(14):
        work = drawn.work(step)
        pieces = work.cut(datasets, SystemRandomness())
        assert [each.shard for each in pieces] == [shard for own in datasets for shard in own]
        sizes.append((step % (sampling.batches or 1), *(len(each.counted) for each in pieces)))
        for place, own in enumerate(datasets):
            mine = [each for each in pieces if each.shard in own]
            rows = [
                each.shard.start + (np.arange(len(each.shard)) if each.rows is None else each.rows)
                for each in mine
            ]
            assert all(len(of) == len(each.counted) for of, each in zip(rows, mine, strict=True))
            found = np.concatenate([of[each.counted] for of, each in zip(rows, mine, strict=True)])
            assert sorted(found.tolist()) == counted(work, place)
    assert len(set(sizes)) == (sampling.batches or 1), "whatever the batch"


class Sized:
    """A shard of which only the size is looked at."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def records(self, _rows=None):
        raise AssertionError("nobody reads them")


def test_more_records_than_32_bits_number_are_each_in_the_batch_once():
    """Each dataset's own fit; those of thousands together do not."""
    size, datasets = 1 << 26, 33
    rows = tuple(np.array([0, place + 1, size - 1], np.int32) for place in range(datasets))
    work = Work(rows, np.ones(3 * datasets, np.bool_), 1e-7)
    pieces = work.cut([[Sized(size)]] * datasets, SystemRandomness())
    found = [(each.rows, each.counted) for each in pieces]
    assert [of[who].tolist() for of, who in found if of is not None] == [own.tolist() for own in rows]


def test_who_is_chosen_is_public_and_not_padded():
    drawn = session(Sampling(kind="chosen", held_out=0.3), 50)
    pieces = drawn.work(0, ((10, 20), (30, 31))).cut([cut_at(50, 15)], SystemRandomness())
    assert [each.rows.tolist() for each in pieces] == [[10, 11, 12, 13, 14], [0, 1, 2, 3, 4, 15]]


def test_more_than_the_room_of_a_shard_is_computed_all_the_same(monkeypatch):
    """Helpers cut datasets differently, so none may leave out what another does not."""
    monkeypatch.setattr(batches, "room", lambda rate, size: 20)
    work = Work((np.arange(40, dtype=np.int32),), np.arange(40) < 30, 0.1)
    first, second = work.cut([cut_at(200, 100)], SystemRandomness())
    for piece, rows, count in ((first, 30, 30), (second, 20, 0)):
        assert piece.rows is not None
        assert piece.counted is not None
        assert len(piece.rows) == rows
        assert piece.rows[piece.counted].tolist() == [*range(count)]


def windows(size, room):
    """Batches of a shard of this size, from nobody to as many as there is room for, before others' rows."""
    rng = np.random.default_rng(0)
    for few in sorted({0, 1, room // 2, room - 1, room}):
        own = np.sort(rng.choice(size, few, replace=False))
        yield own, np.concatenate([own, np.arange(size, size + room - few)]).astype(np.int32)


@pytest.mark.parametrize(("size", "room"), [(1, 1), (60, 60), (60, 45), (100, 20), (5000, 600)])
def test_a_shard_is_padded_with_random_rows_and_the_batch_alone_counts(size, room):
    padding = []
    for own, window in windows(size, room):
        rows, counts = parts._padded(window, size, FixedRandomness(b"padding"))
        assert len(rows) == len(counts) == room
        assert rows[counts].tolist() == own.tolist()
        assert (np.diff(rows) >= 0).all()
        padding += rows[~counts].tolist()
    assert 0 <= min(padding) <= max(padding) < size
    if room < size:
        # Evenly: the mean of uniform ones is off by less than five standard deviations.
        assert abs(np.mean(padding) - (size - 1) / 2) < 5 * size / np.sqrt(12 * len(padding))


def test_as_much_is_drawn_to_pad_a_shard_whoever_is_in_the_batch():
    drawn = []

    class Counted(FixedRandomness):
        def below(self, bound, count):
            drawn.append((bound, count))
            return super().below(bound, count)

    for _, window in windows(100, 20):
        parts._padded(window, 100, Counted(b"padding"))
    assert drawn == [(100 << 32, 20)] * 5


class Watched(np.ndarray[Any, Any]):
    """An array that notes every operation on it and on what follows from it, with all shapes."""

    seen: ClassVar[list[Any]] = []

    @classmethod
    @contextmanager
    def everywhere(cls):
        """What is done to arrays of the package's own making is noted too."""
        cls.seen.clear()
        with pytest.MonkeyPatch.context() as patched:
            for name in ("zeros", "full", "arange"):
                made = getattr(np, name)
                patched.setattr(np, name, lambda *shape, made=made, **kind: made(*shape, **kind).view(cls))
            yield

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **options):
        plain = [np.asarray(each) for each in inputs]
        if out:
            options["out"] = tuple(np.asarray(each) for each in out)
        return self.noted((ufunc.__name__, method), plain, getattr(ufunc, method)(*plain, **options))

    def __array_function__(self, function, types, arguments, options):
        result = super().__array_function__(function, types, arguments, options)
        return self.noted(function.__name__, arguments, result)

    def __getitem__(self, index):
        own = np.asarray(index) if isinstance(index, np.ndarray) else index
        return self.noted("get", [self, own], np.asarray(self)[own])

    def __setitem__(self, index, value):
        own = np.asarray(index) if isinstance(index, np.ndarray) else index
        np.asarray(self)[own] = value
        self.noted("set", [self, own, value], None)

    def noted(self, name, inputs, result):
        arrays = [each for each in (*inputs, result) if isinstance(each, np.ndarray)]
        self.seen.append((name, [(each.shape, each.dtype) for each in arrays]))
        return result.view(Watched) if isinstance(result, np.ndarray) else result


@pytest.mark.parametrize("sizes", [(1,), (17, 1, 42), (900, 1, 3000)])
@pytest.mark.parametrize("rate", [0.02, 0.3])
def test_cutting_takes_the_same_operations_on_arrays_of_the_same_shapes_whoever_is_in_the_batch(sizes, rate):
    total, done, rng = sum(sizes), [], np.random.default_rng(0)
    for likely in (0.0, rate / 2, rate, rate):
        counted = rng.random(total) < likely
        counted[sizes[0] % total] = likely > 0  # Alone in its shard.
        work = Work((np.arange(total, dtype=np.int32).view(Watched),), counted.view(Watched), rate)
        shards = cut_at(total, *np.cumsum(sizes)[:-1].tolist())
        with Watched.everywhere():
            work.cut([shards], FixedRandomness(b"padding"))
        done.append([*Watched.seen])
    assert all(each == done[0] for each in done)
    assert {"where", "cumsum", "set"} < {name for name, _ in done[0]}


def test_rows_that_do_not_count_add_nothing():
    own = shards.ShardRows(Held(0, records(5)), np.array([3, 1]), np.array([True, False]))
    found: Any = shards.over(shards.Computation(Echo()), [own])  # type: ignore[arg-type]
    assert found.features[:, 0].tolist() == [3, 1]
    assert found.shares.tolist() == [[6, 7], [0, 0]]


class Echo:
    """A query that returns what it is given."""

    def over_rows(self, records, rows, counted, device):
        return Query.over_rows(self, records, rows, counted, device)  # type: ignore[arg-type]

    def over(self, records, device):
        return records


@pytest.mark.parametrize("one_row", [True, False])
@pytest.mark.parametrize("rows", [[], [2], [0, 3, 4], range(5)])
def test_columns_of_the_records_taken_stay_together(one_row, rows):
    whole = records(5, one_row)
    found = whole.select_rows(np.array(rows, np.intp))
    assert len(found) == len(rows)
    assert found.ids.tolist() == whole.ids[list(rows)].tolist()
    assert found.features[:, 0].tolist() == list(rows)
    assert found.shares.tolist() == whole.shares[list(rows)].tolist()
    wanted = whole.candidates[0] if one_row else whole.candidates[0][list(rows)]
    assert found.candidates[0].tolist() == wanted.tolist()


def test_one_record_with_candidates_of_its_own_is_taken_or_not():
    alone = records(1)
    assert len(alone.select_rows(np.array([], np.intp))) == 0
    assert alone.select_rows(np.array([0])).candidates[0].tolist() == [[0, 1]]
