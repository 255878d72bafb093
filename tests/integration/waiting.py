"""Waiting for the clock: a second that is over gets no more reports, and can be selected."""

import time

from maskedlark.clock import SystemClock


def next_second() -> int:
    """The beginning of the next second, when it is there."""
    now = SystemClock().now()
    while SystemClock().now() <= now:
        time.sleep(0.05)
    return SystemClock().now()
