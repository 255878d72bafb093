"""Sends reports to the ad server, in the background, as often as it takes. Run by the browser.

A report leaves the outbox only when the ad server confirms that it has durably stored it. Until then the same
bytes are sent again, and the ad server counts them once, by id. No answer of the ad server makes a browser
reveal more: no cookie is sent, no redirect followed.
"""

import email.utils
import logging
import math
import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx
import numpy as np

from maskedlark.browser.store import Outbox
from maskedlark.clock import Clock
from maskedlark.errors import MaskedLarkError, NotDeclared
from maskedlark.randomness import Randomness
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web.errors import BodyTooLarge, ServiceAway, StrangeAnswer
from maskedlark.web.remote import API, Patience, Remote, bounded
from maskedlark.wire import uploads
from maskedlark.wire.errors import NotAnAnswer
from maskedlark.wire.uploads import Answer, Verdict

POOL_BATCHES = 4
"""A batch is drawn from this many times its size, so one report that always fails does not block others."""
MAX_ANSWER_BYTES = 256
"""Per report."""
MAX_RETRY_AFTER_S = 24 * 3600
_LOG = logging.getLogger(__name__)


class NotAnAddress(NotDeclared):
    """Something else than the http or https address of a service."""


@dataclass(frozen=True)
class Settings:
    """How a browser uploads."""

    batch_reports: int = 256
    batch_bytes: int = 1 << 20
    timeout_s: float = 30.0
    """Without a byte from the ad server."""
    first_wait_s: int = 2
    max_wait_s: int = 3600
    idle_s: float = 60.0
    """Between two checks of an empty outbox."""


@dataclass(frozen=True)
class Progress:
    """What became of reports."""

    acknowledged: int = 0
    refused: int = 0

    def __add__(self, other: "Progress") -> "Progress":
        return Progress(self.acknowledged + other.acknowledged, self.refused + other.refused)


class _TryLater(MaskedLarkError):
    """This attempt failed; nothing is known about the reports in it."""

    def __init__(self, reason: str, wait_s: int = 0) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


Batch = Sequence[tuple[int, bytes]]


