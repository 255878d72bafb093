"""Sessions in the ledger: reserved whole, a step for one body ever, and what is not used comes back."""

import hashlib
import itertools
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from maskedlark.core.purpose import Purpose
from maskedlark.dp import mechanisms, sampling
from maskedlark.dp.sampling import Sampling
from maskedlark.dp.session_charge import adserver_epsilon, coalition_epsilon
from maskedlark.errors import NotDeclared, ReleaseRefused
from maskedlark.ledger import receipt_verification, rows, session_rows
from maskedlark.ledger.errors import (
    BudgetExhausted,
    CannotRepeat,
    DeltaExhausted,
    NoSuchSession,
    NoSuchStep,
    RequestIdReused,
    SessionClosed,
    SessionLost,
    SlotTaken,
    StepOver,
    StepTaken,
)
from maskedlark.ledger.receipt import ClosedReceipt, OpenedReceipt
from tests.unit.ledger import ledgers
from tests.unit.ledger.ledgers import DATASETS, ChargedSessions, opening, question, session_charge, terms
from tests.unit.parameters import cases

ORIGIN = "ads.example"
DOCUMENT = cases.make(k=1)
ENGINE = opening(0).engine
HIGH = {"adserver": {"epsilon": 4.0, "delta": 1e-6}, "coalition": {"epsilon": 400.0, "delta": 1e-6}}
BODIES = [bytes([i]) * 32 for i in range(100, 110)]


@pytest.fixture
def world(database_url, tmp_path):
    """A ledger with two datasets to train on, and its sessions, on either database."""
    ledger, database, anchor = ledgers.at(tmp_path, url=database_url)
    ledgers.freeze(ledger, database, DOCUMENT, *DATASETS[:2], purpose=Purpose.TRAIN)
    yield ledger, ChargedSessions(ledger), database, anchor
    database.close()


@pytest.fixture
def light(tmp_path):
    """The same, on SQLite alone."""
    ledger, database, anchor = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, DOCUMENT, *DATASETS[:2], purpose=Purpose.TRAIN)
    yield ledger, ChargedSessions(ledger), database, anchor
    database.close()


def take(sessions, asked, step, body=BODIES[0], engine=ENGINE):
    return sessions.claim_step(ORIGIN, asked.request, step, body, engine)


def test_a_session_is_reserved_whole_and_keeps_its_receipt(world):
    ledger, sessions, _, _ = world
    asked = opening(1, DATASETS[0], DATASETS[1])
    line = sessions.open(DOCUMENT, asked)
    assert (line.used, line.closed, line.body) == (0, False, terms(asked).body)
    assert line.opened.session_charge == session_charge(asked)
    balance = line.opened.balance
    assert balance.spent_epsilon == balance.charged_epsilon == adserver_epsilon(session_charge(asked))
    assert balance.spent_coalition_epsilon == coalition_epsilon(session_charge(asked)) > balance.spent_epsilon
    assert balance.spent_delta == 5e-7
    assert (
        sessions.open(DOCUMENT, asked).receipt == line.receipt == sessions.find(ORIGIN, asked.request).receipt
    )
    assert len(ledgers.chain(ledger)) == 3


def test_another_session_or_question_under_an_id_is_refused(world):
    ledger, sessions, _, _ = world
    sessions.open(DOCUMENT, opening(1))
    with pytest.raises(RequestIdReused):
        sessions.open(DOCUMENT, opening(1, noise=5.0))
    asked = question(1, noise=9.0, kind="gaussian", tag="clicks")
    ledger.charge(DOCUMENT, asked)
    with pytest.raises(RequestIdReused):
        sessions.open(DOCUMENT, opening((1 << 64) + 1))


def test_a_step_is_answered_for_one_body_ever(world):
    _, sessions, _, _ = world
    asked = opening(1)
    sessions.open(DOCUMENT, asked)
    seed = take(sessions, asked, 0)
    assert len(seed) == 32
    assert take(sessions, asked, 0) == seed
    with pytest.raises(StepTaken):
        take(sessions, asked, 0, BODIES[1])
    assert take(sessions, asked, 0) == seed
    assert sessions.find(ORIGIN, asked.request).used == 1


