"""A ledger that lost receipts: what is handed in counts, what is missing counts as spent; all can see it."""

import pytest

from maskedlark.ledger import receipt_verification, rows, session_rows
from maskedlark.ledger.errors import (
    AccountClosed,
    AnswerLost,
    BadReceipt,
    BudgetExhausted,
    LedgerBehind,
    RequestIdReused,
)
from maskedlark.ledger.receipt import RecoveredReceipt
from maskedlark.ledger.rows import ChainHead
from tests.unit.ledger import ledgers
from tests.unit.ledger.ledgers import DATASETS, question
from tests.unit.ledger.lost import DOCUMENT, NEXT, ORIGIN, Lost, bent


@pytest.fixture
def lost(tmp_path):
    made = Lost(tmp_path)
    yield made
    made.database.close()


def verify(chain) -> receipt_verification.ReceiptVerifier:
    return receipt_verification.verify(chain, ORIGIN, "helper-0", [DOCUMENT, NEXT])


def test_what_is_handed_in_counts_and_is_answered_no_more(lost):
    with pytest.raises(LedgerBehind, match="maskedlark helper recover"):
        lost.ledger.check()
    lost.put_back(4)
    lost.ledger.check()
    with pytest.raises(AnswerLost):
        lost.ledger.charge(DOCUMENT, question(2, noise=1.0))
    with pytest.raises(RequestIdReused):
        lost.ledger.charge(DOCUMENT, question(2, noise=3.0))
    lost.ledger.charge(DOCUMENT, question(4, noise=1.0, columns=5))
    with pytest.raises(BudgetExhausted):
        lost.ledger.charge(DOCUMENT, question(5, noise=1.0))
    assert verify(ledgers.chain(lost.ledger)).spent()[DOCUMENT.digest.hex()].epsilon == pytest.approx(8)


@pytest.mark.parametrize("count", range(4))
def test_what_is_missing_counts_as_spent(lost, count):
    lost.put_back(count)
    made = lost.close().claimed()
    assert isinstance(made, RecoveredReceipt)
    assert (made.number, made.last_kept, made.previous) == (5, count, lost.signed[3].digest.hex())
    lost.ledger.check()
    for ask in (lost.ledger.charge, lost.ledger.explain):
        with pytest.raises(AccountClosed):
            ask(DOCUMENT, question(9, DATASETS[5], noise=1000.0))
    ledgers.freeze(lost.ledger, lost.database, NEXT, DATASETS[1])
    lost.ledger.charge(NEXT, question(10, DATASETS[1], noise=1.0, columns=8))
    shown = ledgers.chain(lost.ledger)
    assert [each.claimed().number for each in shown] == [*range(1, count + 1), 5, 6, 7]
    for held in range(count, 5):
        found = verify([*lost.signed[:held], *shown[count:]])
        assert found.lost == 4 - held
        assert found.spent()[NEXT.digest.hex()].epsilon == pytest.approx(8)


def test_a_close_is_of_all_documents_until_now(lost):
    lost.put_back(1)
    lost.close(NEXT)
    for document in (DOCUMENT, NEXT):
        with pytest.raises(AccountClosed):
            lost.ledger.charge(document, question(9, DATASETS[5]))


def test_a_loss_that_is_bent_is_noticed(lost):
    lost.put_back(2)
    gap = lost.close()
    held = lost.signed[:2]
    verify([*held, gap])
    other = lost.signed[2].digest.hex()
    for changes in (
        {"last_kept": 1},
        {"last_kept_digest": other},
        {"last_kept": 3},
        {"number": 2},
        {"last_kept": 0, "last_kept_digest": other},
    ):
        with pytest.raises(BadReceipt, match="does not follow"):
            verify([*held, bent(gap, **changes)])
    # Who holds all that were lost sees also a loss that is said of another history.
    with pytest.raises(BadReceipt, match="does not follow"):
        verify([*lost.signed, bent(gap, previous=other)])
    with pytest.raises(BadReceipt, match="does not follow"):
        verify([*lost.signed, bent(gap, number=4)])


def test_an_answer_under_a_closed_document_is_noticed(lost):
    lost.put_back(2)
    gap = lost.close()
    lie = bent(lost.signed[2], number=6, previous=gap.digest.hex(), time=gap.claimed().time)
    with pytest.raises(BadReceipt, match="a document that was closed"):
        verify([*lost.signed[:2], gap, lie])


def test_a_copy_answers_nothing_until_it_was_recovered(lost):
    lost.put_back(4)
    with lost.database.write() as connection:
        rows.mark_copy(connection, 1)
    for refused in (lost.ledger.check, lost.ledger.reset_anchors):
        with pytest.raises(LedgerBehind, match="put back from a backup"):
            refused()
    with lost.database.write() as connection:
        session_rows.end_recovery(connection)
    lost.ledger.check()
    assert lost.anchor.heads[ORIGIN] == ChainHead(4, lost.signed[3].digest)
