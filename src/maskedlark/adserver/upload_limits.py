"""How much is taken of strangers, per time and of the disk. Run by the ad server.

Addresses are kept in memory alone, a bounded number of them, and are in no log and no metric.
"""

import ipaddress
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.concurrency import run_in_threadpool

from maskedlark.adserver.config import Limits
from maskedlark.storage.engine import Database
from maskedlark.web.errors import DiskShareUsed, TooManyReports

ADDRESSES = 1 << 15
"""At most so many are remembered; then the one that came least recently is forgotten."""
LOOK_S = 1.0
"""Between two looks at the disk."""


class UploadLimits:
    """Refuses uploads, before their bodies are read, of who has sent too much. Used by one loop's thread.

    What was taken is counted as the seconds that it takes at the declared rates. A sender may be `burst_s`
    ahead of the clock, and its last upload may go beyond that: so none is too large for the rates.
    """

    def __init__(self, limits: Limits, database: Database, now: Callable[[], float] = time.monotonic) -> None:
        self.limits, self._database, self._now = limits, database, now
        self._paid_until = 0.0
        self._by_source: dict[bytes, float] = {}
        self._look_at, self._is_full = -math.inf, False

    async def check_disk(self) -> None:
        """Raise if reports use their share of the disk."""
        if self._now() >= self._look_at:
            self._look_at = self._now() + LOOK_S
            disk = await run_in_threadpool(self._database.disk)
            self._is_full = disk is not None and disk[1] > self.limits.disk_share * disk[0]
        if self._is_full:
            raise DiskShareUsed("reports use their share of the disk; try again later")

    @contextmanager
    def upload(self, host: str | None, announced: int) -> Iterator[Counter[str]]:
        """An upload that announces so many bytes; the block counts its `bytes` and `reports`."""
        limits, source, taken = self.limits, source_of(host), Counter[str]()
        ahead = max(self._paid_until, self._charge(source, 0.0)) - self._now() - limits.burst_s
        if ahead > 0:
            raise TooManyReports("more reports came than are taken at a time; try again later", ahead)
        # Counted before it comes, of its own address: many at once must not all be let in.
        self._charge(source, expected := announced / limits.address_bytes_per_s)
        try:
            yield taken
        finally:
            reports, size = taken["reports"], taken["bytes"]
            used = max(reports / limits.address_reports_per_s, size / limits.address_bytes_per_s)
            self._charge(source, used - expected)
            in_all = max(reports / limits.reports_per_s, size / limits.bytes_per_s)
            self._paid_until = max(self._paid_until, self._now()) + in_all

    def _charge(self, source: bytes, seconds: float) -> float:
        paid_until = max(self._by_source.pop(source, 0.0), self._now()) + seconds
        self._by_source[source] = paid_until
        if len(self._by_source) > ADDRESSES:
            del self._by_source[next(iter(self._by_source))]
        return paid_until


def source_of(host: str | None) -> bytes:
    """Whom to count together: an IPv4 address or an IPv6 network of 64 bits; all else is one."""
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return b""
    if isinstance(address, ipaddress.IPv4Address):
        return address.packed
    return address.ipv4_mapped.packed if address.ipv4_mapped else address.packed[:8]