def test_steps_come_one_after_the_other_and_only_the_last_comes_again(world):
    _, sessions, _, _ = world
    asked = opening(1)
    sessions.open(DOCUMENT, asked)
    with pytest.raises(NoSuchStep, match="0 is the next"):
        take(sessions, asked, 1)
    seeds = [take(sessions, asked, step) for step in range(3)]
    assert take(sessions, asked, 2) == seeds[2]
    for body in BODIES[:2]:
        with pytest.raises(StepOver):
            take(sessions, asked, 1, body)
    with pytest.raises(NoSuchStep, match="3 is the next"):
        take(sessions, asked, 4)
    assert sessions.find(ORIGIN, asked.request).used == 3


def test_every_step_session_and_body_has_noise_of_its_own(world):
    _, sessions, _, _ = world
    one, other = opening(1), opening(2)
    sessions.open(DOCUMENT, one)
    sessions.open(DOCUMENT, other)
    seeds = [take(sessions, asked, step) for asked in (one, other) for step in range(3)]
    assert len(set(seeds)) == 6


@pytest.mark.parametrize("step", [-1, 40, 1 << 40])
def test_there_is_no_step_behind_the_last(light, step):
    _, sessions, _, _ = light
    asked = opening(1)
    sessions.open(DOCUMENT, asked)
    with pytest.raises(NoSuchStep):
        take(sessions, asked, step)


def test_nothing_is_known_of_a_session_that_is_not_here(world):
    _, sessions, _, _ = world
    asked = opening(1)
    sessions.open(DOCUMENT, asked)
    for act in (
        lambda: sessions.claim_step("other.example", asked.request, 0, BODIES[0], ENGINE),
        lambda: take(sessions, opening(2), 0),
        lambda: sessions.find(ORIGIN, bytes(16)),
        lambda: sessions.close(DOCUMENT, bytes(16)),
    ):
        with pytest.raises(NoSuchSession):
            act()


def test_another_engine_takes_no_step(light, monkeypatch):
    _, sessions, _, _ = light
    asked = opening(1)
    sessions.open(DOCUMENT, asked)
    take(sessions, asked, 0)
    monkeypatch.setattr(mechanisms, "engine", lambda kind: "another version")
    with pytest.raises(CannotRepeat):
        take(sessions, asked, 0, engine=opening(1).engine)


def test_threads_that_race_for_a_step_with_different_bodies_have_one_winner(world):
    _, sessions, _, _ = world
    asked = opening(1)
    sessions.open(DOCUMENT, asked)
    for step in range(10):
        ready = Barrier(8)

        def race(body, step=step, ready=ready):
            ready.wait()
            try:
                return body, take(sessions, asked, step, body)
            except StepTaken:
                return None

        with ThreadPoolExecutor(8) as pool:
            won = [each for each in pool.map(race, BODIES[:8]) if each]
        assert len(won) == 1
        assert take(sessions, asked, step, won[0][0]) == won[0][1]


def test_processes_that_race_for_a_step_with_different_bodies_have_one_winner(postgresql_url, tmp_path):
    made = [ledgers.at(tmp_path, url=postgresql_url, anchor=None)]
    made += [ledgers.at(tmp_path, url=postgresql_url, anchor=made[0][2]) for _ in range(2)]
    ledgers.freeze(made[0][0], made[0][1], DOCUMENT, DATASETS[0], DATASETS[1], purpose=Purpose.TRAIN)
    sessions, asked = [ChargedSessions(each[0]) for each in made], opening(1)
    sessions[0].open(DOCUMENT, asked)
    for step in range(4):
        ready = Barrier(len(sessions))

        def race(place, step=step, ready=ready):
            ready.wait()
            try:
                return place, take(sessions[place], asked, step, BODIES[place])
            except StepTaken:
                return None

        with ThreadPoolExecutor(len(sessions)) as pool:
            ((place, seed),) = [each for each in pool.map(race, range(len(sessions))) if each]
        # Whichever process is asked again, the noise is the same.
        assert {take(each, asked, step, BODIES[place]) for each in sessions} == {seed}
    for _, database, _ in made:
        database.close()


def test_a_step_and_a_close_at_once_leave_no_step_uncounted(world):
    ledger, sessions, _, _ = world
    for number in range(6):
        asked = opening(number, steps=8, delta=1e-9)
        sessions.open(DOCUMENT, asked)
        ready = Barrier(3)

        def step(place, asked=asked, ready=ready):
            ready.wait()
            try:
                return take(sessions, asked, place)
            except (SessionClosed, NoSuchStep):
                return None

        def end(asked=asked, ready=ready):
            ready.wait()
            return sessions.close(DOCUMENT, asked.request)

        with ThreadPoolExecutor(3) as pool:
            steps, closed = [pool.submit(step, place) for place in (0, 1)], pool.submit(end)
            taken = [each.result() for each in steps]
            receipt = closed.result().claimed()
        assert receipt.used_steps == max(
            (place + 1 for place, got in zip((0, 1), taken, strict=True) if got), default=0
        )
        assert receipt.still_charged is not None
        assert receipt.still_charged.steps >= receipt.used_steps
    receipt_verification.verify(ledgers.chain(ledger), ORIGIN, "helper-0", [DOCUMENT])


