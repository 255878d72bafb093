"""How much an ad server takes from strangers at once."""

from dataclasses import dataclass

from maskedlark.wire import codec


@dataclass(frozen=True)
class Limits:
    """The limits of one upload."""

    uploads: int = 64
    """Read at the same time; times the size of a body, it bounds memory."""
    body_bytes: int = 4 << 20
    reports: int = 4096
    report_bytes: int = codec.MOST_BYTES
    body_timeout_s: float = 60.0
    """From the first to the last byte of a body."""
    hours_ahead: int = 48
    """Of a report's hour: a browser's clock may be wrong by a day. Refused is refused for good: a browser
    whose clock is further off keeps its reports aside, and sends them no more."""
    hours_behind: int = 90 * 24
    """A browser may have been away; helpers hold reports to their declared lifetime."""
