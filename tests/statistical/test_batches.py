"""Who is in a batch is drawn at the stated rate, and one draw says nothing of another.

Fixed seeds, so a pass is a pass for good; the stated rates are for a fresh choice of seed.
"""

import numpy as np
import pytest
from scipy import stats

from maskedlark.core import batches

RECORDS, SLOTS = 20_000, 50
SEED = b"a seed of batches, 32 bytes long"
FALSE_ALARM = 1e-6
"""For each p-value below; about a dozen are computed."""


def drawn(tag="m", rate=0.1, seed=SEED):
    """Who is in which batch: (slots, records)."""
    found = np.zeros((SLOTS, RECORDS), np.bool_)
    for slot in range(SLOTS):
        found[slot, batches.poisson(seed, tag, slot, rate, RECORDS).batch] = True
    return found


def independent(one, other):
    """The p-value of two yes-or-no draws having nothing to do with each other."""
    table = [[np.sum(one & other), np.sum(one & ~other)], [np.sum(~one & other), np.sum(~one & ~other)]]
    return stats.chi2_contingency(table, correction=False).pvalue


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.98])
def test_poisson_batches_have_their_rate(rate):
    count = int(drawn(rate=rate).sum())
    assert stats.binomtest(count, SLOTS * RECORDS, rate).pvalue > FALSE_ALARM


def test_batch_sizes_and_records_are_spread_as_coins_are():
    found, rate = drawn(), 0.1
    for axis, tries in ((1, RECORDS), (0, SLOTS)):
        counts = found.sum(axis=axis)
        spread = ((counts - tries * rate) ** 2).sum() / (tries * rate * (1 - rate))
        assert FALSE_ALARM < stats.chi2.sf(spread, len(counts)) < 1 - FALSE_ALARM


def test_slots_tags_and_seeds_draw_by_themselves():
    one = drawn()
    assert independent(one[:-1], one[1:]) > FALSE_ALARM
    assert independent(one, drawn(tag="n")) > FALSE_ALARM
    assert independent(one, drawn(seed=bytes(32))) > FALSE_ALARM
    assert independent(one[:, :-1], one[:, 1:]) > FALSE_ALARM


def test_who_is_held_out_says_nothing_of_batches():
    out = batches.held_out(SEED, "m", 0.2, RECORDS)
    assert stats.binomtest(int(out.sum()), RECORDS, 0.2).pvalue > FALSE_ALARM
    assert independent(drawn(), np.broadcast_to(out, (SLOTS, RECORDS))) > FALSE_ALARM


def test_epochs_are_split_anew():
    """Two records are together in an epoch's batch as often as the sizes of batches say."""
    places = np.empty((SLOTS, 1000), np.int64)
    for epoch in range(SLOTS):
        places[epoch] = batches.partition(SEED, "m", 10 * epoch, 10, 1000)
    together = int((places[:, ::2] == places[:, 1::2]).sum())
    assert stats.binomtest(together, SLOTS * 500, 99 / 999).pvalue > FALSE_ALARM
    same = int((places[1:] == places[:-1]).sum())
    assert stats.binomtest(same, (SLOTS - 1) * 1000, 0.1).pvalue > FALSE_ALARM
