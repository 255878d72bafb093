"""The attacker who sees single answers, on answers that are made up: it wins where masks lack, nowhere else.

All seeds are fixed.
"""

import numpy as np
import pytest

from maskedlark.audit import answers, canaries
from maskedlark.core import field
from maskedlark.dp.session_charge import SessionCharge, adserver_epsilon
from maskedlark.errors import NotDeclared
from tests.statistical.split_batches import split_scores

CANARIES, RATE, STEPS, TAIL = 2000, 0.1, 100, 1 << 28
CHARGE = SessionCharge("gaussian", 1.0, RATE, STEPS, 30, 1e-5)
UNIT = 1 << 24
"""The sensitivity, as answers have it."""


class Run:
    """Two helpers' answers over canaries whose gradient is ∓ half of the sensitivity."""

    def __init__(self, mask, swapped=False):
        rng = np.random.default_rng(5)
        shape = (STEPS, CANARIES)
        self.coins, self.drawn = rng.random(CANARIES) < 0.5, rng.random(shape) < RATE
        other = rng.random(shape) < RATE if swapped else self.drawn
        share = rng.integers(0, field.P, CANARIES)
        rest = field.subtract(field.from_signed(np.where(self.coins, -UNIT // 2, UNIT // 2)), share)
        noise = rng.normal(0, UNIT, (2, *shape)).astype(np.int64)
        first = field.add(self.drawn * share, field.from_signed(noise[0]))
        second = field.add(other * rest, field.from_signed(noise[1]))
        drawn = mask(rng.integers(0, field.P, shape))
        self.answers = np.stack([field.add(first, drawn), field.subtract(second, drawn)], axis=1)
        self.other = other
        self.traces = answers.traces(self.answers)
        self.inside = answers.in_batches(self.traces, RATE, TAIL)

    @property
    def totals(self):
        return field.add(self.answers[:, 0], self.answers[:, 1])

    @property
    def sums(self):
        return -field.to_signed(self.totals) / UNIT

    def members(self):
        return answers.guess_membership(self.traces, self.drawn, RATE, TAIL)

    def scores(self):
        return answers.scores(self.sums, self.inside, RATE, 2**0.5)


def none(drawn):
    return 0 * drawn


def same_at_every_step(drawn):
    return np.broadcast_to(drawn[0], drawn.shape)


def fresh(drawn):
    return drawn


def test_without_masks_batches_and_more_labels_than_allowed_are_read():
    run = Run(none)
    assert (run.inside == run.drawn).all()
    assert run.members().right == 1
    assert run.members().leaks
    found = answers.guess_labels(run.coins, run.scores(), CHARGE)
    assert found.leaks
    assert found.right > 0.85
    assert answers.guess_labels(run.coins, canaries.with_batches(run.sums, run.drawn), CHARGE) == found


def test_masks_that_do_not_change_from_step_to_step_are_seen():
    assert Run(same_at_every_step).members().leaks
    assert answers.guess_labels(Run(same_at_every_step).coins, Run(same_at_every_step).scores(), CHARGE).leaks


def test_under_masks_only_the_sum_is_left():
    run = Run(fresh)
    assert run.inside.all()
    assert not run.members().leaks
    found = answers.guess_labels(run.coins, run.scores(), CHARGE)
    assert not found.leaks
    assert (run.scores() == canaries.without_batches(run.sums, RATE, 2**0.5)).all()
    charged = adserver_epsilon(CHARGE)
    declared = (RATE, CHARGE.steps, CHARGE.noise, CHARGE.delta)
    assert 0 < canaries.bound_without_batches(run.coins, run.scores(), *declared, 0.9999).epsilon < charged
    assert canaries.signed_lower_bound(run.coins, run.scores(), 0.9999, CHARGE.delta) < charged


@pytest.mark.parametrize("mask", [none, fresh])
def test_sums_over_other_batches_at_each_helper_tell_labels_whatever_the_mask(mask):
    run = Run(mask, swapped=True)
    assert (answers.is_large(run.totals, 2 * TAIL) == (run.drawn ^ run.other)).all()
    assert answers.guess_labels(run.coins, split_scores(run.totals, TAIL), CHARGE).right > 0.7


def test_uniform_sums_tell_nothing():
    rng = np.random.default_rng(6)
    coins = rng.random(CANARIES) < 0.5
    sums = rng.integers(0, field.P, (STEPS, CANARIES))
    assert not answers.guess_labels(coins, split_scores(sums, TAIL), CHARGE).leaks


def test_what_is_learned_from_one_half_is_judged_on_the_other():
    truth = np.arange(8) % 2 == 0
    telling, noise = np.where(truth, 3, 5), np.zeros(8, np.int64)
    assert (answers.learned([noise, telling], truth) == truth[4:]).all()
    assert not answers.learned([noise], truth).any()


def test_memberships_of_too_few_canaries_are_refused():
    with pytest.raises(NotDeclared):
        answers.guess_membership([np.zeros((1, 3), np.int64)], np.ones((1, 3), bool), RATE, TAIL)