def test_what_was_taken_is_kept_over_a_restart(database_url, tmp_path):
    ledger, database, anchor = ledgers.at(tmp_path, url=database_url)
    ledgers.freeze(ledger, database, DOCUMENT, DATASETS[0], purpose=Purpose.TRAIN)
    sessions, asked = ChargedSessions(ledger), opening(1)
    sessions.open(DOCUMENT, asked)
    seed = [take(sessions, asked, step) for step in range(4)][-1]
    database.close()
    again, database, _ = ledgers.at(tmp_path, anchor, url=database_url)
    again.check()
    sessions = ChargedSessions(again)
    assert take(sessions, asked, 3) == seed
    with pytest.raises(StepTaken):
        take(sessions, asked, 3, BODIES[1])
    assert sessions.find(ORIGIN, asked.request).used == 4
    # No slot is given twice, though the first session used four of its own.
    (first,) = terms(asked).slots
    with pytest.raises(SlotTaken, match=f"from slot {first + 40} on"):
        sessions.open(DOCUMENT, opening(2, slots=(first + 39,)))
    assert sessions.free_slot(ORIGIN, DATASETS[0]) == first + 40
    sessions.open(DOCUMENT, opening(2, slots=(first + 40,)))
    database.close()


def test_slots_of_a_dataset_are_given_once(world):
    _, sessions, _, _ = world
    sessions.open(DOCUMENT, opening(1, DATASETS[0], steps=10, slots=(20,)))
    sessions.open(DOCUMENT, opening(2, DATASETS[1], DATASETS[0], steps=5, slots=(0, 30)))
    # Whatever the order in which they come: only those that another has are refused.
    sessions.open(DOCUMENT, opening(3, DATASETS[1], DATASETS[0], steps=5, tag="basket", slots=(5, 15)))
    for number, named in enumerate([(0, 0), (9, 0), (100, 19), (100, 29), (100, 34)], 4):
        with pytest.raises(SlotTaken) as caught:
            sessions.open(DOCUMENT, opening(number, DATASETS[1], DATASETS[0], steps=5, slots=named))
        assert caught.value.facts() == {"free_slot": 35.0 if named[0] == 100 else 10.0}
        with pytest.raises(NoSuchSession):
            sessions.find(ORIGIN, opening(number).request)
    assert sessions.free_slot(ORIGIN, DATASETS[0]) == 35
    assert sessions.free_slot(ORIGIN, DATASETS[1]) == 10
    assert sessions.free_slot(ORIGIN, DATASETS[2]) == 0


def test_sessions_opened_at_once_share_neither_slots_nor_budget(world):
    ledger, sessions, _, _ = world
    noise, document = 0.8, cases.make(k=1, training=HIGH)
    ledgers.freeze(ledger, world[2], document, DATASETS[2], purpose=Purpose.TRAIN)

    def open_one(number):
        asked = opening(number, DATASETS[2], noise=noise, steps=200, slots=(100 * number,))
        try:
            return sessions.open(document, asked).opened
        except (BudgetExhausted, SlotTaken):
            return None

    with ThreadPoolExecutor(12) as pool:
        opened = [each for each in pool.map(open_one, range(12)) if each]
    one = adserver_epsilon(session_charge(opening(0, noise=noise, steps=200)))
    assert 1 < len(opened) <= int(4.0 / one) < 6
    firsts = sorted(each.slots[0] for each in opened)
    assert all(after - before >= 200 for before, after in itertools.pairwise(firsts))
    assert max(each.balance.spent_epsilon for each in opened) <= 4.0
    receipt_verification.verify(ledgers.chain(ledger), ORIGIN, "helper-0", [DOCUMENT, document])


