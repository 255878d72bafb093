"""The ad server gets each helper's answer by itself: what it reads from them, and what it must not.

Every attack is a function that returns what it found, in `answer_attacks` and `answers_in_memory`. `ours`
says what is expected of the helpers as they are. A mutant is a helper that leaves one thing out: there the
attack that is named with it has to win.

Figures of guesses are more than allowed beyond 5 standard errors (one false alarm in 3.5 million each);
bounds on ε are at 99.99 %. Over HTTP, batches and shares are random; in memory all seeds are fixed.
"""

from pathlib import Path

import pytest

from maskedlark.audit import canaries
from maskedlark.cli.audits import auditor
from maskedlark.errors import MaskedLarkError
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.simulate.cluster import local_cluster
from tests.statistical import answer_attacks, answers_in_memory
from tests.statistical.answer_attacks import AttackResult
from tests.statistical.hostile_adserver import HostileAdServer, SessionSettings

BOUND = 0.05
SMALL, FEW = 600, SessionSettings(0.05, 60)
LARGE, MANY = 4000, SessionSettings(0.025, 500)
VICTIMS = 30
DEVIATIONS, FALSE_ALARM = 5, 1e-6
MUTANTS = {
    "no_mask": ("single_answers", "membership", "labels", "bound"),
    "rows_as_sent": ("turned_round", "membership", "labels"),
    # Its batches are those of other slots than its receipts say: memberships are not judged.
    "own_slots": ("swapped_sessions", "labels"),
}
"""Modules that helpers load, each with the attack that has to win against it, and what it reads. Others are
edits of the source, in `tests/mutants`: a mask that is not bound to the body or the slot, an answer that is
computed again."""


def check_wins(found: AttackResult, *names: str) -> None:
    """The attack reads these."""
    print(found)
    assert set(names) <= found.leaks


def check_fails(found: AttackResult, *names: str) -> None:
    """The attack reads nothing beyond what is allowed."""
    print(found, names)
    assert not found.leaks


ours = check_fails


class World:
    """Running services, a dataset of canaries, and the ad server that attacks."""

    def __init__(self, made, count):
        self.server = HostileAdServer(made)
        self.rows = canaries.features(count)
        self.coins = FixedRandomness(b"coins").below(2, count) == 1
        self.digest = self.server.freeze("canaries", self.reports())

    def reports(self):
        return self.server.reports(self.rows, self.coins)

    def single_answers(self, plan):
        return answer_attacks.single_answers(self.server, self.digest, self.coins, plan)

    def turned_round(self, plan):
        return answer_attacks.turned_round(self.server, self.reports(), self.coins, plan)

    def swapped_sessions(self, plan):
        # A dataset of its own: what a coalition may learn of one does not suffice for so many sessions.
        digest = self.server.freeze("swapped", self.reports())
        return answer_attacks.swapped_sessions(self.server, digest, self.coins, plan)

    def held_out_counts(self, plan):
        picked = self.server.reports(self.rows[:VICTIMS], self.coins[:VICTIMS])
        try:
            victims = [self.server.freeze(f"victim-{n}", [each]) for n, each in enumerate(picked)]
        except MaskedLarkError as error:
            return AttackResult(refused=str(error))
        return answer_attacks.held_out_counts(self.server, self.digest, victims)


ATTACKS = {
    "single_answers": ("membership", "labels", "bound"),
    "turned_round": ("membership", "labels"),
    "swapped_sessions": ("membership", "labels"),
    "held_out_counts": ("membership",),
}
"""Each with what it reads where it wins, over a long run."""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    settings = auditor.SETTINGS.format(features=SMALL, bound=BOUND).replace("k = 20", "k = 1")
    with local_cluster(tmp_path_factory.mktemp("small"), settings, SystemRandomness()) as made:
        yield World(made, SMALL)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_few_steps(small, attack):
    ours(getattr(small, attack)(FEW), "membership")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    settings = auditor.SETTINGS.format(features=LARGE, bound=BOUND).replace("k = 20", "k = 1")
    with local_cluster(tmp_path_factory.mktemp("large"), settings, SystemRandomness()) as made:
        yield World(made, LARGE)