class Uploader:
    """Sends an outbox's reports to the ad server at `url`. Any thread may use it."""

    def __init__(
        self,
        url: str,
        client: httpx.Client,
        clock: Clock,
        rng: Randomness,
        outbox: Outbox,
        settings: Settings | None = None,
    ) -> None:
        self._remote = Remote(url, client)
        self._host = _host(url)
        self._clock = clock
        self._rng = rng
        self._outbox = outbox
        self._settings = settings or Settings()
        self._size = self._settings.batch_reports
        self._failures = 0
        self._not_before: int | None = None
        self._one_at_a_time = threading.Lock()

    def send_due(self) -> Progress:
        """Send until the outbox is empty or an attempt fails. Returns what was settled."""
        return sum(iter(self._step, None), Progress())

    def run(self, stop: threading.Event) -> None:
        """Send until `stop` is set. Never gives up, whatever fails."""
        while not stop.is_set():
            try:
                moved = self._step()
            except (sqlite3.Error, StorageUnavailable) as error:  # our own store: busy, full, damaged
                moved = None
                self._fail(_TryLater(f"the outbox: {error}"))
            if not moved:
                stop.wait(self.wait_s() or self._settings.idle_s)

    def wait_s(self) -> int:
        """Seconds until the next attempt after one that failed; 0 if there is no need to wait."""
        if self._not_before is None:
            return 0
        left = self._not_before - self._clock.now()
        # A clock that was set back must not make us wait for years.
        return left if 0 < left <= MAX_RETRY_AFTER_S + self._settings.max_wait_s else 0

    def _step(self) -> Progress | None:
        """Send one batch. Returns what was settled, or None when it is time to pause."""
        with self._one_at_a_time:
            if self.wait_s():
                return None
            batch = self._draw()
            if not batch:
                return None
            try:
                progress = self._send(batch)
            except _TryLater as failure:
                self._size = max(1, self._size // 2)
                self._fail(failure)
                return None
            # Also where every report has to come again: those alone must not fill small batches for ever.
            self._size = min(2 * self._size, self._settings.batch_reports)
            if progress == Progress():
                self._fail(_TryLater("the ad server takes none of these reports yet"))
                return None
            self._failures, self._not_before = 0, None
            return progress

    def _draw(self) -> Batch:
        """The next batch, in random order: the order in which things happened must not show."""
        waiting = self._outbox.batch(POOL_BATCHES * self._size)
        order = np.argsort(self._rng.words(len(waiting)), kind="stable")
        shuffled = [waiting[place] for place in order.tolist()][: self._size]
        ends = np.cumsum([len(report) for _, report in shuffled])
        fitting = int(np.searchsorted(ends, self._settings.batch_bytes, side="right"))
        return shuffled[: max(1, fitting)]

    def _send(self, batch: Batch) -> Progress:
        """Send a batch, or a smaller piece of it if it is too large. Returns what was settled."""
        try:
            answers = self._post([report for _, report in batch])
        except BodyTooLarge as error:
            if len(batch) == 1:
                self._outbox.refuse(batch[0][0], type(error).__name__)
                return Progress(refused=1)
            self._size = len(batch) // 2
            return self._send(batch[: self._size])
        return self._settle(batch, answers)

    def _settle(self, batch: Batch, answers: Sequence[Answer]) -> Progress:
        taken, refused = [], 0
        for (key, _), answer in zip(batch, answers, strict=True):
            if answer.outcome is Verdict.REFUSED:
                self._outbox.refuse(key, str(answer.error))
                refused += 1
            elif answer.outcome is not Verdict.LATER:
                taken.append(key)
        self._outbox.acknowledge(taken)
        return Progress(len(taken), refused)

    def _post(self, reports: Sequence[bytes]) -> tuple[Answer, ...]:
        """One upload. Anything but a full answer of the ad server means: try later."""
        patience = Patience(MAX_ANSWER_BYTES * (len(reports) + 1), self._settings.timeout_s)
        end = time.monotonic() + patience.within_s
        path, batch = f"{API}/reports", uploads.encode_batch(reports)
        try:
            with self._remote.answer("POST", path, patience, batch, uploads.CONTENT_TYPE) as answer:
                if answer.status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
                    raise BodyTooLarge("the ad server wants smaller uploads")
                if answer.status_code != httpx.codes.OK:
                    wait = retry_after_s(answer.headers.get("retry-after", ""), self._clock.now())
                    raise _TryLater(f"status {answer.status_code}", wait)
                return uploads.decode_answers(bounded(answer, end, patience), len(reports))
        except (ServiceAway, StrangeAnswer, NotAnAnswer) as error:
            raise _TryLater(type(error).__name__) from error

    def _fail(self, failure: _TryLater) -> None:
        """Set the wait before the next attempt: longer each time, random, at least what the server asks."""
        wait = min(self._settings.max_wait_s, self._settings.first_wait_s << min(self._failures, 30))
        # Half of it is random: browsers that failed together must not return together.
        wait = math.ceil(wait * (1 + float(self._rng.unit(1)[0])) / 2) + failure.wait_s
        self._failures += 1
        self._not_before = self._clock.now() + wait
        _LOG.warning("upload to %s failed (%s); next attempt in %d s", self._host, failure, wait)


def _host(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise NotAnAddress("an ad server's address begins with https:// (or http://) and names a host")
    return parsed.host


def retry_after_s(header: str, now: int) -> int:
    """The seconds that a Retry-After header, in seconds or a date, asks for; 0 if it makes no sense."""
    try:
        if header.isascii() and header.isdigit():
            seconds = int(header)
        else:
            seconds = math.ceil(email.utils.parsedate_to_datetime(header).timestamp()) - now
    except (ValueError, TypeError, OverflowError):
        return 0
    return max(0, min(seconds, MAX_RETRY_AFTER_S))
