"""The ledger: one charge a question, whatever happens, and never beyond the budget."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import delete, update

from maskedlark.core.purpose import Purpose
from maskedlark.dp import accountant, mechanisms
from maskedlark.errors import NotDeclared
from maskedlark.ledger import receipt_verification, rows, session_rows
from maskedlark.ledger.errors import AnswerLost, BudgetExhausted, CannotRepeat, LedgerBehind, RequestIdReused
from maskedlark.ledger.receipt import ReleaseReceipt
from maskedlark.storage.errors import StorageUnavailable
from tests.unit.ledger import ledgers
from tests.unit.ledger.ledgers import DATASETS, ChargedSessions, question
from tests.unit.parameters import cases

DOCUMENT = cases.make(k=1)


@pytest.fixture
def ledger(tmp_path):
    made, database, _ = ledgers.at(tmp_path)
    ledgers.freeze(made, database, DOCUMENT, *DATASETS[:3])
    yield made
    database.close()


def test_the_same_question_is_charged_once_and_keeps_its_seed(ledger):
    first = ledger.charge(DOCUMENT, question(1))
    again = ledger.charge(DOCUMENT, question(1))
    assert (again.seed, again.receipt) == (first.seed, first.receipt)
    assert len(ledgers.chain(ledger)) == 4


def test_different_questions_have_different_seeds(ledger):
    assert ledger.charge(DOCUMENT, question(1)).seed != ledger.charge(DOCUMENT, question(2)).seed


def test_another_question_under_an_id_is_refused(ledger):
    ledger.charge(DOCUMENT, question(1))
    with pytest.raises(RequestIdReused):
        ledger.charge(DOCUMENT, question(1, noise=3.0))


def test_noise_that_cannot_be_drawn_again_is_not_drawn_anew(ledger, monkeypatch):
    ledger.charge(DOCUMENT, question(1))
    monkeypatch.setattr(mechanisms, "engine", lambda kind: "another version")
    with pytest.raises(CannotRepeat):
        ledger.charge(DOCUMENT, question(1))


def test_the_budget_is_never_exceeded_and_says_what_fits(ledger):
    for number in range(16):  # 16 × 1/2 = 8
        ledger.charge(DOCUMENT, question(number))
    with pytest.raises(BudgetExhausted) as caught:
        ledger.charge(DOCUMENT, question(99))
    assert caught.value.facts()["left_epsilon"] == 0.0
    assert caught.value.facts()["noise_that_fits"] is None
    # A dataset that was not asked before has its own budget: its sources are others.
    ledger.charge(DOCUMENT, question(100, DATASETS[1]))
    # What was answered is answered again for nothing.
    ledger.charge(DOCUMENT, question(3))


def test_the_noise_that_would_fit_fits(ledger):
    ledger.charge(DOCUMENT, question(1, noise=0.2))  # ε = 5 of 8
    with pytest.raises(BudgetExhausted) as caught:
        ledger.charge(DOCUMENT, question(2, noise=0.25))
    facts = caught.value.facts()
    assert facts["left_epsilon"] == pytest.approx(3)
    assert facts["wanted_epsilon"] == pytest.approx(4)
    fits = facts["noise_that_fits"]
    assert fits is not None
    ledger.charge(DOCUMENT, question(3, noise=fits))


def test_a_list_of_datasets_charges_each(ledger):
    ledger.charge(DOCUMENT, question(1, DATASETS[0], DATASETS[1], noise=0.2))
    for number, dataset in enumerate(DATASETS[:2], start=2):
        with pytest.raises(BudgetExhausted):
            ledger.charge(DOCUMENT, question(number, dataset, noise=0.25))
    ledger.charge(DOCUMENT, question(4, DATASETS[2], noise=0.25))
    # One dear dataset in a list spoils the list, and charges nobody.
    with pytest.raises(BudgetExhausted):
        ledger.charge(DOCUMENT, question(5, DATASETS[2], DATASETS[0], noise=0.3))


def test_aggregation_and_models_share_the_budget(tmp_path):
    """A source has a report to aggregate and one for each model: their costs add up."""
    ledger, database, _ = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, DOCUMENT, DATASETS[0])
    ledgers.freeze(ledger, database, DOCUMENT, DATASETS[1], DATASETS[2], purpose=Purpose.TRAIN)
    ledger.charge(DOCUMENT, question(1, DATASETS[0], noise=0.16))  # 6.25 of 8
    with pytest.raises(BudgetExhausted):  # about 2 more, but another stream's
        ledger.charge(DOCUMENT, question(2, DATASETS[1], noise=2.0, kind="gaussian", tag="clicks"))
    ledger.charge(DOCUMENT, question(3, DATASETS[1], noise=8.0, kind="gaussian", tag="clicks"))
    database.close()


def test_training_has_a_ceiling_below_the_budget(tmp_path):
    ledger, database, _ = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, DOCUMENT, DATASETS[1], purpose=Purpose.TRAIN)
    with pytest.raises(BudgetExhausted):  # ε of about 5.1, under the budget of 8, over training's 4
        ledger.charge(DOCUMENT, question(1, DATASETS[1], noise=1.0, kind="gaussian", tag="clicks"))
    database.close()


def test_fifty_at_once_get_what_the_budget_allows(ledger):
    def ask(number: int) -> bool:
        try:
            ledger.charge(DOCUMENT, question(number, noise=1.0))
        except BudgetExhausted:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(ask, range(50))) == 8
    receipt_verification.verify(ledgers.chain(ledger), "ads.example", "helper-0", [DOCUMENT])


def test_fifty_equal_ones_at_once_are_one(ledger):
    with ThreadPoolExecutor(16) as pool:
        seeds = set(pool.map(lambda _: ledger.charge(DOCUMENT, question(1)).seed, range(50)))
    assert len(seeds) == 1
    assert len(ledgers.chain(ledger)) == 4


def test_a_restart_forgets_nothing(tmp_path):
    ledger, database, anchor = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, DOCUMENT, DATASETS[0])
    first = ledger.charge(DOCUMENT, question(1, noise=0.2))
    database.close()
    again, database, _ = ledgers.at(tmp_path, anchor)
    again.check()
    assert again.charge(DOCUMENT, question(1, noise=0.2)).seed == first.seed
    with pytest.raises(BudgetExhausted):
        again.charge(DOCUMENT, question(2, noise=0.25))
    database.close()


def test_an_old_copy_is_refused_at_the_start_and_at_every_question(tmp_path):
    ledger, database, anchor = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, DOCUMENT, DATASETS[0])
    database.close()
    (tmp_path / "old").mkdir()
    for path in tmp_path.glob("ledger.sqlite*"):
        shutil.copy(path, tmp_path / "old")
    ledger, database, _ = ledgers.at(tmp_path, anchor)
    ledger.charge(DOCUMENT, question(1, noise=0.125))  # all of it
    database.close()
    old, database, _ = ledgers.at(tmp_path / "old", anchor)
    with pytest.raises(LedgerBehind):
        old.check()
    with pytest.raises(LedgerBehind):
        old.charge(DOCUMENT, question(2, noise=0.125))
    database.close()


def test_a_ledger_that_went_another_way_is_refused(tmp_path):
    """As many receipts as the anchor knows, but others: a copy that was used behind the helper's back."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first, database, anchor = ledgers.at(tmp_path / "one")
    ledgers.freeze(first, database, DOCUMENT, DATASETS[0])
    database.close()
    second, database, _ = ledgers.at(tmp_path / "two")
    ledgers.freeze(second, database, DOCUMENT, DATASETS[1])
    database.close()
    crossed, database, _ = ledgers.at(tmp_path / "two", anchor)
    with pytest.raises(LedgerBehind):
        crossed.check()
    database.close()


