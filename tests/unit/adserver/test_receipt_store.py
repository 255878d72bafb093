"""The ad server's own copy of a helper's receipts, when the helper lost some of them."""

from dataclasses import dataclass

import pytest

from maskedlark.adserver.receipt_store import ReceiptStore
from maskedlark.adserver.remote_helper import RemoteHelper
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import SignedReceipt
from maskedlark.storage.engine import open_database
from maskedlark.wire.signatures import VerifyingKey
from tests.unit.ledger import ledgers
from tests.unit.ledger.ledgers import DATASETS, question
from tests.unit.ledger.lost import DOCUMENT, NEXT, ORIGIN, Lost, bent
from tests.unit.parameters import cases


@dataclass
class Shows(RemoteHelper):
    """A helper that shows these receipts."""

    shown: list[SignedReceipt]
    name: str = "helper-0"
    identity: VerifyingKey = cases.HELPER_KEYS[0].verifying

    def receipts(self, origin: str, after: int, most: int) -> list[SignedReceipt]:
        assert origin == ORIGIN
        return [each for each in self.shown if each.claimed().number > after][:most]


@pytest.fixture
def lost(tmp_path):
    """The helper kept the first two of four, and went on."""
    (tmp_path / "helper").mkdir()
    made = Lost(tmp_path / "helper")
    made.put_back(2)
    made.close()
    ledgers.freeze(made.ledger, made.database, NEXT, DATASETS[1])
    made.ledger.charge(NEXT, question(10, DATASETS[1]))
    yield made
    made.database.close()


@pytest.mark.parametrize("held", range(5))
def test_it_goes_on_after_what_a_helper_lost(lost, held, sqlite_url):
    """Whatever the ad server got: none, those that the helper kept, some that it lost, or all."""
    database = open_database(sqlite_url)
    store, before = ReceiptStore(database, ORIGIN), Shows(lost.signed)
    for signed in lost.signed[:held]:
        store.enter(before, signed)
    shown = ledgers.chain(lost.ledger)
    store.enter(Shows(shown), shown[-1])
    kept = [each.claimed().number for each in store.receipts("helper-0")]
    assert kept == [*range(1, max(held, 2) + 1), 5, 6, 7]
    database.close()


def test_a_helper_that_only_says_that_it_lost_some_is_not_believed(lost, sqlite_url):
    database = open_database(sqlite_url)
    store, before = ReceiptStore(database, ORIGIN), Shows(lost.signed)
    for signed in lost.signed[:3]:
        store.enter(before, signed)
    shown = ledgers.chain(lost.ledger)
    gap = shown[2]
    for changes in ({"last_kept": 1}, {"last_kept_digest": "ab" * 32}, {"last_kept": 4}):
        lie = bent(gap, **changes)
        with pytest.raises(BadReceipt, match="does not follow"):
            store.enter(Shows([*shown[:2], lie]), lie)
    # A gap that no receipt declares.
    with pytest.raises(BadReceipt, match="does not follow"):
        store.enter(Shows([*shown[:2], *shown[3:]]), shown[-1])
    assert len(store.receipts("helper-0")) == 3
    assert DOCUMENT.origin == ORIGIN
    database.close()
