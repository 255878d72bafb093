"""Parts of a dataset: who is held out, who is in a batch, and columns that stay together."""

import numpy as np
import pytest

from maskedlark.core import batches
from maskedlark.core.records import Trained
from maskedlark.privacy import parts
from maskedlark.privacy.function import Part
from maskedlark.privacy.sampling import Sampling

SEED = b"p" * 32


def records(count, one_row=False):
    shown = np.array([[0, 1]]) if one_row else np.arange(2 * count).reshape(count, 2)
    return Trained(
        np.arange(16 * count, dtype=np.uint8).reshape(count, 16),
        np.arange(count, dtype=np.uint8)[:, None],
        (shown,),
        np.arange(2 * count).reshape(count, 2),
    )


@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
def test_held_out_and_training_records_are_all_and_apart(share):
    out = parts.rows_of(Part("held_out", share), SEED, "m", 500)
    others = parts.rows_of(Part("training", share), SEED, "m", 500)
    assert sorted([*out, *others]) == list(range(500))
    assert out.tolist() == np.flatnonzero(batches.held_out(SEED, "m", share, 500)).tolist()


def test_who_is_held_out_does_not_change_with_the_step():
    drawn = [
        parts.batch(Sampling(kind="whole", held_out=0.3), SEED, "m", first, step, 200)
        for first, step in ((0, 0), (0, 5), (90, 1))
    ]
    assert all(np.array_equal(drawn[0], each) for each in drawn)
    assert drawn[0].tolist() == parts.rows_of(Part("training", 0.3), SEED, "m", 200).tolist()


def test_more_held_out_are_those_of_before_and_others():
    few = parts.rows_of(Part("held_out", 0.1), SEED, "m", 500)
    assert set(few) < set(parts.rows_of(Part("held_out", 0.2), SEED, "m", 500))


def test_slots_count_from_the_sessions_first():
    sampling = Sampling(kind="poisson", rate=0.5)
    one = parts.batch(sampling, SEED, "m", 10, 4, 300)
    assert one.tolist() == parts.batch(sampling, SEED, "m", 14, 0, 300).tolist()
    assert one.tolist() == batches.poisson(SEED, "m", 14, 0.5, 300).tolist()


def test_an_epochs_order_is_that_of_its_first_slot():
    sampling = Sampling(kind="partition", batches=4)
    for step in range(8):
        first = 7 + step // 4 * 4
        wanted = batches.partition(SEED, "m", first, 4, 50)[step % 4]
        assert parts.batch(sampling, SEED, "m", 7, step, 50).tolist() == wanted.tolist()


@pytest.mark.parametrize("one_row", [True, False])
@pytest.mark.parametrize("rows", [[], [2], [0, 3, 4], range(5)])
def test_columns_of_the_records_taken_stay_together(one_row, rows):
    whole = records(5, one_row)
    found = parts.take(whole, rows if isinstance(rows, range) else np.array(rows, np.intp))
    assert len(found) == len(rows)
    assert found.ids.tolist() == whole.ids[list(rows)].tolist()
    assert found.features[:, 0].tolist() == list(rows)
    assert found.shares.tolist() == whole.shares[list(rows)].tolist()
    wanted = whole.candidates[0] if one_row else whole.candidates[0][list(rows)]
    assert found.candidates[0].tolist() == wanted.tolist()


def test_one_record_with_candidates_of_its_own_is_taken_or_not():
    alone = records(1)
    assert len(parts.take(alone, np.array([], np.intp))) == 0
    assert parts.take(alone, np.array([0])).candidates[0].tolist() == [[0, 1]]
