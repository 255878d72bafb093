"""A training session as the ad server runs it: opened at all helpers, asked step by step, closed.

When a helper was unavailable, the request and every step are sent again as the same bytes: the answer is the
same, and nothing is charged twice. Run on the ad server's machine.
"""

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

from maskedlark.adserver.errors import HelpersDiffer
from maskedlark.adserver.receipt_store import ReceiptStore
from maskedlark.adserver.remote_helper import RemoteHelper, at_once
from maskedlark.core import sharing
from maskedlark.core.field import FieldArray
from maskedlark.errors import MaskedLarkError
from maskedlark.ledger.errors import BadReceipt, NoSuchSession, SlotTaken
from maskedlark.ledger.receipt import ClosedReceipt, OpenedReceipt, Receipt, SignedReceipt
from maskedlark.parameters.document import Document
from maskedlark.release.messages import SessionRequest
from maskedlark.wire.steps import Ranges

R = TypeVar("R", bound=Receipt)
_SAME = "function", "tag", "datasets", "slots", "steps", "sampling"
"""Fields that a receipt repeats from the request."""


@dataclass
class Session:
    """One session at all helpers of a document. One thread at a time uses it."""

    document: Document
    body: bytes
    """The encoded request: it opens the same session again."""
    helpers: Sequence[RemoteHelper]
    receipts: ReceiptStore

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        """Threads that last as long as the session: starting some for every step would cost it time."""
        return ThreadPoolExecutor(len(self.helpers), "helper")

    @cached_property
    def request(self) -> SessionRequest:
        """The decoded request."""
        return SessionRequest.decode(self.body)

    def open(self) -> Mapping[str, OpenedReceipt]:
        """Open it, idempotently: every helper's receipt, verified and stored."""
        first, *others = [partial(self._open, helper) for helper in self.helpers]
        # The first alone: if it refuses, because of budget or slots, nothing is charged anywhere.
        opened = [first()]
        try:
            opened += at_once(others, self._pool)
        except SlotTaken:
            # It can never be opened there. Nothing of it may stay charged: whoever asks opens another.
            self._undo()
            raise
        except MaskedLarkError as error:
            raise self._charged(error) from None
        if len({each.session_charge for each in opened}) > 1:
            raise HelpersDiffer("helpers opened the session at another cost than each other")
        return self._by_name(opened)

    def step(self, number: int, body: bytes, size: int, chosen: Ranges = ()) -> FieldArray:
        """The sum of one step, with every helper's noise: `size` field elements."""
        return sharing.combine(self.answers(number, body, size, chosen))

    def answers(self, number: int, body: bytes, size: int, chosen: Ranges = ()) -> list[FieldArray]:
        """Every helper's answer to one step: only their sum is meaningful."""
        step = [partial(each.step, self.request.id, number, body, size, chosen) for each in self.helpers]
        return at_once(step, self._pool)

    def close(self) -> Mapping[str, ClosedReceipt]:
        """Refund what was not used. Idempotent: the same receipts."""
        first, *others = self.helpers
        # The first last: until then it counts what the others refunded, and admits nothing that they refuse.
        closed = at_once([partial(self._close_if_open, each) for each in others], self._pool)
        receipts = [self._close(first)]
        for each in closed:
            if isinstance(each, NoSuchSession):
                raise each
            receipts.append(each)
        return self._by_name(receipts)

    def stop(self) -> None:
        """Stop the threads. The session stays as it is."""
        self._pool.shutdown(cancel_futures=True)

    def _by_name(self, receipts: Sequence[R]) -> dict[str, R]:
        return {helper.name: each for helper, each in zip(self.helpers, receipts, strict=True)}

    def _open(self, helper: RemoteHelper) -> OpenedReceipt:
        opened = self._entered(helper, helper.open_session(self.body))
        if not isinstance(opened, OpenedReceipt) or not self._is_of(opened):
            raise BadReceipt(f"{helper.name} gave a receipt of another session than was asked for")
        return opened

    def _close(self, helper: RemoteHelper) -> ClosedReceipt:
        closed = self._entered(helper, helper.close_session(self.request.id))
        if not isinstance(closed, ClosedReceipt) or closed.request != self.request.id:
            raise BadReceipt(f"{helper.name} gave a receipt of another session than was closed")
        return closed

    def _close_if_open(self, helper: RemoteHelper) -> ClosedReceipt | NoSuchSession:
        """A receipt, or the error of a helper where it was never opened: that one counts nothing of it."""
        try:
            return self._close(helper)
        except NoSuchSession as error:
            return error

    def _undo(self) -> None:
        """Close a session that some helper has not opened."""
        try:
            self.close()
        except NoSuchSession:
            return
        except MaskedLarkError as error:
            raise self._charged(error) from None

    def _charged(self, error: MaskedLarkError) -> MaskedLarkError:
        """An error of another helper, with what the first has charged."""
        first, session = self.helpers[0].name, self.request.id
        error.args = (f"{error}. {first} has charged session {session} already: its `close()` refunds it",)
        return error

    def _entered(self, helper: RemoteHelper, signed: SignedReceipt) -> Receipt:
        """A receipt, verified and stored."""
        opened = self.receipts.open(helper, self.document, signed)
        self.receipts.enter(helper, signed)
        return opened

    def _is_of(self, opened: OpenedReceipt) -> bool:
        request, noise = self.request, None if opened.session_charge is None else opened.session_charge.noise
        return (
            (opened.request, opened.request_digest) == (request.id, hashlib.sha256(self.body).hexdigest())
            and noise == request.noise
            and all(getattr(opened, name) == getattr(request, name) for name in _SAME)
        )
