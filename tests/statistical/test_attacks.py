"""Claim 2: the best attacks we have read the prototype's labels and none of ours.

Everything N-1 helpers see goes in, with half of the labels to learn from. An attack on ours fails the test
beyond 5 standard deviations of a blind guess: one false alarm in 1.7 million for each of the figures.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from maskedlark.audit import attacks, prototype
from maskedlark.audit.attacks import Advantage, advantage
from maskedlark.audit.prototype import NotMersenne
from maskedlark.clock import FixedClock
from maskedlark.core.candidates import ALL, Pair
from maskedlark.core.labels import LabelSpace
from maskedlark.randomness import FixedRandomness
from maskedlark.workflow import Workflow

USERS = 4000
DEVIATIONS = 5
LABELS = FixedRandomness(b"labels").below(2, USERS)
TRUTH = LABELS == 1
FIRST, SECOND = prototype.masks(LABELS, prototype.generator(7))


@pytest.fixture(scope="module", params=[2, 3], ids=lambda n: f"{n} helpers")
def ours(request):
    rng = FixedRandomness(b"ours")
    features = np.frombuffer(rng.bytes(8 * USERS), np.uint8).reshape(USERS, 8)  # independent of the label
    settings, clock = 'models.tag.columns = [{kind = "bytes", count = 8}]', FixedClock(1_900_000_000)
    with Workflow.declared(settings, request.param, clock, rng) as way:
        way.make_training_dataset("reports", "tag", features, [LABELS])
        return way.views["reports"]


def test_signs_and_sizes_read_the_prototype_and_not_ours(ours):
    assert advantage(attacks.by_sign(SECOND), TRUTH).value == 1
    assert advantage(attacks.by_size(SECOND), TRUTH).value == 1
    for view in ours:
        signed = attacks.as_signed(view.shares)
        for attack in (attacks.by_sign, attacks.by_size):
            assert abs(advantage(attack(signed), attacks.labels(ours) == 1).deviations) < DEVIATIONS


def test_the_generator_behind_the_prototype_is_recovered_and_predicts_what_comes():
    generator = prototype.generator(99)
    seen, _ = prototype.masks(LABELS[:1000], generator)
    assert (prototype.read_labels(seen) == LABELS[:1000]).all()
    clone = prototype.recover(seen)
    coming, _ = prototype.masks(LABELS[1000:], generator)
    fake_first = clone.uniform(size=(USERS - 1000, 2))[:, 0]
    assert ((coming[:, 0] == fake_first) == TRUTH[1000:]).all()


def test_no_generator_is_found_behind_ours(ours):
    for view in ours:
        with pytest.raises(NotMersenne, match="do not obey"):
            prototype.read_labels(attacks.as_uniform(view.shares))


def test_the_generator_attack_says_when_it_has_too_little():
    with pytest.raises(NotMersenne, match="312 users"):
        prototype.read_labels(FIRST[:311])
    assert (prototype.read_labels(FIRST[:312]) == LABELS[:312]).all()


@pytest.fixture(scope="module")
def learnt_of_the_prototype() -> dict[str, Advantage]:
    return attacks.learn(attacks.bits(SECOND.tobytes(), USERS).astype(np.float64), TRUTH)


def test_a_learner_reads_the_prototype_and_not_ours(ours, learnt_of_the_prototype):
    assert all(found.value > 0.99 for found in learnt_of_the_prototype.values())
    for missing in range(len(ours)):
        coalition = [view for place, view in enumerate(ours) if place != missing]
        for name, found in attacks.learn(attacks.as_rows(coalition), attacks.labels(ours) == 1).items():
            assert abs(found.deviations) < DEVIATIONS, (name, missing, str(found))


def test_the_learner_wins_once_all_helpers_collude(ours):
    """The same rows with every helper in: the attack is not blind, the missing share is what stops it."""
    for name, found in attacks.learn(attacks.as_rows(ours), attacks.labels(ours) == 1).items():
        assert found.value > 0.99, (name, str(found))


@dataclass(frozen=True)
class Leak:
    """How often the best guess of a record's label is right."""

    without: float
    """From the distribution of labels alone: all that the policy `all` leaves."""
    expected: float
    """From the record's two candidates too, by Bayes' rule."""
    measured: float
    """The same, counted on records."""


def pair_leak(prior: NDArray[np.float64], labels: NDArray[np.int64], candidates: NDArray[np.int64]) -> Leak:
    """The leak of `pair` for labels 0 … L-1 that occur as `prior` says. Run by a curious helper.

    It sees two candidates, 0 and c. Either c happened, or nothing did and c was drawn at random. With skewed
    conversions, a common c is likely the truth and a rare one likely a fake.
    """
    fakes = prior[0] / (len(prior) - 1)  # P(nothing happened, and this label was drawn as the fake)
    shown = candidates.max(axis=1)  # the other candidate is 0
    guesses = np.where(prior[shown] > fakes, shown, 0)
    return Leak(
        without=float(prior.max()),
        expected=float(np.maximum(prior[1:], fakes).sum()),
        measured=float((guesses == labels).mean()),
    )


PRIOR = np.array([0.5, 0.4, *[0.1 / 8] * 8])
"""Half of all sources convert, and four in five conversions are of one kind."""


def test_what_a_pair_leaks_when_labels_are_skewed():
    """Figures in docs/ACCOUNTING.md. With `all` a helper guesses 50 % of the labels, with `pair` 84 %."""
    rng, records = FixedRandomness(b"pairs"), 40_000
    labels = np.searchsorted(np.cumsum(PRIOR)[:-1], rng.unit(records), side="right")
    space, real = LabelSpace.categorical(10), np.ones(records, np.bool_)
    shown, _ = Pair().draw(space, labels, real, rng)
    found = pair_leak(PRIOR, labels, shown)
    assert found.without == 0.5
    assert found.expected == pytest.approx(0.4 + 9 / 18 - 1 / 18)
    assert found.measured == pytest.approx(found.expected, abs=5 * 0.5 / np.sqrt(records))
    assert len(np.unique(ALL.draw(space, labels, real, rng)[0], axis=0)) == 1  # nothing to guess from