def test_a_closed_session_gives_back_what_it_did_not_begin(world):
    ledger, sessions, _, _ = world
    asked = opening(1)
    before = sessions.open(DOCUMENT, asked).opened.balance
    for step in range(7):
        take(sessions, asked, step)
    signed = sessions.close(DOCUMENT, asked.request)
    receipt = signed.claimed()
    assert isinstance(receipt, ClosedReceipt)
    assert receipt.still_charged is not None
    assert (receipt.used_steps, receipt.still_charged.steps) == (7, 10)
    digest = bytes(32)
    for step in range(7):
        digest = hashlib.sha256(digest + step.to_bytes(8, "big") + BODIES[0]).digest()
    assert receipt.steps_digest == digest.hex()
    assert receipt.balance.spent_epsilon < before.spent_epsilon
    assert receipt.balance.spent_coalition_epsilon < before.spent_coalition_epsilon
    assert receipt.balance.charged_epsilon == 0
    closed = sampling.closed(terms(asked).sampling, session_charge(asked), 7)
    assert receipt.balance.spent_epsilon == adserver_epsilon(closed)
    # The ledger counts it so for the next one, and so does who starts anew.
    after = sessions.open(DOCUMENT, opening(2)).opened.balance
    assert after.spent_epsilon == pytest.approx(
        adserver_epsilon(closed) + adserver_epsilon(session_charge(asked))
    )
    receipt_verification.verify(ledgers.chain(ledger), ORIGIN, "helper-0", [DOCUMENT])


def test_of_a_closed_session_nothing_is_answered_any_more(world):
    _, sessions, _, _ = world
    asked = opening(1)
    sessions.open(DOCUMENT, asked)
    take(sessions, asked, 0)
    signed = sessions.close(DOCUMENT, asked.request)
    assert sessions.close(DOCUMENT, asked.request) == signed
    assert sessions.find(ORIGIN, asked.request).closed
    for step in (0, 1):
        with pytest.raises(SessionClosed):
            take(sessions, asked, step)


def test_a_session_says_as_many_batches_as_everybody_can_compute(light):
    ledger, sessions, _, _ = light
    asked = opening(1)
    opened = sessions.open(DOCUMENT, asked).opened
    assert opened.session_charge.batches == session_charge(asked).batches
    take(sessions, asked, 0)
    receipt = sessions.close(DOCUMENT, asked.request).claimed()
    assert (
        receipt.still_charged.batches
        == sampling.max_batches(terms(asked).sampling, session_charge(asked), 1)
        < opened.session_charge.batches
    )
    receipt_verification.verify(ledgers.chain(ledger), ORIGIN, "helper-0", [DOCUMENT])


def test_a_partition_counts_epochs(light):
    ledger, sessions, _, _ = light
    asked = opening(1, steps=40, sampling=Sampling(kind="partition", batches=10), noise=20.0)
    assert (session_charge(asked).steps, session_charge(asked).batches, session_charge(asked).rate) == (
        4,
        4,
        1.0,
    )
    sessions.open(DOCUMENT, asked)
    for step in range(11):
        take(sessions, asked, step)
    receipt = sessions.close(DOCUMENT, asked.request).claimed()
    assert (receipt.used_steps, receipt.still_charged.steps, receipt.still_charged.batches) == (11, 2, 2)
    receipt_verification.verify(ledgers.chain(ledger), ORIGIN, "helper-0", [DOCUMENT])


@pytest.mark.parametrize("kind", ["whole", "chosen"])
def test_batches_that_are_known_are_not_amplified(light, kind):
    ledger, sessions, _, _ = light
    asked = opening(1, steps=8, sampling=Sampling(kind=kind), noise=20.0)
    line = sessions.open(DOCUMENT, asked)
    balance = line.opened.balance
    assert balance.spent_epsilon == balance.spent_coalition_epsilon
    take(sessions, asked, 0)
    assert sessions.close(DOCUMENT, asked.request).claimed().still_charged.batches == 2
    receipt_verification.verify(ledgers.chain(ledger), ORIGIN, "helper-0", [DOCUMENT])


def test_a_session_without_noise_costs_nothing(light):
    _, sessions, _, _ = light
    asked = opening(1, charged=False)
    line = sessions.open(DOCUMENT, asked)
    assert line.opened.balance.spent_epsilon == 0
    assert take(sessions, asked, 0, engine=asked.engine)
    receipt = sessions.close(DOCUMENT, asked.request).claimed()
    assert (receipt.session_charge, receipt.still_charged, receipt.used_steps) == (None, None, 1)


