"""Times as people read them: in UTC, whatever the machine's time zone."""

from datetime import UTC, datetime


def format_utc(seconds: int) -> str:
    """A time, to the second."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"second {seconds}"  # Beyond any calendar.


def iso(seconds: int) -> str:
    """A time for programs, in RFC 3339 form."""
    return f"{format_utc(seconds).replace(' ', 'T')}Z"
