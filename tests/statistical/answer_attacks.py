"""Attacks of an ad server that looks at each helper's answer. Each returns what it found; tests judge it.

Over HTTP; those that need no process are in `answers_in_memory`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maskedlark.audit import answers, canaries
from maskedlark.audit.answers import Guesses
from maskedlark.audit.colluding import shared_seed
from maskedlark.cli.audits.auditor import TAG
from maskedlark.core import sharing
from maskedlark.dp.session_charge import SessionCharge, adserver_epsilon
from maskedlark.errors import MaskedLarkError
from maskedlark.functions.function import Part
from maskedlark.ledger.receipt import OpenedReceipt
from maskedlark.release import parts
from tests.statistical.hostile_adserver import HostileAdServer, SessionSettings
from tests.statistical.split_batches import split_scores

CONFIDENCE = 0.9999
"""Of a bound on ε: it is over the true one by chance once in 10,000 runs."""


@dataclass(frozen=True)
class AttackResult:
    """What an attack found. `refused`: helpers did not answer at all."""

    membership: Guesses | None = None
    labels: Guesses | None = None
    bound: float = 0.0
    charged: float = 0.0
    refused: str = ""

    @property
    def leaks(self) -> set[str]:
        """What was found more of than is allowed."""
        found = {"bound"} if self.bound > self.charged else set()
        named = {"membership": self.membership, "labels": self.labels}
        return found | {name for name, guesses in named.items() if guesses is not None and guesses.leaks}

    def __str__(self) -> str:
        return (
            f"refused: {self.refused}"
            if self.refused
            else f"memberships {self.membership}; labels {self.labels}; ε ≥ {self.bound:.3f}, "
            f"charged {self.charged:.3f}"
        )


def charge_of(opened: OpenedReceipt) -> SessionCharge:
    assert opened.session_charge is not None
    return opened.session_charge


def judged(coins, scores, members: Guesses, charge: SessionCharge) -> AttackResult:
    labels = answers.guess_labels(coins, scores, charge)
    bound = canaries.signed_lower_bound(coins, scores, CONFIDENCE, charge.delta)
    return AttackResult(members, labels, bound, adserver_epsilon(charge))


def single_answers(
    server: HostileAdServer, digest: str, coins: np.ndarray, plan: SessionSettings
) -> AttackResult:
    """Attack 1: who is in a batch is read from helper 0's answer alone, labels from the sums of those."""
    request, tail = server.request(digest, plan), server.tail(plan)
    opened = [server.open(place, request) for place in range(len(server.helpers))]
    seen, drawn, charge = server.answers(request), server.drawn(0, opened[0]), charge_of(opened[0])
    traces = answers.traces(seen[:, :1])
    sums = -np.array([server.lifted(each) for each in seen]) / (2 * server.psi)
    inside = answers.in_batches(traces, plan.rate, tail)
    scores = answers.scores(sums, inside, plan.rate, plan.noise * len(server.helpers) ** 0.5)
    return judged(coins, scores, answers.guess_membership(traces, drawn, plan.rate, tail), charge)


def turned_round(
    server: HostileAdServer, reports: Sequence[bytes], coins: np.ndarray, plan: SessionSettings
) -> AttackResult:
    """Attack 2: helper 1 gets the same reports the other way round. Sums alone are looked at."""
    digest = server.freeze("turned-round", list(reports), turned_round=(1,))
    request = server.request(digest, plan)
    return _from_sums(server, coins, plan, request, [server.open(place, request) for place in (0, 1)])


def swapped_sessions(
    server: HostileAdServer, digest: str, coins: np.ndarray, plan: SessionSettings
) -> AttackResult:
    """Attack 3: two sessions are opened in another order at helper 1. Sums alone are looked at.

    Where helpers assign slots in the order of openings, they draw other batches for the same bytes.
    """
    asked, other = server.request(digest, plan), server.request(digest, plan)
    try:
        opened = [server.open(0, asked)]
        server.open(0, other)
        server.open(1, other)
        opened.append(server.open(1, asked))
    except MaskedLarkError as error:
        return AttackResult(refused=str(error))
    return _from_sums(server, coins, plan, asked, opened)


def _from_sums(server, coins, plan, request, opened) -> AttackResult:
    """Where a canary is in the batch of one helper alone, the sum is large; two such numbers are a label."""
    sums = np.array([sharing.combine(list(each)) for each in server.answers(request)])
    split = server.drawn(0, opened[0]) ^ server.drawn(1, opened[1])
    tail, charge = server.tail(plan), charge_of(opened[0])
    members = answers.guessed(answers.is_large(sums, 2 * tail), split, answers.base_rate(split))
    return judged(coins, split_scores(sums, tail), members, charge)


def held_out_counts(server: HostileAdServer, digest: str, victims: Sequence[str]) -> AttackResult:
    """Attack 5: what an evaluation over held-out records would cost, with and without a victim's dataset."""
    alone = server.held_out(digest)
    try:
        guesses = np.array([server.held_out(each, digest) > alone for each in victims])
    except MaskedLarkError as error:
        return AttackResult(refused=str(error))
    folder, part = server.made.helpers[0].folder, Part("held_out", 0.5)
    seeds = [shared_seed(folder, server.document, each) for each in victims]
    truth = np.array([bool(parts.of_part(part, [seed], TAG, [1]).counted.any()) for seed in seeds])
    return AttackResult(answers.guessed(guesses, truth, 0.5))
