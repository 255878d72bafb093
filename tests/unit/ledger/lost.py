"""A ledger that lost receipts."""

from maskedlark.ledger import receipt
from maskedlark.ledger.receipt import SignedReceipt
from tests.unit.ledger import ledgers
from tests.unit.ledger.ledgers import DATASETS, Signs, question
from tests.unit.parameters import cases

DOCUMENT = cases.make(k=1)
NEXT = cases.make(k=1, version=2, previous=DOCUMENT.digest.hex())
ORIGIN = DOCUMENT.origin


class Lost:
    """A ledger that signed four receipts, and an empty one in its place, with the anchor of the first."""

    def __init__(self, folder) -> None:
        ledger, database, self.anchor = ledgers.at(folder)
        ledgers.freeze(ledger, database, DOCUMENT, DATASETS[0])
        for number in (1, 2, 3):
            ledger.charge(DOCUMENT, question(number, noise=1.0))
        self.signed = ledgers.chain(ledger)
        database.close()
        (folder / "again").mkdir()
        self.ledger, self.database, _ = ledgers.at(folder / "again", self.anchor)

    def put_back(self, count: int) -> None:
        with self.database.write() as connection:
            self.ledger.restore_receipts(connection, ORIGIN, self.signed[:count])

    def close(self, document=DOCUMENT) -> SignedReceipt:
        with self.database.write() as connection:
            made = self.ledger.close(connection, document, self.anchor.heads[ORIGIN])
        self.ledger.advance_anchor(ORIGIN, made)
        return made


def bent(signed: SignedReceipt, **changes) -> SignedReceipt:
    """As a lying helper could sign it."""
    made = signed.claimed().model_copy(update=changes)
    return receipt.sign(made, Signs().key, Signs().certificate)
