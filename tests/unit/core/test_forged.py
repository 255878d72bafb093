"""Attacks on the check of reports: what a browser can forge, and what it could if it knew the point t.

A forged record passes with a probability of at most 2M / (p - 2M - 1), here below 2^-54 each: a run of these
tests would accept one of its 10^6 once in 10^10.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from maskedlark.core import field, sharing, validity
from maskedlark.core.declared import Bytes, Measure, Model, Value
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import FixedRandomness, Randomness
from tests.unit.core.forging import FORGED, OF_LABELS, Declared, Forger, meeting, point_of, with_proof

KEY = bytes(range(32))
DECLARED: dict[str, Declared] = {
    "a binary label": Model("m", (Bytes(1),), checked=True),
    "two labels": Model("m", (), (LabelSpace.integers(-1, 3), LabelSpace.binary()), checked=True),
    "a value": Measure((), (Value("v", 0, 255),), checked=True),
    "values": Measure((), (Value("v", -7, 4), Value("w", 0, 1)), checked=True),
}
MILLION = 1_000_000


def honest(declared: Declared, records: int, rng: Randomness) -> np.ndarray:
    real = rng.below(8, records) > 0
    if isinstance(declared, Model):
        drawn = [np.array(space.values)[rng.below(len(space), records)] for space in declared.labels]
        return declared.mask(drawn, real, rng)[1]
    spans = [(value.least, max(value.high, 0)) for value in declared.values]
    return declared.lift([low + rng.below(high - low + 1, records) for low, high in spans], real)


def numbers(
    carried: np.ndarray, ids: np.ndarray, declared: Declared, helpers: int, rng: Randomness
) -> list[np.ndarray]:
    """What every helper publishes of these records."""
    return published(recovered(carried, ids, declared, helpers, rng), ids, declared)


def recovered(
    carried: np.ndarray, ids: np.ndarray, declared: Declared, helpers: int, rng: Randomness
) -> list[np.ndarray]:
    """Every helper's shares."""
    parts = sharing.split(carried, ids, Purpose.TRAIN, helpers, rng).carried()
    return [
        sharing.recover(own, ids, Purpose.TRAIN, place, declared.carried()) for place, own in enumerate(parts)
    ]


def published(shares: list[np.ndarray], ids: np.ndarray, declared: Declared) -> list[np.ndarray]:
    t = validity.challenges(KEY, ids, declared.points())
    return [validity.evaluate(own, t, declared) for own in shares]


def accepted(carried: np.ndarray, declared: Declared, helpers: int, rng: Randomness) -> np.ndarray:
    ids = sharing.random_rows(len(carried), 16, rng)
    return validity.valid(numbers(carried, ids, declared, helpers, rng))


def cases() -> Iterator[tuple[str, str, Forger]]:
    for name, declared in DECLARED.items():
        kinds = FORGED | OF_LABELS if isinstance(declared, Model) else FORGED
        yield from ((name, kind, forge) for kind, forge in kinds.items())


def run(name: str, kind: str, forge: Forger, records: int) -> None:
    declared, rng = DECLARED[name], FixedRandomness(f"{name} {kind}".encode())
    for helpers in (2, 3):
        secrets = honest(declared, records, rng)
        forged, good = forge(secrets, declared, rng), with_proof(secrets, declared, rng)
        passed = accepted(np.concatenate([forged, good]), declared, helpers, rng)
        assert not passed[:records].any(), f"{kind}: a forged record was accepted"
        assert passed[records:].all(), "a valid record was refused"


@pytest.mark.parametrize(("name", "kind"), [case[:2] for case in cases()])
def test_no_forged_record_is_accepted_and_no_valid_one_refused(name, kind):
    run(name, kind, (FORGED | OF_LABELS)[kind], 20)