def test_both_ceilings_hold(light):
    """Against the ad server 4, against a coalition 40: whichever comes first."""
    _, sessions, _, _ = light
    with pytest.raises(BudgetExhausted, match="left of what training may cost against") as caught:
        sessions.open(DOCUMENT, opening(1, steps=2000, noise=0.6))
    noise = float(caught.value.facts()["noise_that_fits"] or 0)
    assert sessions.open(DOCUMENT, opening(2, steps=2000, noise=noise)).opened.balance.left_epsilon >= 4.0
    asked = cases.make(k=1, training={
        "adserver": {"epsilon": 4.0, "delta": 1e-6}, "coalition": {"epsilon": 6.0, "delta": 1e-6}
    })  # fmt: skip
    with pytest.raises(
        BudgetExhausted, match="cost against the ad server with all helpers but one"
    ) as caught:
        sessions.open(asked, opening(3, steps=500, noise=2.0))
    assert caught.value.facts()["left_epsilon"] == 6.0
    noise = float(caught.value.facts()["noise_that_fits"] or 0)
    assert (
        sessions.open(asked, opening(4, steps=500, noise=noise)).opened.balance.spent_coalition_epsilon <= 6.0
    )


def test_the_dearest_dataset_of_each_figure_counts(light):
    """One dataset is dear against the ad server, another against a coalition."""
    _, sessions, _, _ = light
    known = opening(1, DATASETS[0], steps=4, noise=4.0, sampling=Sampling(kind="whole"))
    hidden = opening(2, DATASETS[1], steps=400, noise=2.0)
    sessions.open(DOCUMENT, known)
    balance = sessions.open(DOCUMENT, hidden).opened.balance
    assert (
        balance.spent_epsilon
        == adserver_epsilon(session_charge(known))
        > adserver_epsilon(session_charge(hidden))
    )
    assert (
        balance.spent_coalition_epsilon
        == coalition_epsilon(session_charge(hidden))
        > coalition_epsilon(session_charge(known))
    )


def test_sessions_share_half_of_a_models_delta(light):
    """δ of training is 1e-6 for two models: 2.5e-7 for the sessions of each, in one dataset."""
    _, sessions, _, _ = light
    sessions.open(DOCUMENT, opening(1, delta=2e-7, noise=20.0))
    with pytest.raises(DeltaExhausted) as caught:
        sessions.open(DOCUMENT, opening(2, delta=6e-8, noise=20.0))
    left = float(caught.value.facts()["left_delta"] or 0)
    assert left == pytest.approx(5e-8)
    sessions.open(DOCUMENT, opening(3, delta=left, noise=20.0))
    sessions.open(DOCUMENT, opening(4, DATASETS[1], delta=2.5e-7, noise=20.0))
    sessions.open(DOCUMENT, opening(5, delta=2.5e-7, noise=20.0, tag="basket"))
    with pytest.raises(DeltaExhausted):
        sessions.open(DOCUMENT, opening(6, delta=1e-12, noise=20.0))
    # A session that took no step gives its δ back; one that did, does not.
    sessions.close(DOCUMENT, opening(1).request)
    take(sessions, opening(3), 0)
    sessions.close(DOCUMENT, opening(3).request)
    with pytest.raises(DeltaExhausted):
        sessions.open(DOCUMENT, opening(7, delta=2.5e-7, noise=20.0))
    sessions.open(DOCUMENT, opening(8, delta=1.9e-7, noise=20.0))


def test_releases_and_sessions_of_a_model_add_up(light):
    ledger, sessions, _, _ = light
    asked = question(1, noise=8.0, kind="gaussian", tag="clicks")
    released = ledger.charge(DOCUMENT, asked).receipt.claimed().balance
    session = opening(1)
    balance = sessions.open(DOCUMENT, session).opened.balance
    assert balance.spent_epsilon == pytest.approx(
        released.spent_epsilon + adserver_epsilon(session_charge(session))
    )
    assert balance.spent_delta == released.spent_delta == 5e-7
    again = ledger.charge(DOCUMENT, question(2, noise=8.0, kind="gaussian", tag="clicks"))
    assert again.receipt.claimed().balance.spent_epsilon > balance.spent_epsilon
    receipt_verification.verify(ledgers.chain(ledger), ORIGIN, "helper-0", [DOCUMENT])


def test_a_model_that_is_not_declared_has_no_sessions(light):
    _, sessions, _, _ = light
    with pytest.raises(NotDeclared):
        sessions.open(DOCUMENT, opening(1, tag="made-up"))