def test_a_ledger_ahead_of_its_anchor_goes_on(tmp_path):
    """A crash between commit and anchor: nothing had left, and nothing is lost."""
    ledger, database, anchor = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, DOCUMENT, DATASETS[0])
    before = dict(anchor.heads)
    first = ledger.charge(DOCUMENT, question(1))
    anchor.heads = before
    ledger.check()
    assert ledger.charge(DOCUMENT, question(1)).seed == first.seed
    assert anchor.heads["ads.example"].number == 2
    database.close()


def test_a_lost_anchor_is_not_taken_for_a_new_one(tmp_path):
    ledger, database, _ = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, DOCUMENT, DATASETS[0])
    ledger.charge(DOCUMENT, question(1))
    database.close()
    lost, database, anchor = ledgers.at(tmp_path)
    for attempt in (lost.check, lambda: lost.charge(DOCUMENT, question(2))):
        with pytest.raises(LedgerBehind, match="put the anchor back"):
            attempt()
    # An operator who is sure of the ledger may say so.
    assert lost.reset_anchors() == ["ads.example"]
    lost.check()
    lost.charge(DOCUMENT, question(2))
    assert anchor.heads["ads.example"].number == 3
    database.close()


def test_a_crash_before_the_first_mark_of_a_chain_does_not_lock_it(tmp_path):
    """The anchor is begun before the first line is."""
    ledger, database, anchor = ledgers.at(tmp_path)
    with database.write() as connection:
        ledger.freeze(connection, DOCUMENT, Purpose.AGGREGATE, DATASETS[0], 1000)
    assert anchor.heads["ads.example"].number == 0
    database.close()
    again, database, _ = ledgers.at(tmp_path, anchor)
    again.check()
    again.charge(DOCUMENT, question(1))
    database.close()


