"""A training session, as the ad server runs it: opened at all helpers, asked step by step, closed.

The request and every step are sent as the same bytes again when a helper was away: it answers the same, and
charges nothing twice. Run on the ad server's machine.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeVar

from maskedlark.adserver.book import Book
from maskedlark.adserver.errors import HelpersDiffer
from maskedlark.adserver.remote_helper import RemoteHelper
from maskedlark.core import sharing
from maskedlark.core.field import FieldArray
from maskedlark.ledger import receipt
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import ClosedReceipt, OpenedReceipt, Receipt
from maskedlark.parameters.document import Document
from maskedlark.release.messages import SessionRequest, decode_session
from maskedlark.wire.steps import Ranges

T = TypeVar("T")


@dataclass
class Session:
    """One session at all helpers of a document. One thread at a time uses it."""

    document: Document
    body: bytes
    """The request, as it is sent: kept, it opens the same session again."""
    helpers: Sequence[RemoteHelper]
    book: Book
    _hands: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self._hands = ThreadPoolExecutor(len(self.helpers), "helper")

    @cached_property
    def request(self) -> SessionRequest:
        """What is asked."""
        return decode_session(self.body)

    def open(self) -> Mapping[str, OpenedReceipt]:
        """Open it, or find it open: its receipt from every helper, verified and kept."""
        first, *others = self.helpers
        # The first alone: if it refuses, for the budget's sake or the slots', nothing is charged anywhere.
        answers = [first.open_session(self.body)]
        answers += self._all([partial(helper.open_session, self.body) for helper in others])
        found = {}
        for helper, data in zip(self.helpers, answers, strict=True):
            opened = self._enter(helper, data)
            if not isinstance(opened, OpenedReceipt) or not self._is_of(opened):
                raise BadReceipt(f"{helper.name} gave a receipt of another session than was asked for")
            found[helper.name] = opened
        if len({each.course for each in found.values()}) > 1:
            raise HelpersDiffer("helpers opened the session at another cost than each other")
        return found

    def step(self, number: int, body: bytes, size: int, chosen: Ranges = ()) -> FieldArray:
        """The sum of one step, with the noise of every helper: so many field elements."""
        return sharing.combine(self.answers(number, body, size, chosen))

    def answers(self, number: int, body: bytes, size: int, chosen: Ranges = ()) -> list[FieldArray]:
        """Every helper's answer of one step: only their sum means something."""
        session = self.request.id
        return self._all([partial(each.step, session, number, body, size, chosen) for each in self.helpers])

    def close(self) -> Mapping[str, ClosedReceipt]:
        """Give back what was not used. Again, the same receipts."""
        answers = self._all([partial(helper.close_session, self.request.id) for helper in self.helpers])
        found = {}
        for helper, data in zip(self.helpers, answers, strict=True):
            closed = self._enter(helper, data)
            if not isinstance(closed, ClosedReceipt) or closed.request != self.request.id:
                raise BadReceipt(f"{helper.name} gave a receipt of another session than was closed")
            found[helper.name] = closed
        return found

    def stop(self) -> None:
        """Let the threads go. The session stays as it is."""
        self._hands.shutdown(cancel_futures=True)

    def _is_of(self, opened: OpenedReceipt) -> bool:
        request = self.request
        return (
            opened.request,
            opened.question,
            opened.function,
            opened.tag,
            opened.datasets,
            opened.slots,
            opened.steps,
            opened.sampling,
            None if opened.course is None else opened.course.noise,
        ) == (
            request.id,
            hashlib.sha256(self.body).hexdigest(),
            request.function,
            request.tag,
            request.datasets,
            request.slots,
            request.steps,
            request.sampling,
            request.noise,
        )

    def _enter(self, helper: RemoteHelper, data: bytes) -> Receipt:
        signed = receipt.decode(data)
        opened = self.book.open(helper, self.document, signed)
        self.book.enter(helper, signed)
        return opened

    def _all(self, work: Sequence[Callable[[], T]]) -> list[T]:
        """All at once. Every helper is heard before the first error is raised: all have done their part."""
        futures = [self._hands.submit(each) for each in work]
        errors = [error for error in (future.exception() for future in futures) if error is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in futures]
