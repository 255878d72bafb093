"""What a check of reports tells: nothing of a valid one, to the ad server and all helpers but one together.

They know the key, so every point t; all their own shares; and what each helper published. Fixed seeds, so a
pass is a pass for good; the stated rates are for a fresh choice of seed.
"""

import numpy as np
import pytest
from scipy import stats

from maskedlark.core import field, sharing, validity
from maskedlark.core.declared import Bytes, Measure, Model, Value
from maskedlark.core.field import P
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import FixedRandomness
from tests.statistical.uniformity import least_p_value
from tests.twins import validity as twin

RECORDS = 20_000
FALSE_ALARM = 1e-7
"""For each p-value of uniformity: about 7,000 are computed, so one run in 1,400 would fail."""
MODEL = Model("m", (Bytes(1),), checked=True)
SEVERAL = Model("m", (), (LabelSpace.integers(-1, 3), LabelSpace.binary()), checked=True)
MEASURE = Measure((), (Value("v", -7, 4), Value("w", 0, 1)), checked=True)
MASKS = {"fake": [0, 0], "label 0": [1, 0], "label 1": [0, 1]}
Declared = Model | Measure


def lifted(is_real: bool, v: int = 0, w: int = 0) -> list[int]:
    """The count bit, four weighted bits of v + 7, and the bit of w."""
    (row,) = MEASURE.lift([[v], [w]], np.array([is_real])).tolist()
    return list(row)


SECRETS: dict[str, tuple[Declared, list[int]]] = {name: (MODEL, masks) for name, masks in MASKS.items()}
MORE: dict[str, tuple[Declared, list[int]]] = {
    "several labels, none": (SEVERAL, [0, 0, 0, 0, 0, 0, 0]),
    "several labels, both": (SEVERAL, [1, 0, 0, 0, 0, 0, 1]),
    "several labels, one": (SEVERAL, [0, 0, 0, 0, 1, 0, 0]),
    "no count": (MEASURE, lifted(False)),
    "the least value": (MEASURE, lifted(True, -7)),
    "the largest values": (MEASURE, lifted(True, 4, 1)),
}
KEYS = [b"K" * 32, b"L" * 32, b"M" * 32]


class Checked:
    """Records of one secret: every helper's shares, and what it publishes, by key."""

    def __init__(self, masks, helpers, seed, records=RECORDS, declared: Declared = MODEL, proofs=None):
        rng = FixedRandomness(f"{masks} {helpers} {seed}".encode())
        self.declared, self.ids = declared, sharing.random_rows(records, 16, rng)
        secrets = np.tile(np.array(masks), (records, 1))
        carried = np.concatenate([secrets, validity.prove(secrets, declared, proofs or rng)], axis=1)
        parts = sharing.split(carried, self.ids, Purpose.TRAIN, helpers, rng).carried()
        self.shares = [
            sharing.recover(own, self.ids, Purpose.TRAIN, place, declared.carried())
            for place, own in enumerate(parts)
        ]

    def points(self, key=KEYS[0]):
        return validity.challenges(key, self.ids, self.declared.points())

    def published(self, place, key=KEYS[0]):
        return validity.evaluate(self.shares[place], self.points(key), self.declared)


EVERY = [
    *(pytest.param(*each, id=name) for name, each in SECRETS.items()),
    *(pytest.param(*each, id=name, marks=pytest.mark.long) for name, each in MORE.items()),
]


@pytest.mark.parametrize("helpers", [2, 3])
@pytest.mark.parametrize(("declared", "secrets"), EVERY)
def test_what_others_see_of_a_check_is_uniform_and_unrelated_to_what_they_hold(declared, secrets, helpers):
    checked = Checked(secrets, helpers, "uniform", declared=declared)
    published = [checked.published(place) for place in range(helpers)]
    assert validity.valid(published).all()
    at_t = sharing.combine(published)[:, 0]
    assert least_p_value(at_t) > FALSE_ALARM
    for honest in range(helpers):
        f, g = published[honest].T
        for number in (f, g):
            assert least_p_value(number) > FALSE_ALARM
        others = [own for place, own in enumerate(checked.shares) if place != honest]
        known = np.concatenate(others, axis=1).T
        for number, share in ((number, share) for number in (f, g, at_t) for share in known):
            assert abs(stats.pearsonr(number, share).statistic) < 6 / np.sqrt(RECORDS)


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
def test_honest_helpers_with_different_keys_tell_nothing_either(masks):
    """A colluding helper 0 gave two honest ones a key each: two points, of shares that nobody has both of."""
    checked = Checked(masks, 3, "two keys")
    first, second = checked.published(1, KEYS[1]), checked.published(2, KEYS[2])
    combined = field.add(first, second)
    assert least_p_value(combined[:, 0]) > FALSE_ALARM
    assert least_p_value(combined[:, 1]) > FALSE_ALARM


