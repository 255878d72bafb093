"""Whether this machine's clock is right: nothing is deleted by one that is not confirmed.

Run by helpers and ad servers. The parameter service's signed time confirms or contradicts. While it cannot be
asked, requests signed by two origins confirm, as they verify only if clocks agree. They never contradict:
anyone can replay a recorded request, and one origin must not stop a helper for others. Times in reports do
not count, since browsers choose them.
"""

import logging
import math
import time

from maskedlark.clock import Clock
from maskedlark.errors import MaskedLarkError
from maskedlark.parameters.meaning import moment
from maskedlark.randomness import Randomness
from maskedlark.web.errors import ClockDisagrees
from maskedlark.web.parameters import ParameterClient
from maskedlark.web.request_signature import WINDOW_S

TOLERANCE_S = WINDOW_S
"""By how much clocks may differ."""
EVERY_S = 60.0
"""Between two comparisons."""
ORIGINS, COUNTS_S = 2, 3600.0
"""How many origins' requests confirm a clock together, and for how long each counts."""
_log = logging.getLogger(__name__)


class ClockCheck:
    """Compares a clock with those of others. Threads may share it."""

    def __init__(self, clock: Clock, parameters: ParameterClient, rng: Randomness) -> None:
        self._clock, self._parameters, self._rng = clock, parameters, rng
        self._service: tuple[int, float] | None = None
        self._origins: dict[str, tuple[int, float]] = {}
        self._fault, self._deleted = "", -math.inf

    def compare(self) -> str:
        """Ask the parameter service for its time, for a few seconds at most; returns what is wrong, if so."""
        try:
            theirs, ours = self._parameters.time(self._rng.bytes(16)), self._clock.now()
        except MaskedLarkError as error:
            self._service, reason = None, type(error).__name__
            if not self.is_confirmed:
                return self._fault or f"nothing confirms the clock ({reason}), so nothing is deleted"
            self._fault = ""
            return ""
        self._service, self._fault = (theirs, time.monotonic()), ""
        if abs(ours - theirs) > TOLERANCE_S:
            times = f"the clock says {moment(ours)}, that of the parameter service {moment(theirs)}"
            self._fault = f"{times}: set the wrong one; until then nothing is deleted"
        return self._fault

    def fresh_request(self, origin: str) -> None:
        """A request of this origin has verified as fresh: its clock agrees with ours."""
        self._origins[origin] = self._clock.now(), time.monotonic()

    @property
    def is_contradicted(self) -> bool:
        """Whether the parameter service contradicted this clock, which was not set or confirmed since."""
        return bool(self._fault) and not self.is_confirmed

    def check(self) -> None:
        """Raise if it is contradicted."""
        if self.is_contradicted:
            raise ClockDisagrees(self._fault)

    @property
    def is_confirmed(self) -> bool:
        """Whether this clock is right, by the last comparisons. Asks nobody."""
        if (service := self._service) is not None:
            return self._agrees(*service)
        return sum(self._agrees(*each) for each in [*self._origins.values()]) >= ORIGINS

    def is_due(self, every_s: float) -> bool:
        """Compare; whether to delete now: by a confirmed clock, and not again within `every_s`."""
        if wrong := self.compare():
            _log.warning("%s", wrong)
        is_due = self.is_confirmed and time.monotonic() >= self._deleted + every_s
        if is_due:
            self._deleted = time.monotonic()
        return is_due

    def _agrees(self, theirs: int, at: float) -> bool:
        """Whether a time that was theirs at a monotonic time is ours now: ours may have been set since."""
        elapsed = time.monotonic() - at
        return elapsed < COUNTS_S and abs(self._clock.now() - theirs - int(elapsed)) <= TOLERANCE_S
