"""The receipts that the ad server stores of every helper: one chain per helper, verified as it grows.

The only gaps are those that a helper declares itself, by a receipt that it lost some. A helper that shows two
histories is caught here: a stored receipt never changes.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import BigInteger, Column, ColumnElement, LargeBinary, MetaData, String, Table, func, select

from maskedlark.adserver.dataset_store import MAX_HELPER_NAME
from maskedlark.adserver.remote_helper import MAX_RECEIPTS, RemoteHelper
from maskedlark.errors import MaskedLarkError
from maskedlark.ledger import receipt
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import Receipt, RecoveredReceipt, SignedReceipt
from maskedlark.parameters.document import Document
from maskedlark.storage.engine import Database
from maskedlark.storage.schema import prepare

SCHEMA_VERSION = 2
_TABLES = MetaData()
_RECEIPTS = Table(
    "receipts",
    _TABLES,
    Column("helper", String(MAX_HELPER_NAME), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("receipt", LargeBinary, nullable=False),
)


class ReceiptStore:
    """All receipts seen. Any thread may use it."""

    def __init__(self, database: Database, origin: str) -> None:
        prepare(database, "receipts", SCHEMA_VERSION, _TABLES)
        self._database, self._origin = database, origin

    def open(self, helper: RemoteHelper, document: Document, signed: SignedReceipt) -> Receipt:
        """The receipt, if the helper made it for us under this document. Nothing is stored yet."""
        opened = _opened(helper, signed)
        if opened.origin != self._origin or opened.parameters != document.digest.hex():
            raise BadReceipt(f"{helper.name} gave a receipt of another origin or document")
        return opened

    def enter(self, helper: RemoteHelper, signed: SignedReceipt) -> None:
        """Store an opened receipt after the last one, and fetch those between."""
        number, last = signed.claimed().number, self._last(helper.name)
        if number > last:
            self._append(helper.name, last, self._after(helper, last, signed))
        kept = self.receipt(helper.name, number)
        if kept is None or kept.digest != signed.digest:
            raise BadReceipt(
                f"{helper.name} has signed two receipts with number {number}: it shows two histories"
            )

    def update(self, helper: RemoteHelper) -> None:
        """Fetch and store what a helper has signed since the last receipt that is here."""
        last = self._last(helper.name)
        self._append(helper.name, last, self._ours(helper, helper.receipts(self._origin, last, MAX_RECEIPTS)))

    def receipts(self, helper: str) -> list[SignedReceipt]:
        """All stored receipts of a helper, in order."""
        return self._kept(_RECEIPTS.c.helper == helper)

    def receipt(self, helper: str, number: int) -> SignedReceipt | None:
        """The receipt of that number, or None if it was not seen."""
        return next(iter(self._kept(_RECEIPTS.c.helper == helper, _RECEIPTS.c.number == number)), None)

    def _kept(self, *where: ColumnElement[bool]) -> list[SignedReceipt]:
        query = select(_RECEIPTS.c.receipt).where(*where).order_by(_RECEIPTS.c.number)
        return [receipt.decode(data) for (data,) in self._database.rows(query)]

    def _last(self, helper: str) -> int:
        query = select(func.max(_RECEIPTS.c.number)).where(_RECEIPTS.c.helper == helper)
        return self._database.rows(query)[0][0] or 0

    def _after(self, helper: RemoteHelper, last: int, signed: SignedReceipt) -> list[SignedReceipt]:
        """A receipt and those before it that we lack, because of other clients of ours or a lost answer."""
        number = signed.claimed().number
        wanted = number - last
        if wanted == 1:
            return [signed]
        if wanted > MAX_RECEIPTS:
            raise BadReceipt(
                f"{helper.name} names receipt {number}, and {last} was the last: that is no chain"
            )
        answered = helper.receipts(self._origin, last, wanted)
        fetched = [each for each in answered if each.claimed().number <= number]
        if not fetched or fetched[-1].claimed().number < number:
            raise BadReceipt(f"{helper.name} lacks receipts between {last} and {number}")
        return self._ours(helper, fetched)

    def _ours(self, helper: RemoteHelper, fetched: list[SignedReceipt]) -> list[SignedReceipt]:
        """Fetched receipts, if the helper made each of them for us."""
        for each in fetched:
            if _opened(helper, each).origin != self._origin:
                raise BadReceipt(f"{helper.name} has a receipt of another origin among ours")
        return fetched

    def _append(self, helper: str, last: int, added: Sequence[SignedReceipt]) -> None:
        """Store receipts that follow the last one and each other. One transaction: all or none."""
        new: dict[int, SignedReceipt] = {}
        for signed in added:
            claimed = signed.claimed()
            follows = (claimed.number, claimed.previous) == (last + 1, self._digest(helper, last, new))
            if isinstance(claimed, RecoveredReceipt) and claimed.number > last + 1:
                # By this receipt the helper declares that it lost some: it names the last one it kept.
                kept = self._digest(helper, claimed.last_kept, new)
                follows = claimed.last_kept <= last and claimed.last_kept_digest == kept
            if not follows:
                raise BadReceipt(f"receipt {claimed.number} of {helper} does not follow the one before it")
            last = claimed.number
            new[last] = signed
        rows = [(helper, number, signed.encode()) for number, signed in new.items()]
        with self._database.write() as connection:
            # Another process of ours may have stored some: they are compared when read again.
            self._database.insert_new(connection, _RECEIPTS, rows)

    def _digest(self, helper: str, number: int, new: Mapping[int, SignedReceipt]) -> str | None:
        """The digest of a receipt that is stored or about to be; None before the first."""
        signed = new.get(number) or self.receipt(helper, number)
        return None if signed is None else signed.digest.hex()


def _opened(helper: RemoteHelper, signed: SignedReceipt) -> Receipt:
    """The receipt, if this helper made it; the error names the helper it should be from."""
    try:
        return signed.open(helper.name, helper.identity)
    except MaskedLarkError as error:
        raise BadReceipt(f"a receipt of {helper.name} does not hold: {error}") from None