def test_receipts_that_are_not_anchored_are_not_shown(tmp_path):
    ledger, database, anchor = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, DOCUMENT, DATASETS[0])
    before = dict(anchor.heads)
    ledger.charge(DOCUMENT, question(1))
    anchor.heads = before
    assert [signed.claimed().number for signed in ledgers.chain(ledger)] == [1]
    database.close()


def test_an_anchor_never_goes_back(ledger):
    old = ledgers.chain(ledger)[0]
    ledger.charge(DOCUMENT, question(1))
    ledger.advance_anchor("ads.example", old)  # the anchor of the tests asserts it
    assert len(ledgers.chain(ledger)) == 4


def test_a_clock_that_is_put_back_does_not_break_the_chain(tmp_path):
    ledger, database, anchor = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, DOCUMENT, DATASETS[0])
    database.close()
    early, database, _ = ledgers.at(tmp_path, anchor, now=ledgers.NOW - 500)
    early.charge(DOCUMENT, question(1))
    receipt_verification.verify(ledgers.chain(early), "ads.example", "helper-0", [DOCUMENT])
    database.close()


def test_two_documents_of_one_origin_have_their_own_budgets(tmp_path):
    other = cases.make(k=1, version=2, previous=DOCUMENT.digest.hex())
    ledger, database, _ = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, DOCUMENT, DATASETS[0])
    ledgers.freeze(ledger, database, other, DATASETS[1])
    ledger.charge(DOCUMENT, question(1, noise=0.125))
    assert spent(ledger.charge(other, question(2, DATASETS[1], noise=0.125)))[0] == pytest.approx(8)
    database.close()


def spent(line) -> tuple[float, float]:
    made = line.receipt.claimed()
    assert isinstance(made, ReleaseReceipt)
    return made.balance.spent_epsilon, made.balance.spent_delta


def test_an_account_follows_a_ledger_that_was_put_back(tmp_path):
    """Where the anchor is put back too nothing can be noticed; but what is counted is what is there."""
    ledger, database, anchor = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, DOCUMENT, DATASETS[0])
    before = dict(anchor.heads)
    ledger.charge(DOCUMENT, question(1, noise=0.125))
    ledger.explain(DOCUMENT, question(2))
    with database.write() as connection:
        connection.execute(delete(rows.RECEIPTS).where(rows.RECEIPTS.c.number == 2))
        connection.execute(update(rows.HEADS).values(number=1))
    anchor.heads = before
    cost, _ = ledger.explain(DOCUMENT, question(2))
    assert cost.before.epsilon == 0
    database.close()


def test_a_read_that_breaks_off_counts_nothing_twice(ledger, monkeypatch):
    ledger.charge(DOCUMENT, question(1))
    ledger.charge(DOCUMENT, question(2))
    ledger._known.clear()
    whole = rows.entries

    def broken(*given):
        yield next(iter(whole(*given)))
        raise StorageUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(rows, "entries", broken)
        with pytest.raises(StorageUnavailable):
            ledger.charge(DOCUMENT, question(3))
    assert ledger.explain(DOCUMENT, question(3))[0].before.epsilon == pytest.approx(1)