# The best attacker: it has all that the ad server and all helpers but one have, and knows that a record has
# one of two secrets. The honest share is what is left of either, so each has one u that explains everything:
# nothing tells them apart but how likely that u is.


class SmallNumbers(FixedRandomness):
    """What a browser must not draw u from: some numbers are likelier than others."""

    def below(self, bound, count):
        return super().below(min(bound, 1 << 55), count)


def explained(checked: Checked, f: np.ndarray, secrets: list[int]) -> np.ndarray:
    """The u of every record with which these secrets give what was seen: there is always one."""
    declared, t, records = checked.declared, checked.points(), len(checked.ids)
    proof = np.zeros(declared.carried() - declared.secrets(), np.int64)
    without_u, of_u = np.concatenate([secrets, proof]), np.zeros(declared.carried(), np.int64)
    of_u[declared.secrets()] = 1
    rest, factor = (
        validity.evaluate(np.tile(row, (records, 1)), t, declared)[:, 0] for row in (without_u, of_u)
    )
    inverse = np.array([pow(each, -1, P) for each in factor.tolist()], np.int64)
    return field.multiply(field.subtract(f, rest), inverse)


def view(checked: Checked, honest: int, secrets: list[list[int]]) -> np.ndarray:
    """All that a coalition knows of every record, and what it can compute of it: a row per number."""
    published = [checked.published(place) for place in range(len(checked.shares))]
    f, g = sharing.combine(published).T
    # g(t) follows from f(t), whatever the secrets are: it tells nothing more.
    assert (g == field.multiply(f, field.subtract(f, np.ones(1, np.int64)))).all()
    known = [own.T for place, own in enumerate(checked.shares) if place != honest]
    numbers = [*(each.T for each in published), checked.points()[None], f[None]]
    return np.concatenate([*known, *numbers, *(explained(checked, f, each)[None] for each in secrets)])


def advantage(one: np.ndarray, other: np.ndarray) -> float:
    """Of guessing by likelihoods that the attacker has learnt from half of both: 0 is chance, 1 is always."""
    half, scores = one.shape[1] // 2, np.zeros((2, one.shape[1] - one.shape[1] // 2))
    for cells in (lambda numbers: numbers >> 57, lambda numbers: numbers & 15):
        for rows in zip(one, other, strict=True):
            learnt = [np.log1p(np.bincount(cells(each[:half]), minlength=16)) for each in rows]
            scores += np.array([(learnt[0] - learnt[1])[cells(each[half:])] for each in rows])
    return float((scores[0] > 0).mean() - (scores[1] > 0).mean())


TWO: dict[str, tuple[Declared, list[int], list[int]]] = {
    "a binary label": (MODEL, [1, 0], [0, 1]),
    "several labels": (SEVERAL, [1, 0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 1, 1, 0]),
    "a value": (MEASURE, lifted(True, -7), lifted(True, 4, 1)),
    "the count": (MEASURE, lifted(False), lifted(True)),
}
OTHERS = "several labels", "the count"
GUESSED = 2000


