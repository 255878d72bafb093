"""Masked sums of any integer function are true, from shares that say nothing alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.core import field, lemma, sharing
from maskedlark.core.candidates import ALL, Pair, Sample
from maskedlark.core.declared import Bytes, Model
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import TrainingRecords
from maskedlark.errors import NotDeclared
from maskedlark.randomness import FixedRandomness


def held(model, features, labels, real, helpers, rng):
    """What each helper holds."""
    shown, secrets = model.mask(labels, real, rng)
    ids = sharing.random_rows(len(features), sharing.ID_BYTES, rng)
    carried = sharing.split(secrets, ids, Purpose.TRAIN, helpers, rng).carried()
    shares = [
        sharing.recover(own, ids, Purpose.TRAIN, place, secrets.shape[1]) for place, own in enumerate(carried)
    ]
    return [TrainingRecords(ids, features, tuple(shown), each) for each in shares]


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 5), st.sampled_from([ALL, Pair(), Sample(3)]), st.binary(max_size=6))
def test_masked_sums_of_any_function_are_true(helpers, policy, seed):
    rng = FixedRandomness(seed)
    model = Model("tag", (Bytes(3),), (LabelSpace.integers(-2, 3), LabelSpace.binary()), policy)
    features = rng.below(256, 60).reshape(20, 3).astype(np.uint8)
    labels, second, real = rng.below(6, 20) - 2, rng.below(2, 20), rng.below(5, 20) > 0
    records = held(model, features, [labels, second], real, helpers, rng)

    def function(x, y):
        x = x.astype(np.int64)
        return np.stack([x[:, 0] * y**3, (y == 2) * 10**12, x.sum(axis=1) - y], axis=1)

    for place, truth in enumerate((labels, second)):
        shares = [lemma.masked_sum(function, each, place) for each in records]
        found = field.to_signed(sharing.combine(shares))
        assert found.tolist() == function(features, truth)[real].sum(axis=0).tolist()


def test_functions_of_other_than_whole_numbers_are_refused():
    records, *_ = held(
        Model("tag", (Bytes(1),)),
        np.zeros((1, 1), np.uint8),
        [[1]],
        np.ones(1, bool),
        2,
        FixedRandomness(b""),
    )
    with pytest.raises(NotDeclared, match="return int64"):
        lemma.masked_sum(lambda x, y: x.sum(axis=1, keepdims=True) - y[:, None], records)  # That is float64.
    with pytest.raises(NotDeclared, match="one row per record"):
        lemma.masked_sum(lambda x, y: y, records)
