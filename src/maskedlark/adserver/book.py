"""The receipts that the ad server keeps of every helper: a chain each, verified as it grows.

It has no gaps but those that the helper declares itself, by a receipt that it lost some. A helper that shows
two histories is caught here: a receipt that is kept never changes.
"""

from collections.abc import Mapping

from sqlalchemy import BigInteger, Column, LargeBinary, MetaData, String, Table, func, select

from maskedlark.adserver.dataset_store import MOST_HELPER_NAME
from maskedlark.adserver.receipt_pages import MOST_RECEIPTS
from maskedlark.adserver.remote_helper import RemoteHelper
from maskedlark.errors import MaskedLarkError
from maskedlark.ledger import receipt
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import Receipt, RecoveredReceipt, SignedReceipt
from maskedlark.parameters.document import Document
from maskedlark.storage.engine import Database
from maskedlark.storage.schema import prepare

SCHEMA_VERSION = 1
_TABLES = MetaData()
_RECEIPTS = Table(
    "receipts",
    _TABLES,
    Column("helper", String(MOST_HELPER_NAME), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("receipt", LargeBinary, nullable=False),
)


class Book:
    """All receipts that were seen. Any thread may use it."""

    def __init__(self, database: Database, origin: str) -> None:
        prepare(database, "receipts", SCHEMA_VERSION, _TABLES)
        self._database = database
        self._origin = origin

    def open(self, helper: RemoteHelper, document: Document, signed: SignedReceipt) -> Receipt:
        """The receipt, if the helper made it for us under this document. Nothing is kept yet."""
        found = _opened(helper, signed)
        if found.origin != self._origin or found.parameters != document.digest.hex():
            raise BadReceipt(f"{helper.name} gave a receipt of another origin or document")
        return found

    def enter(self, helper: RemoteHelper, signed: SignedReceipt) -> None:
        """Keep a receipt that was opened, in its place behind the last one. What lies between is fetched."""
        number, last = signed.claimed().number, self._last(helper.name)
        if number > last + 1:
            self._fill(helper, last, number)
        elif number == last + 1:
            self._append(helper.name, last, [signed])
        kept = self.receipt(helper.name, number)
        if kept is None or kept.digest != signed.digest:
            raise BadReceipt(
                f"{helper.name} has signed two receipts with number {number}: it shows two histories"
            )

    def receipts(self, helper: str) -> list[SignedReceipt]:
        """All that is kept of a helper, in order."""
        query = select(_RECEIPTS.c.receipt).where(_RECEIPTS.c.helper == helper).order_by(_RECEIPTS.c.number)
        with self._database.read() as connection:
            return [receipt.decode(bytes(data)) for data in connection.scalars(query)]

    def receipt(self, helper: str, number: int) -> SignedReceipt | None:
        """The one of that number; none if it was not seen."""
        query = select(_RECEIPTS.c.receipt).where(_RECEIPTS.c.helper == helper, _RECEIPTS.c.number == number)
        with self._database.read() as connection:
            data = connection.scalar(query)
        return None if data is None else receipt.decode(bytes(data))

    def _last(self, helper: str) -> int:
        query = select(func.max(_RECEIPTS.c.number)).where(_RECEIPTS.c.helper == helper)
        with self._database.read() as connection:
            return connection.scalar(query) or 0

    def _fill(self, helper: RemoteHelper, last: int, number: int) -> None:
        """Fetch what other clients of ours, or an answer that was lost, left out."""
        wanted = number - last
        if wanted > MOST_RECEIPTS:
            raise BadReceipt(
                f"{helper.name} names receipt {number}, and {last} was the last: that is no chain"
            )
        fetched = [each for each in helper.receipts(self._origin, last, wanted) if _number(each) <= number]
        if not fetched or _number(fetched[-1]) < number:
            raise BadReceipt(f"{helper.name} lacks receipts between {last} and {number}")
        for each in fetched:
            if _opened(helper, each).origin != self._origin:
                raise BadReceipt(f"{helper.name} has a receipt of another origin among ours")
        self._append(helper.name, last, fetched)

    def _append(self, helper: str, last: int, behind: list[SignedReceipt]) -> None:
        """Keep receipts that follow each other and the last one. One transaction: all or none."""
        new: dict[int, SignedReceipt] = {}
        for signed in behind:
            if not self._follows(helper, signed.claimed(), last, new):
                raise BadReceipt(f"receipt {_number(signed)} of {helper} does not follow the one before it")
            last = _number(signed)
            new[last] = signed
        rows = [(helper, _number(signed), signed.encode()) for signed in behind]
        with self._database.write() as connection:
            # Another process of ours may have kept some: they are compared when they are read again.
            self._database.insert_new(connection, _RECEIPTS, rows)

    def _follows(self, helper: str, found: Receipt, last: int, new: Mapping[int, SignedReceipt]) -> bool:
        """Whether a receipt is the next; or the one by which the helper says that it lost some."""
        if found.number == last + 1:
            return found.previous == self._digest(helper, last, new)
        if not isinstance(found, RecoveredReceipt) or not found.kept <= last < found.number:
            return False
        return found.kept_digest == self._digest(helper, found.kept, new)

    def _digest(self, helper: str, number: int, new: Mapping[int, SignedReceipt]) -> str | None:
        """Of a receipt that is about to be kept, or is; none of what is before the first."""
        signed = new.get(number) or self.receipt(helper, number)
        return None if signed is None else signed.digest.hex()


def _number(signed: SignedReceipt) -> int:
    return signed.claimed().number


def _opened(helper: RemoteHelper, signed: SignedReceipt) -> Receipt:
    """The receipt, if this helper made it: else it says whose it was to be."""
    try:
        return signed.open(helper.name, helper.identity)
    except MaskedLarkError as error:
        raise BadReceipt(f"a receipt of {helper.name} does not hold: {error}") from None