def test_models_share_the_ceiling_of_training_and_its_delta(tmp_path):
    """ε = 4 and δ = 1e-6 for two models: each has half of δ, half of that for releases; within ε together."""
    ledger, database, _ = ledgers.at(tmp_path)
    ledgers.freeze(ledger, database, DOCUMENT, DATASETS[0], purpose=Purpose.TRAIN)
    wanted = accountant.noise_for("gaussian", 1, 2.5, 2.5e-7, mixed=True)
    first = ledger.charge(DOCUMENT, question(1, noise=wanted, kind="gaussian", tag="clicks"))
    epsilon, delta = spent(first)
    assert epsilon == pytest.approx(2.5, rel=1e-3)
    assert delta == 5e-7
    with pytest.raises(BudgetExhausted):
        ledger.charge(DOCUMENT, question(2, noise=wanted, kind="gaussian", tag="basket"))
    fits = accountant.noise_for("gaussian", 1, 1.4, 2.5e-7, mixed=True)
    ledger.charge(DOCUMENT, question(3, noise=fits, kind="gaussian", tag="basket"))
    with pytest.raises(NotDeclared):
        ledger.charge(DOCUMENT, question(4, noise=1000.0, kind="gaussian", tag="made-up"))
    database.close()


def test_processes_that_share_a_database_take_turns(database_url, tmp_path):
    """Two ledgers, as two processes have them: together they answer what one budget allows."""
    first, one, anchor = ledgers.at(tmp_path, url=database_url)
    second, other, _ = ledgers.at(tmp_path, anchor, url=database_url)
    ledgers.freeze(first, one, DOCUMENT, DATASETS[0])

    def ask(number: int) -> bool:
        try:
            (first, second)[number % 2].charge(DOCUMENT, question(number, noise=1.0))
        except BudgetExhausted:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(24))) == 8
    receipt_verification.verify(ledgers.chain(first), "ads.example", "helper-0", [DOCUMENT])
    one.close()
    other.close()


def test_explaining_costs_nothing(ledger):
    cost, fits = ledger.explain(DOCUMENT, question(1, noise=0.2))
    assert (cost.before.epsilon, cost.after.epsilon, cost.left) == pytest.approx((0, 5, 3))
    assert fits == pytest.approx(0.125)
    assert len(ledgers.chain(ledger)) == 3


def test_two_origins_have_their_own_chains_and_budgets(tmp_path):
    other = cases.make(k=1, origin="other.example")
    ledger, database, _ = ledgers.at(tmp_path)
    for document in (DOCUMENT, other):
        ledgers.freeze(ledger, database, document, DATASETS[0])
        ledger.charge(document, question(1, noise=0.125))
    for origin in ("ads.example", "other.example"):
        assert [signed.claimed().number for signed in ledgers.chain(ledger, origin)] == [1, 2]
    database.close()


def test_what_is_secret_does_not_print(ledger):
    line = ledger.charge(DOCUMENT, question(1))
    assert line.seed.hex() not in repr(line)
    assert line.seed.hex() not in line.receipt.encode().decode()


def test_seeds_of_noise_go_with_their_datasets(database_url, tmp_path):
    """With one, whoever stored an answer could take the noise off it."""
    ledger, database, _ = ledgers.at(tmp_path, url=database_url)
    ledgers.freeze(ledger, database, DOCUMENT, *DATASETS[:2])
    early, late = question(1, expires=100), question(2, DATASETS[1], expires=101)
    for asked in (early, late):
        ledger.charge(DOCUMENT, asked)
    session = ledgers.opening(3, expires=100)
    ChargedSessions(ledger).open(DOCUMENT, session)
    ledger.forget(100)
    with pytest.raises(AnswerLost):
        ledger.charge(DOCUMENT, early)
    assert len(ledger.charge(DOCUMENT, late).seed) == 32
    with database.read() as connection:
        assert session_rows.find(connection, "ads.example", session.request).seed is None
    database.close()
