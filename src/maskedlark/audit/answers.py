"""What the answers of single helpers give away about batches and labels. Run by who audits as the ad server.

The ad server gets each helper's answer by itself, not only their sum. A share is uniform in F_p where a
record of the batch contributes to a number; where none does, an answer without a mask is noise alone, and
small. So one answer tells who is in a batch, and a sum whose batch is known tells more of its labels than the
charge for unknown batches allows. Under a mask every answer is uniform: only the sum is left to attack.

Canaries are those of `canaries`: each moves one number of the gradient that nobody else moves.
Answers have the shape (steps, helpers, canaries). `tail`: what one helper's noise stays below.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from maskedlark.audit import canaries
from maskedlark.audit.canaries import Counts, Flags, Floats, NoiseBound, most_advantage
from maskedlark.core import field
from maskedlark.core.field import FieldArray
from maskedlark.dp.session_charge import SessionCharge
from maskedlark.errors import NotDeclared

DEVIATIONS = 5
"""Beyond so many standard errors guesses are no luck: one false alarm in 3.5 million figures."""
_FEWEST = 2


@dataclass(frozen=True)
class Guesses:
    """How many of so many yes-or-no guesses were right, beside how many may be."""

    right: float
    allowed: float
    """What the best attacker reaches to whom nothing is told that should not be."""
    error: float
    """One standard error of such an attacker's figure."""

    @property
    def most(self) -> float:
        """More than so many are more than allowed."""
        return self.allowed + DEVIATIONS * self.error

    @property
    def leaks(self) -> bool:
        """Whether more were right than luck explains."""
        return self.right > self.most


def guessed(guesses: Flags, truth: Flags, allowed: float) -> Guesses:
    """How many guesses are right. `allowed`: the share that may be."""
    error = math.sqrt(allowed * (1 - allowed) / truth.size)
    return Guesses(float((guesses == truth).mean()), allowed, error)


def base_rate(truth: Flags) -> float:
    """How often the best constant guess is right."""
    often = float(truth.mean())
    return max(often, 1 - often)


def is_large(elements: FieldArray, tail: int) -> Flags:
    """Which field elements are no noise: uniform ones all are, but for one in 2^60 / tail."""
    return np.abs(field.to_signed(elements)) > tail


def traces(answers: FieldArray) -> list[FieldArray]:
    """Numbers (steps, n) that are noise alone where a helper that masks too little has no canary.

    Each helper's answer by itself; less the next helper's; and less the middle one of its answers to all
    steps, which is mostly one without the canary. Never the sum of all: that the ad server may know.
    """
    single = [np.ascontiguousarray(answers[:, each]) for each in range(answers.shape[1])]
    between = [field.subtract(one, other) for one, other in pairwise(single)]
    return [*single, *between, *(_from_middle(each) for each in single if len(answers) > 1)]


def _from_middle(answers: FieldArray) -> FieldArray:
    """By how much answers (steps, n) differ from the middle one of all steps, and that one from the next."""
    signed, place = field.to_signed(answers), len(answers) // 2
    ordered = np.partition(signed, (place - 1, place), axis=0)
    other = np.where(signed == ordered[place], ordered[place - 1], ordered[place])
    return field.subtract(answers, field.from_signed(other))


def in_batches(seen: Sequence[FieldArray], rate: float, tail: int) -> Flags:
    """Who is guessed to be in each batch: whose trace is large. `seen`: traces.

    Of several traces the one is believed that is large about as often as records are in a batch.
    """
    large = [is_large(each, 2 * tail) for each in seen]
    return min(large, key=lambda each: abs(float(each.mean()) - rate))


def membership(seen: Sequence[FieldArray], drawn: Flags, rate: float, tail: int) -> Guesses:
    """Guesses of who was in each batch, `drawn`, by the better of two attackers.

    One goes by the size of the noise. The other is stronger than any real one: it is shown half of the
    canaries' memberships, and learns what the top bit of a trace says of them.
    """
    half = drawn.shape[1] // 2
    if half < _FEWEST:
        raise NotDeclared(f"memberships are learned from {2 * _FEWEST} canaries or more")
    truth = drawn[:, half:]
    guesses = [in_batches(seen, rate, tail)[:, half:], learned([_top_bits(each) for each in seen], drawn)]
    return max((guessed(each, truth, base_rate(truth)) for each in guesses), key=lambda each: each.right)


