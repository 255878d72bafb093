"""Moments as people read them: in UTC, whatever the machine."""

from datetime import UTC, datetime


def shown(seconds: int) -> str:
    """A moment, by the second."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"second {seconds}"  # Beyond any calendar.


def iso(seconds: int) -> str:
    """A moment for programs, as RFC 3339 has it."""
    return f"{shown(seconds).replace(' ', 'T')}Z"
