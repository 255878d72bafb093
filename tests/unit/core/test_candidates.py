import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskedlark.core.candidates import ALL, Pair, Sample
from maskedlark.core.declared import Bytes, Model
from maskedlark.core.labels import LabelSpace
from maskedlark.errors import NotDeclared
from maskedlark.randomness import FixedRandomness, SystemRandomness

policies = st.one_of(st.just(ALL), st.just(Pair()), st.integers(2, 9).map(Sample))
spaces = st.one_of(
    st.just(LabelSpace.binary()),
    st.integers(2, 9).map(LabelSpace.categorical),
    st.just(LabelSpace.integers(-3, 4)),
)


@given(policies, spaces, st.binary(max_size=8))
def test_the_truth_is_among_different_candidates_and_zero_too(policy, space, seed):
    rng = FixedRandomness(seed)
    labels = np.array(space.values)[rng.below(len(space), 60)]
    real = rng.below(4, 60) > 0
    shown, masks = policy.draw(space, labels, real, rng)
    assert shown.shape == (60, policy.count(space))
    assert np.isin(shown, space.values).all()
    assert all(len(set(row)) == len(row) for row in shown.tolist())
    assert (shown == 0).any(axis=1).all()
    assert set(masks.ravel()) <= {0, 1}
    assert (masks.sum(axis=1) == real).all()
    assert ((shown * masks).sum(axis=1) == np.where(real, labels, 0)).all()


def test_all_is_the_space_in_fixed_order():
    real = np.array([True, True])
    shown, masks = ALL.draw(LabelSpace.categorical(3), np.array([2, 0]), real, SystemRandomness())
    assert shown.tolist() == [[0, 1, 2]] * 2
    assert masks.tolist() == [[0, 0, 1], [1, 0, 0]]


def test_pair_shows_exactly_one_zero_in_random_order():
    labels = np.array([0, 3] * 500)
    real = np.ones(1000, np.bool_)
    shown, masks = Pair().draw(LabelSpace.categorical(5), labels, real, FixedRandomness(b"pair"))
    assert ((shown == 0).sum(axis=1) == 1).all()
    # 500 fair coins each: outside 180 … 320 once in 10^9 runs.
    for label in (0, 3):
        assert 180 < masks[labels == label, 0].sum() < 320
    assert set(shown[labels == 0].max(axis=1)) == {1, 2, 3, 4}


def test_a_sample_of_the_whole_space_is_all_of_it():
    real = np.ones(4, np.bool_)
    shown, _ = Sample(9).draw(LabelSpace.categorical(4), np.arange(4), real, SystemRandomness())
    assert [sorted(row) for row in shown.tolist()] == [[0, 1, 2, 3]] * 4
    with pytest.raises(NotDeclared, match="at least 2"):
        Sample(1)


def test_several_labels_a_model_have_masks_side_by_side():
    model = Model("two", (Bytes(1),), (LabelSpace.binary(), LabelSpace.categorical(3)))
    candidates, secret = model.mask([[1, 0], [2, 0]], np.array([True, False]), SystemRandomness())
    assert [shown.tolist() for shown in candidates] == [[[0, 1]] * 2, [[0, 1, 2]] * 2]
    assert secret.tolist() == [[0, 1, 0, 0, 1], [0] * 5]
    assert model.secrets() == 5
    with pytest.raises(NotDeclared, match="declares 2 labels"):
        model.mask([[1, 0]], np.array([True, False]), SystemRandomness())
    with pytest.raises(NotDeclared, match="differ in length"):
        model.mask([[1, 0], [1]], np.array([True, False]), SystemRandomness())