def learned(seen: Sequence[Counts], truth: Flags) -> Flags:
    """Guesses for the second half of the columns, by whichever number told most in the first half.

    `seen`: whole numbers from 0, of the truth's shape. Every number stands for what it mostly came with.
    """
    half = truth.shape[-1] // 2
    known, rules = truth[..., :half], []
    for each in seen:
        shown, size = each[..., :half], int(each.max()) + 1
        ones = np.bincount(shown[known], minlength=size)
        rule = ones > np.bincount(shown[~known], minlength=size)
        rules.append((int((rule[shown] == known).sum()), rule[each[..., half:]]))
    return max(rules, key=lambda rule: rule[0])[1]


def _top_bits(elements: FieldArray) -> Counts:
    return np.frexp(np.abs(field.to_signed(elements)).astype(np.float64))[1].astype(np.int64)


def scores(sums: Floats, inside: Flags, rate: float, noise: float) -> Floats:
    """Scores of labels, from sums (steps, n) in units of the sensitivity and guessed batches.

    Nobody who is in a batch is guessed out of it, so that a canary guessed in is there with the chance rate /
    (how often that is guessed): nearly 1 where answers tell, `rate` where everybody is guessed in.
    """
    chance = min(1.0, rate / max(float(inside.mean()), rate))
    return canaries.without_batches(np.where(inside, sums, 0.0), chance, noise)


def split_scores(sums: FieldArray, tail: int) -> Floats:
    """Scores of labels, from sums (steps, n) over batches that differ between two helpers, weights alike.

    Where a canary is in the batch of one helper alone, the sum is near that helper's share of it. There are
    two such numbers a canary, and together they are its gradient: a label, under the noise of those sums.
    """
    large = is_large(sums, 2 * tail)
    one, near, share = _cluster(sums, large, tail)
    other, _, rest = _cluster(sums, large & ~near, tail)
    total = field.to_signed(field.add(one, other)) + share + rest
    return np.where(np.abs(total) <= 4 * tail, -total, 0.0)  # Label 1 moves a gradient down.


def _cluster(sums: FieldArray, among: Flags, tail: int) -> tuple[FieldArray, Flags, Floats]:
    """The first sum among these, by canary; which of these are near it; and how far off their mean is."""
    reference = np.take_along_axis(sums, among.argmax(axis=0)[None], axis=0)[0]
    apart = field.to_signed(field.subtract(sums, reference))
    near: Flags = among & (np.abs(apart) <= 4 * tail)
    mean: Floats = np.where(near, apart, 0).sum(axis=0) / np.maximum(near.sum(axis=0), 1)
    return reference, near, mean


def labels(coins: Flags, scores: Floats, course: SessionCharge) -> Guesses:
    """Guesses of labels, 1 where the score is over 0, beside what the ad server alone is charged for."""
    known = most_advantage(course.noise, 1.0, course.batches) if course.batches else 0.0
    allowed = min(known, most_advantage(course.noise, course.rate, course.steps))
    return guessed(scores > 0, coins, (1 + allowed) / 2)


def bound_with_batches(
    coins: Flags, left: Floats, drawn: Flags, course: SessionCharge, confidence: float
) -> NoiseBound:
    """The ε that labels guessed by a coalition refute. `left`: sums less the noise that colluders told."""
    # Where a canary is in many batches, all are guessed right: that says nothing of how much noise there is.
    some, largest = canaries.first(drawn, canaries.judged(course.noise)), int(drawn.sum(axis=0).max())
    guesses = canaries.with_batches(left, some)
    return canaries.bound_with_batches(
        coins, guesses, some.sum(axis=0), largest, course.noise, course.delta, confidence
    )