@pytest.mark.long
@pytest.mark.parametrize("attack", [name for name in ATTACKS if name != "held_out_counts"])
def test_a_long_run(large, attack):
    ours(getattr(large, attack)(MANY), *ATTACKS[attack])


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_helper_that_leaves_something_out_is_seen(tmp_path, mutant):
    settings = auditor.SETTINGS.format(features=LARGE, bound=BOUND).replace("k = 20", "k = 1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        loading = f'functions = ["tests.statistical.mutants.{mutant}"]\n'
        with local_cluster(tmp_path, settings, SystemRandomness(), helper_settings=loading) as made:
            attack, *read = MUTANTS[mutant]
            check_wins(getattr(World(made, LARGE), attack)(MANY), *read)


def test_one_answer_tells_whether_a_batch_was_below_k(tmp_path):
    ours(answers_in_memory.below_k(tmp_path), "membership")


def test_answers_to_two_sessions_and_their_differences(tmp_path):
    ours(answers_in_memory.repeated_sessions(tmp_path), "membership")


def test_all_bits_of_answers_and_an_attacker_that_learns(tmp_path):
    found = answers_in_memory.learned_bits(tmp_path)
    print(*found.values())
    most = max(found.values(), key=lambda each: each.value)
    assert most.value > 0.9 if ours is check_wins else most.deviations < DEVIATIONS


def test_one_helpers_answers_are_uniform(tmp_path):
    likely = answers_in_memory.uniform(tmp_path)
    assert likely < FALSE_ALARM if ours is check_wins else likely > FALSE_ALARM


def test_helpers_that_were_asked_the_same_give_a_sum(tmp_path):
    assert answers_in_memory.differing(tmp_path, "nothing") == 1


@pytest.mark.parametrize(
    "change", ["weights", "noise", "steps", "session", "slots", "chosen", "datasets", "version"]
)
def test_helpers_that_were_asked_differently_give_no_sum(tmp_path, change):
    meaning = answers_in_memory.differing(tmp_path, change)
    print(change, meaning)
    assert meaning > 0.5 if ours is check_wins else meaning == 0


def test_work_does_not_tell_who_is_in_a_batch(tmp_path):
    found = answers_in_memory.work(tmp_path)
    print(found)
    assert found.membership.leaks == (ours is check_wins)
    assert bool(found.again) == (ours is check_wins), "a step that is asked again is computed again"


@pytest.mark.long
def test_time_that_steps_take(tmp_path):
    """Printed, not judged: how long a step takes depends on whatever else the machine does."""
    print(answers_in_memory.work(tmp_path, 400, repeated=20))


def test_a_helper_that_ends_before_it_answers_gives_the_same_bytes_later(tmp_path):
    whole = answers_in_memory.interrupted(tmp_path / "whole", cut=False)
    cut = answers_in_memory.interrupted(tmp_path / "cut", cut=True)
    assert len({*whole, *cut}) == 1


def test_a_helper_whose_files_are_put_back_gives_no_more_than_is_accounted(tmp_path):
    found = answers_in_memory.put_back(tmp_path)
    ours(found, "membership")
    assert not {"labels", "bound"} & found.leaks, "the other helper's noise is as much as is accounted"


def test_a_dataset_of_fewer_than_k_records(small):
    """Whoever is alone in a dataset is easily told from nobody, by time and by numbers of records."""
    raised = auditor.SETTINGS.format(features=SMALL, bound=BOUND)
    small.server.made.publish(raised)
    server = HostileAdServer(small.server.made)
    one = server.reports(small.rows[:1], small.coins[:1])
    if ours is check_wins:
        assert server.freeze("alone", one)
    else:
        with pytest.raises(MaskedLarkError):
            server.freeze("alone", one)
