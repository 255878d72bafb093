import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.core import field, sharing, validity
from maskedlark.core.candidates import ALL, Pair, Sample
from maskedlark.core.declared import MAX_POINTS, Bytes, Measure, Model, Value
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.errors import NotDeclared
from maskedlark.randomness import FixedRandomness
from tests.twins import validity as twin

KEY = bytes(range(32))
VALUES = (Value("price", 0, 255), Value("profit", -300, 41), Value("none", 0, 0))
MEASURE = Measure(("city",), VALUES, checked=True)
LABELS = (LabelSpace.binary(), LabelSpace.integers(-2, 3))
MODELS = [Model("m", (Bytes(1),), LABELS, policy, checked=True) for policy in (ALL, Pair(), Sample(3))]
BINARY = Model("m", (Bytes(1),), checked=True)


def measured(records: int, rng: FixedRandomness) -> np.ndarray:
    ranges = [(value.least, max(value.high, 0)) for value in VALUES]
    columns = [least + rng.below(most - least + 1, records) for least, most in ranges]
    return MEASURE.lift(columns, rng.below(2, records) == 1)


def masked(model: Model, records: int, rng: FixedRandomness) -> np.ndarray:
    drawn = [np.array(space.values)[rng.below(len(space), records)] for space in model.labels]
    return model.mask(drawn, rng.below(2, records) == 1, rng)[1]


def checked(carried: np.ndarray, declared: Measure | Model, helpers: int, rng: FixedRandomness) -> np.ndarray:
    """What all helpers together find, given the secrets with their proof."""
    ids = sharing.random_rows(len(carried), 16, rng)
    t = validity.challenges(KEY, ids, declared.points())
    parts = sharing.split(carried, ids, Purpose.TRAIN, helpers, rng).carried()
    shares = [
        sharing.recover(own, ids, Purpose.TRAIN, place, declared.carried()) for place, own in enumerate(parts)
    ]
    return validity.valid([validity.evaluate(own, t, declared) for own in shares])


@pytest.mark.parametrize("helpers", [2, 3])
@pytest.mark.parametrize("declared", [MEASURE, BINARY, *MODELS])
def test_a_valid_record_passes_at_any_number_of_helpers(declared, helpers):
    rng = FixedRandomness(b"valid")
    secrets = measured(200, rng) if isinstance(declared, Measure) else masked(declared, 200, rng)
    carried = np.concatenate([secrets, validity.prove(secrets, declared, rng)], axis=1)
    assert carried.shape[1] == declared.carried() == declared.secrets() + declared.points() + 2
    assert checked(carried, declared, helpers, rng).all()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.binary(max_size=4))
def test_proof_challenge_and_numbers_equal_the_twin(counts, seed):
    rng = FixedRandomness(seed)
    spaces = tuple(LabelSpace.categorical(count + 1) for count in counts)
    model = Model("m", (), spaces, checked=True)
    secrets = masked(model, 3, rng)
    proof = validity.prove(secrets, model, rng)
    shares = rng.below(field.P, 3 * model.carried()).reshape(3, -1)
    ids = sharing.random_rows(3, 16, rng)
    t = validity.challenges(KEY, ids, model.points())
    numbers = validity.evaluate(shares, t, model)
    sizes = [len(space) for space in spaces]
    for record in range(3):
        bits = twin.one_hot(secrets[record].tolist(), sizes)
        assert model.bits(secrets)[record].tolist() == bits
        assert proof[record].tolist() == twin.prove(bits, int(proof[record, 0]))
        assert t[record] == twin.challenge(KEY, ids[record].tobytes(), model.points())
        own = shares[record].tolist()
        held = twin.one_hot(own[: model.secrets()], sizes), own[model.secrets() :]
        assert tuple(numbers[record].tolist()) == twin.evaluate(*held, int(t[record]))


WIDEST = Value("v", -field.HALF, field.HALF)