@pytest.mark.long
def test_of_a_million_forged_records_none_is_accepted():
    every, block = list(cases()), 2000
    left = -(-MILLION // (2 * block * len(every)))
    for _ in range(left):
        for name, kind, forge in every:
            run(name, kind, forge, block)


@pytest.mark.parametrize("name", DECLARED)
def test_a_browser_that_knows_the_point_forges_what_it_likes(name):
    """Else the tests above might hold for a check that refuses whatever is strange."""
    declared, rng = DECLARED[name], FixedRandomness(b"knows K")
    for record in range(5):
        secrets = honest(declared, 1, rng)
        secrets[:, 0] = 10**9
        ids = sharing.random_rows(1, 16, rng)
        t = int(validity.challenges(KEY, ids, declared.points())[0])
        others = range(GUESS, GUESS + declared.points())
        forged = meeting(secrets, declared, rng, (t, *others))
        assert validity.valid(numbers(forged, ids, declared, 2, rng)).all(), record
        assert not accepted(forged, declared, 2, rng).any(), "in another report the same is refused"


GUESS = 10**7


def test_a_browser_that_reads_its_own_numbers_forges_under_that_id_and_no_other():
    """So they stay with ad server and helpers, and the ad server takes an id once.

    It knows every share that it made.
    """
    declared, rng = DECLARED["a binary label"], FixedRandomness(b"reads its own")
    m, ids = declared.points(), sharing.random_rows(1, 16, rng)
    carried = with_proof(honest(declared, 1, rng), declared, rng)
    parts = sharing.split(carried, ids, Purpose.TRAIN, 2, rng).carried()
    share = sharing.recover(parts[1], ids, Purpose.TRAIN, 1, declared.carried())
    t = validity.challenges(KEY, ids, m)
    found = point_of(share[0], validity.evaluate(share, t, declared)[0], declared)
    assert found == t[0]
    secrets = field.from_signed(np.array([[0, 10**9]]))
    forged = meeting(secrets, declared, rng, (found, *range(GUESS, GUESS + m)))
    assert validity.valid(numbers(forged, ids, declared, 2, rng)).all()
    assert not accepted(forged, declared, 2, rng).any()


def test_a_helper_that_lies_about_its_numbers_has_the_record_refused_and_nothing_else():
    declared, rng = DECLARED["two labels"], FixedRandomness(b"lies")
    carried = with_proof(honest(declared, 300, rng), declared, rng)
    ids = sharing.random_rows(300, 16, rng)
    published = numbers(carried, ids, declared, 3, rng)
    for place in range(3):
        for column in range(2):
            lied = [each.copy() for each in published]
            lied[place][:100, column] = field.add(lied[place][:100, column], np.ones(1, np.int64))
            assert (validity.valid(lied) == (np.arange(300) >= 100)).all()


@pytest.mark.parametrize("helpers", [2, pytest.param(3, marks=pytest.mark.long)])
def test_one_forged_record_among_many_is_found_and_the_sum_is_as_without_it(helpers):
    """The sum of what helpers store: each converts its own shares; helper 0 alone adds the least value."""
    measure, rng = Measure((), (Value("v", -7, 200),), checked=True), FixedRandomness(b"one of many")
    many = 100_000
    values = rng.below(208, many) - 7
    secrets = measure.lift([values], np.ones(many, np.bool_))
    carried = np.concatenate([secrets, validity.prove(secrets, measure, rng)], axis=1)
    chosen = 54_321
    carried[chosen] = FORGED["a billion"](secrets[[chosen]], measure, rng)
    ids = sharing.random_rows(many, 16, rng)
    shares = recovered(carried, ids, measure, helpers, rng)
    valid = validity.valid(published(shares, ids, measure))
    assert np.flatnonzero(~valid).tolist() == [chosen]
    sums = [
        field.total(measure.hold(own[valid, : measure.secrets()], place)) for place, own in enumerate(shares)
    ]
    held = field.to_signed(sharing.combine(sums))
    assert held.tolist() == [many - 1, int(values.sum() - values[chosen])]
    naive = [
        field.total(measure.hold(own[:, : measure.secrets()], place)) for place, own in enumerate(shares)
    ]
    assert field.to_signed(sharing.combine(naive))[1] > 10**8, "the attack wins where all are taken"