@pytest.mark.parametrize("helpers", [2, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "name",
    ["a binary label", "a value", *(pytest.param(each, marks=pytest.mark.long) for each in OTHERS)],
)
def test_whoever_has_all_shares_but_one_the_key_and_all_numbers_guesses_no_better_than_chance(name, helpers):
    """Against browsers that draw u from a part of the field the same attacker wins."""
    declared, *secrets = TWO[name]
    for honest in range(helpers):
        rngs = None, SmallNumbers(f"{name} {honest}".encode())
        ours, careless = (
            advantage(
                *(
                    view(Checked(each, helpers, honest, GUESSED, declared, proofs), honest, secrets)
                    for each in secrets
                )
            )
            for proofs in rngs
        )
        # The error of an advantage over so many guesses, half of them of each secret, is 1 / sqrt(GUESSED).
        assert abs(ours) < 5 / np.sqrt(GUESSED)
        assert careless > 0.8


# Attackers. Each names the masks of a record, or none of them if it cannot tell.

Seen = tuple[int, int]
"""A point t, and f(t)."""


def implied(seen: Seen, masks: list[int]) -> int:
    """The u of these masks that gives what was seen."""
    t, value = seen
    bits = twin.one_hot(masks, [2])
    points = range(len(bits) + 1)
    rest, of_u = twin.at(points, [0, *bits], t), twin.at(points, [1, *[0] * len(bits)], t)
    return (value - rest) * pow(of_u, -1, P) % P


def consistent(first: Seen, second: Seen, same_record: bool) -> list[list[int]]:
    """The masks of the first record for which one u explains both."""
    return [
        masks
        for masks in MASKS.values()
        for others in ([masks] if same_record else MASKS.values())
        if implied(first, masks) == implied(second, others)
    ]


def seen(checked: Checked, key: bytes = KEYS[0]) -> list[Seen]:
    t = validity.challenges(key, checked.ids, MODEL.points())
    f = sharing.combine([checked.published(place, key) for place in range(len(checked.shares))])[:, 0]
    return list(zip(t.tolist(), f.tolist(), strict=True))


def with_u(u: int, seed: str, masks: list[int]) -> list[Seen]:
    """What is seen of two records, if browsers take this u."""
    rng = FixedRandomness(seed.encode())
    bits = twin.one_hot(masks, [2])
    points = [int(t) for t in 7 + rng.below(P - 7, 2)]
    return [(t, twin.at(range(len(bits) + 1), [u, *bits], t)) for t in points]


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
def test_without_u_a_check_tells_the_label_and_with_it_no_u_is_less_likely(masks):
    naive = with_u(0, "no u", masks)
    assert [each for each in MASKS.values() if implied(naive[0], each) == 0] == [masks]
    explanations = np.array(
        [[implied(one, each) for each in MASKS.values()] for one in seen(Checked(masks, 2, "u", 2000))]
    )
    assert not (explanations == 0).any()
    # Whatever the label, every label needs a u that is as likely as any.
    for column in explanations.T:
        assert stats.kstest(column / P, "uniform").pvalue > 1e-6


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
def test_a_u_that_is_used_twice_tells_labels_and_ours_is_not(masks):
    first, second = with_u(12345, "one u", masks)
    assert consistent(first, second, same_record=False) == [masks]
    ours = seen(Checked(masks, 2, "twice", 100))
    pairs = zip(ours[::2], ours[1::2], strict=True)
    assert not any(consistent(*pair, same_record=False) for pair in pairs)


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
def test_a_second_key_would_tell_the_label_and_a_repeated_check_does_not(masks):
    checked = Checked(masks, 3, "second", 20)
    first, again, other = seen(checked), seen(checked), seen(checked, KEYS[1])
    for one, two in zip(first, other, strict=True):
        assert consistent(one, two, same_record=True) == [masks]
    for one, two in zip(first, again, strict=True):
        assert consistent(one, two, same_record=True) == list(MASKS.values())


# The check in two rounds with a square pair that the design rejects. It is cheaper, and falls to one lie.


def square_pair_rounds(masks, rng, lie):
    """What helper 1 publishes in its second round, with what helper 0 knows of it all."""
    weights = [int(r) for r in rng.below(P, 2)]
    a = int(rng.below(P, 1)[0])
    secret = [*masks, a, a * a % P]
    own = [int(r) for r in rng.below(P, 4)]
    theirs = [(whole - part) % P for whole, part in zip(secret, own, strict=True)]

    def linear(share):
        z = sum(r * v for r, v in zip(weights, share, strict=False)) % P
        return z, sum(r * r * v for r, v in zip(weights, share, strict=False)) % P

    opened = (linear(own)[0] - own[2] + lie + linear(theirs)[0] - theirs[2]) % P

    def second(share, first):
        return (2 * opened * share[2] + share[3] - linear(share)[1] + (opened * opened if first else 0)) % P

    return (second(own, first=True) + second(theirs, first=False)) % P, weights


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
def test_two_rounds_with_a_square_pair_tell_every_label_to_a_helper_that_adds_one(masks):
    rng = FixedRandomness(b"square pair")
    assert square_pair_rounds(masks, rng, lie=0)[0] == 0, "honest helpers find a valid record valid"
    difference, weights = square_pair_rounds(masks, rng, lie=1)
    # (z + 1)^2 - z' = 2 z + 1 of a valid record, and z is the weight of the hot label.
    z = (difference - 1) * pow(2, -1, P) % P
    assert [
        each for each in MASKS.values() if z == sum(r * v for r, v in zip(weights, each, strict=True)) % P
    ] == [masks]


def test_in_one_round_no_number_depends_on_what_another_helper_says():
    """What an honest helper publishes follows from its own share, the key and the report id."""
    checked = Checked(MASKS["label 1"], 2, "lie", 50)
    honest = checked.published(1)
    checked.shares[0] = field.add(checked.shares[0], np.ones(1, np.int64))
    assert not validity.valid([checked.published(0), checked.published(1)]).any()
    assert (checked.published(1) == honest).all()