@pytest.mark.parametrize(
    "values", [(), (Value("v", 0, 0),), (WIDEST,), (Value("v", -7, -5), Value("w", 3, 9))]
)
def test_measures_equal_the_twin_at_the_ends_of_the_field(values):
    """Without a value, of no range, of the widest; all shares p - 1; the first and the last point."""
    rng, measure = FixedRandomness(b"ends"), Measure((), values, checked=True)
    columns = [[value.least, max(value.high, 0)] for value in values]
    secrets, m = measure.lift(columns, np.ones(2, np.bool_)), measure.points()
    proof = validity.prove(secrets, measure, rng)
    shares = rng.below(field.P, 2 * measure.carried()).reshape(2, -1)
    shares[0] = field.P - 1
    t = np.array([field.P - 1, 2 * m + 1])
    numbers = validity.evaluate(shares, t, measure)
    for record in range(2):
        assert proof[record].tolist() == twin.prove(secrets[record].tolist(), int(proof[record, 0]))
        own = shares[record].tolist()
        assert tuple(numbers[record].tolist()) == twin.evaluate(own[:m], own[m:], int(t[record]))


@settings(deadline=None)
@given(st.integers(-field.HALF, field.HALF), st.integers(-field.HALF, field.HALF), st.binary(max_size=4))
def test_bits_of_any_range_give_every_value_back_and_nothing_outside(low, high, seed):
    value = Value("v", min(low, high), max(low, high))
    assert list(value.weights) == twin.weights(value.low, value.high)
    most = max(value.high, 0)
    assert value.least + sum(value.weights) == most  # all bits set: the largest that can be written
    rng = FixedRandomness(seed)
    given_values = [value.least, most, 0, value.least + int(rng.below(most - value.least + 1, 1)[0])]
    measure = Measure((), (value,), checked=True)
    lifted = measure.lift([given_values], np.ones(4, np.bool_))
    assert set(lifted.ravel().tolist()) <= {0, 1}
    shares = sharing.split(lifted, np.zeros((4, 16), np.uint8), Purpose.AGGREGATE, 2, rng)
    second = sharing.expand(
        shares.seeds[0], np.zeros((4, 16), np.uint8), Purpose.AGGREGATE, 1, measure.secrets()
    )
    held = sharing.combine([measure.hold(shares.explicit, 0), measure.hold(second, 1)])
    assert field.to_signed(held).tolist() == [[1, each] for each in given_values]


def test_every_value_of_a_small_range_is_exact_and_fakes_carry_the_bits_of_zero():
    for low in range(-9, 3):
        for high in range(max(low, -2), 10):
            value = Value("v", low, high)
            every = np.arange(value.least, max(high, 0) + 1)
            measure = Measure((), (value,), checked=True)
            lifted = measure.lift([every], np.ones(len(every), np.bool_))
            assert field.to_signed(measure.hold(lifted, 0))[:, 1].tolist() == every.tolist()
            fakes = measure.lift([every], np.zeros(len(every), np.bool_))
            assert not measure.hold(fakes, 0).any()
            assert (fakes[:, 1:] == measure.lift([[0]], np.array([True]))[0, 1:]).all()


def test_a_challenge_depends_on_key_and_report_alone_and_avoids_the_points(monkeypatch):
    ids = sharing.random_rows(2, 16, FixedRandomness(b"ids"))
    found = validity.challenges(KEY, ids, 3)
    assert len({*found.tolist(), *validity.challenges(bytes(32), ids, 3).tolist()}) == 4
    assert (validity.challenges(KEY, ids[::-1], 9) == found[::-1]).all()

    words = (6, field.P, 0, 7)
    stream = b"".join(word.to_bytes(8, "little") for word in words)

    class Stream:
        def __init__(self, label: bytes) -> None:
            pass

        def digest(self, size: int) -> bytes:
            return stream[:size]

    monkeypatch.setattr(hashlib, "shake_128", Stream)
    assert validity.challenges(KEY, ids, 3).tolist() == [7, 7]
    assert twin.challenge(KEY, bytes(16), 3) == 7


def test_the_largest_record_that_may_be_checked():
    model = Model("m", (), (LabelSpace.categorical(MAX_POINTS - 1),), checked=True)
    rng = FixedRandomness(b"large")
    secrets = masked(model, 2, rng)
    proof = validity.prove(secrets, model, rng)
    carried = np.concatenate([secrets, proof], axis=1)
    assert checked(carried, model, 2, rng).all()
    carried[0, :2] = 1
    assert checked(carried, model, 2, rng).tolist() == [False, True]
    with pytest.raises(NotDeclared, match="at most 1024 numbers"):
        Model("m", (), (LabelSpace.categorical(MAX_POINTS),), checked=True)