def test_two_helpers_agree(tmp_path):
    """The same requests: the same slots, charges and balances."""
    told = []
    for place in (0, 1):
        (tmp_path / str(place)).mkdir()
        ledger, database, _ = ledgers.at(tmp_path / str(place), place=place)
        ledgers.freeze(ledger, database, DOCUMENT, *DATASETS[:2], purpose=Purpose.TRAIN)
        sessions = ChargedSessions(ledger)
        for number in (1, 2):
            asked = opening(number, *DATASETS[:number])
            sessions.open(DOCUMENT, asked)
            take(sessions, asked, 0)
        sessions.close(DOCUMENT, opening(1).request)
        receipts = [each.claimed() for each in ledgers.chain(ledger)[2:]]
        told.append([each.model_dump(exclude={"helper", "previous"}) for each in receipts])
        database.close()
    assert told[0] == told[1]
    assert len(told[0]) == 3


def test_receipts_that_were_put_back_count_whole_and_are_never_gone_on_with(database_url, tmp_path):
    """A ledger before two sessions were opened, and all receipts since: as a recovery leaves it."""
    ledger, database, _ = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, DOCUMENT, DATASETS[0], purpose=Purpose.TRAIN)
    sessions, first, second = ChargedSessions(ledger), opening(1), opening(2)
    for asked in (first, second):
        sessions.open(DOCUMENT, asked)
        take(sessions, asked, 0)
    sessions.close(DOCUMENT, first.request)
    signed = ledgers.chain(ledger)
    last = signed[-1].claimed()
    assert isinstance(last, ClosedReceipt)
    database.close()

    ledger, database, _ = ledgers.at(tmp_path, url=database_url)
    with database.write() as connection:
        ledger.restore_receipts(connection, ORIGIN, signed)
        session_rows.end_recovery(connection)
    ledger.reset_anchors()
    sessions = ChargedSessions(ledger)
    with pytest.raises(SessionLost):
        sessions.open(DOCUMENT, second)
    for lost in (first, second):
        with pytest.raises(SessionLost, match="was opened and charged, but its steps were lost since"):
            take(sessions, lost, 0)
        with pytest.raises(SessionLost):
            sessions.close(DOCUMENT, lost.request)
    third = opening(3)
    for lost in (first, second):
        with pytest.raises(SlotTaken):
            sessions.open(DOCUMENT, opening(3, slots=terms(lost).slots))
    opened = sessions.open(DOCUMENT, third).opened
    assert opened.balance.spent_epsilon == pytest.approx(
        last.balance.spent_epsilon + adserver_epsilon(session_charge(third))
    )
    database.close()


def test_an_open_session_of_a_copy_is_over_and_counts_whole(world):
    """Its steps may have been taken since the copy was made."""
    _, sessions, database, _ = world
    asked = opening(1)
    sessions.open(DOCUMENT, asked)
    take(sessions, asked, 0)
    with database.write() as connection:
        rows.mark_copy(connection, 1)
        session_rows.end_recovery(connection)
    for step in (0, 1):
        with pytest.raises(SessionLost):
            take(sessions, asked, step)
    with pytest.raises(SessionLost):
        sessions.close(DOCUMENT, asked.request)
    balance = sessions.open(DOCUMENT, opening(2)).opened.balance
    assert balance.spent_epsilon == pytest.approx(2 * adserver_epsilon(session_charge(asked)))


def test_an_account_that_is_closed_opens_no_session(light):
    _, sessions, database, _ = light
    with database.write() as connection:
        rows.close(connection, DOCUMENT)
    with pytest.raises(ReleaseRefused, match="counts as spent"):
        sessions.open(DOCUMENT, opening(1))


def test_seeds_do_not_print(light):
    _, sessions, database, _ = light
    asked = opening(1)
    line = sessions.open(DOCUMENT, asked)
    with database.read() as connection:
        stored = session_rows.find(connection, ORIGIN, asked.request)
    assert stored.seed is not None
    shown = repr(stored) + repr(line)
    assert stored.seed.hex() not in shown
    assert repr(stored.seed) not in shown
    # Nor does a receipt hold it.
    assert stored.seed.hex() not in line.receipt.encode().decode()


def test_ids_are_apart(light):
    """A closing line has no request of its own: it does not take the id of a question."""
    ledger, sessions, database, _ = light
    sessions.open(DOCUMENT, opening(1))
    sessions.close(DOCUMENT, opening(1).request)
    with database.read() as connection:
        kinds = [type(each.claimed()) for each in ledgers.chain(ledger)]
        entries = list(itertools.islice(rows.entries(connection, DOCUMENT, 0, 99), 99))
    assert kinds[2:] == [OpenedReceipt, ClosedReceipt]
    assert len(entries) == 2
