"""What single helpers' answers reveal about batches and labels. Run by an auditor acting as the ad server.

The ad server gets each helper's answer, not only their sum. A share is uniform in F_p where a record of the
batch contributes to a number; where none does, an unmasked answer is only noise, and small. So one answer
would reveal who is in a batch, and a sum over a known batch reveals more about its labels than the charge for
unknown batches allows. With a mask every answer is uniform: only the sum is left to attack.

Canaries are those of `canaries`: each moves one number of the gradient that nobody else moves.
Answers have the shape (steps, helpers, canaries). `tail`: the bound on one helper's noise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from maskedlark.audit import canaries
from maskedlark.audit.canaries import Counts, Flags, Floats, NoiseBound, max_advantage
from maskedlark.core import field
from maskedlark.core.field import FieldArray
from maskedlark.dp.session_charge import SessionCharge
from maskedlark.errors import NotDeclared

DEVIATIONS = 5
"""This many standard errors above the allowed share are not luck: one false alarm in 3.5 million figures."""
_FEWEST = 2


@dataclass(frozen=True)
class Guesses:
    """The share of yes-or-no guesses that were right, and the share allowed."""

    right: float
    allowed: float
    """The share that the best attacker reaches if nothing leaks."""
    error: float
    """The standard error of that attacker's share."""

    @property
    def most(self) -> float:
        """The largest share that luck explains."""
        return self.allowed + DEVIATIONS * self.error

    @property
    def leaks(self) -> bool:
        """Whether more guesses were right than luck explains."""
        return self.right > self.most


def guessed(guesses: Flags, truth: Flags, allowed: float) -> Guesses:
    """Compare guesses with the truth. `allowed`: the share that may be right."""
    error = math.sqrt(allowed * (1 - allowed) / truth.size)
    return Guesses(float((guesses == truth).mean()), allowed, error)


def base_rate(truth: Flags) -> float:
    """How often the best constant guess is right."""
    often = float(truth.mean())
    return max(often, 1 - often)


def is_large(elements: FieldArray, tail: int) -> Flags:
    """Which field elements are too large for noise: all uniform ones but one in 2^60 / tail."""
    return np.abs(field.to_signed(elements)) > tail


def traces(answers: FieldArray) -> list[FieldArray]:
    """Numbers (steps, n) that would be only noise without the canary, if a helper masked too little.

    Each helper's answer; minus the next helper's; and minus its median answer over all steps, mostly one
    without the canary. Never the sum of all, which the ad server may know.
    """
    single = [np.ascontiguousarray(answers[:, each]) for each in range(answers.shape[1])]
    between = [field.subtract(one, other) for one, other in pairwise(single)]
    return [*single, *between, *(_from_middle(each) for each in single if len(answers) > 1)]


def _from_middle(answers: FieldArray) -> FieldArray:
    """The difference of answers (steps, n) from the median over steps, and of the median from the next."""
    signed, place = field.to_signed(answers), len(answers) // 2
    ordered = np.partition(signed, (place - 1, place), axis=0)
    other = np.where(signed == ordered[place], ordered[place - 1], ordered[place])
    return field.subtract(answers, field.from_signed(other))


def in_batches(seen: Sequence[FieldArray], rate: float, tail: int) -> Flags:
    """Guess who is in each batch, by the trace that is large about as often as records are in one."""
    large = [is_large(each, 2 * tail) for each in seen]
    return min(large, key=lambda each: abs(float(each.mean()) - rate))


def guess_membership(seen: Sequence[FieldArray], drawn: Flags, rate: float, tail: int) -> Guesses:
    """Guesses of who was in each batch, `drawn`, by the better of two attackers.

    One uses the size of the noise. The other is stronger than any real one: it is shown half of the
    canaries' memberships, and learns how the top bit of a trace predicts them.
    """
    half = drawn.shape[1] // 2
    if half < _FEWEST:
        raise NotDeclared(f"memberships are learned from {2 * _FEWEST} canaries or more")
    truth = drawn[:, half:]
    guesses = [in_batches(seen, rate, tail)[:, half:], learned([top_bits(each) for each in seen], drawn)]
    return max((guessed(each, truth, base_rate(truth)) for each in guesses), key=lambda each: each.right)


def learned(seen: Sequence[Counts], truth: Flags) -> Flags:
    """Guesses for the second half of the columns, by the array that predicts the first half best.

    `seen`: arrays of integers from 0, of the truth's shape. Each integer predicts its most frequent truth.
    """
    half = truth.shape[-1] // 2
    known, rules = truth[..., :half], []
    for each in seen:
        shown, size = each[..., :half], int(each.max()) + 1
        ones = np.bincount(shown[known], minlength=size)
        rule = ones > np.bincount(shown[~known], minlength=size)
        rules.append((int((rule[shown] == known).sum()), rule[each[..., half:]]))
    return max(rules, key=lambda rule: rule[0])[1]


def top_bits(elements: FieldArray) -> Counts:
    """The place of each element's highest bit, as a signed number's."""
    return np.frexp(np.abs(field.to_signed(elements)).astype(np.float64))[1].astype(np.int64)


def scores(sums: Floats, inside: Flags, rate: float, noise: float) -> Floats:
    """Scores of labels, from sums (steps, n) in units of the sensitivity and guessed batches.

    Canaries in a batch are never guessed out of it, so one guessed in is there with probability rate / (share
    guessed in): nearly 1 if answers reveal batches, `rate` if all are guessed in.
    """
    chance = min(1.0, rate / max(float(inside.mean()), rate))
    return canaries.without_batches(np.where(inside, sums, 0.0), chance, noise)


def guess_labels(coins: Flags, scores: Floats, charge: SessionCharge) -> Guesses:
    """Guesses of labels, 1 where the score is positive, against what the ad server's charge allows."""
    known = max_advantage(charge.noise, 1.0, charge.batches) if charge.batches else 0.0
    allowed = min(known, max_advantage(charge.noise, charge.rate, charge.steps))
    return guessed(scores > 0, coins, (1 + allowed) / 2)


def bound_with_batches(
    coins: Flags, left: Floats, drawn: Flags, charge: SessionCharge, confidence: float
) -> NoiseBound:
    """The ε that a coalition's label guesses refute. `left`: sums minus the colluders' noise."""
    # Canaries in many batches are all guessed right, which says nothing about the amount of noise.
    some, largest = (
        canaries.first_batches(drawn, canaries.telling_batches(charge.noise)),
        int(drawn.sum(axis=0).max()),
    )
    guesses = canaries.with_batches(left, some)
    return canaries.bound_with_batches(
        coins, guesses, some.sum(axis=0), largest, charge.noise, charge.delta, confidence
    )
