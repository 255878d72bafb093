import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskedlark.core import field, sharing
from maskedlark.core.purpose import Purpose
from maskedlark.errors import NotDeclared
from maskedlark.randomness import FixedRandomness, SystemRandomness
from tests.twins import sharing as twin

purposes = st.sampled_from(list(Purpose))


@given(st.integers(2, 7), st.integers(0, 12), st.integers(1, 5), purposes, st.binary(max_size=4))
def test_shares_of_any_secret_combine_to_it(helpers, records, count, purpose, seed):
    rng = FixedRandomness(seed)
    secrets = rng.below(field.P, records * count).reshape(records, count)
    ids = sharing.random_rows(records, 16, rng)
    shares = sharing.split(secrets, ids, purpose, helpers, rng)
    views = []
    for helper, carried in enumerate(shares.carried()):
        views.append(sharing.recover(carried, ids, purpose, helper, count))
    assert sharing.combine(views).tolist() == secrets.tolist()


@given(st.integers(2, 5), st.integers(1, 6), purposes)
def test_split_equals_the_twin(helpers, count, purpose):
    rng = FixedRandomness(b"twin")
    secrets, ids = rng.below(field.P, 3 * count).reshape(3, count), sharing.random_rows(3, 16, rng)
    shares = sharing.split(secrets, ids, purpose, helpers, rng)
    for record in range(3):
        seeds = [carried[record].tobytes() for carried in shares.carried()[1:]]
        expected = twin.explicit(secrets[record].tolist(), seeds, ids[record].tobytes(), purpose.value)
        assert shares.explicit[record].tolist() == expected


def test_expansion_depends_on_all_that_it_binds():
    rng = SystemRandomness()
    seed, report = sharing.random_rows(1, 16, rng), sharing.random_rows(1, 16, rng)
    other = sharing.random_rows(1, 16, rng)
    streams = [
        sharing.expand(seed, report, Purpose.TRAIN, 1, 4),
        sharing.expand(other, report, Purpose.TRAIN, 1, 4),
        sharing.expand(seed, other, Purpose.TRAIN, 1, 4),
        sharing.expand(seed, report, Purpose.AGGREGATE, 1, 4),
        sharing.expand(seed, report, Purpose.TRAIN, 2, 4),
    ]
    numbers = {number for stream in streams for number in stream[0].tolist()}
    assert len(numbers) == 20


def test_a_word_of_p_is_rejected_and_the_next_one_taken(monkeypatch):
    """No seed is known whose stream holds p, so the hash is replaced by one that has it."""
    stream = b"".join(word.to_bytes(8, "little") for word in (5, field.P, 2**64 - 1, 7, 8, 9))

    class Stream:
        def __init__(self, label: bytes) -> None:
            pass

        def digest(self, size: int) -> bytes:
            return stream[:size]

    monkeypatch.setattr(hashlib, "shake_128", Stream)
    seeds = ids = np.zeros((2, 16), np.uint8)
    assert sharing.expand(seeds, ids, Purpose.TRAIN, 1, 3).tolist() == [[5, 7, 8]] * 2
    words = (int.from_bytes(stream[i : i + 8], "little") % 2**61 for i in range(0, len(stream), 8))
    assert twin.first_below_p(words, 3) == [5, 7, 8]


@pytest.mark.parametrize("helpers", [0, 1, 256])
def test_a_number_of_helpers_that_cannot_be_is_refused(helpers):
    with pytest.raises(NotDeclared, match="2 to 255 helpers"):
        sharing.split(
            np.zeros((1, 1), np.int64),
            np.zeros((1, 16), np.uint8),
            Purpose.TRAIN,
            helpers,
            SystemRandomness(),
        )


def test_shares_do_not_print():
    rng = SystemRandomness()
    shares = sharing.split(np.zeros((1, 1), np.int64), np.zeros((1, 16), np.uint8), Purpose.TRAIN, 2, rng)
    assert str(shares.explicit[0, 0]) not in repr(shares)
