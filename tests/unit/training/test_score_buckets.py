"""Buckets of scores by quantiles, with an even chance among their edges."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskedlark.core.labels import LabelSpace
from maskedlark.exact.losses import BinaryCrossEntropy
from maskedlark.training.score_buckets import LabelTable


def table(scores):
    outputs = np.array(scores, np.float64)[:, None]
    return LabelTable(BinaryCrossEntropy(), LabelSpace.binary(), 0, 0, (), outputs, 1.0, None)


@given(st.lists(st.integers(-40, 60), min_size=4, max_size=200), st.integers(1, 40), st.integers(0, 30))
def test_no_bucket_beside_an_even_chance_is_joined_across_it(scores, buckets, least):
    cut, below = table(scores).cut(buckets, least), sum(each < 0 for each in scores)
    if min(below, len(scores) - below) < max(least, 1):
        return
    place, rows = cut.edges.index(0.0), np.bincount(cut.cells, minlength=len(cut.edges) + 1)
    assert min(rows[place], rows[place + 1]) >= least


@given(st.lists(st.integers(-40, 60), min_size=4, max_size=200), st.integers(1, 40))
def test_all_quantiles_are_edges_where_nothing_is_joined(scores, buckets):
    cut, some = table(scores).cut(buckets), np.sort(scores)
    wanted = {some[place * len(some) // buckets] for place in range(1, buckets)} - {some[0]}
    assert set(cut.edges) - {0.0} == wanted - {0}
    assert list(cut.edges) == sorted(cut.edges)
