"""What helpers published of reports for checks: the same numbers whenever they are asked, or none."""

import threading
from pathlib import Path
from uuid import uuid4

import httpx

from maskedlark.wire.checks import Checks, SignedChecks
from tests.simulation.kills.waiting import Broken

PART = "/checks?"
"""Of the path. Own numbers are asked for by GET; those of others are relayed by POST."""


class Published:
    """Every number that any client heard, of every helper and report, for as long as the stage lasts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers: dict[tuple[int, bytes], bytes] = {}
        self._lock = threading.Lock()
        self.repeated = 0
        """Numbers that were heard before, and are the same."""

    def hear(self, response: httpx.Response) -> None:
        if is_of_checks(response):
            self.add(response.read())

    def collect(self) -> None:
        """What clients in processes of their own heard, dead ones too."""
        for path in self._folder.glob("*.message"):
            self.add(path.read_bytes())
            path.unlink()

    def of(self, place: int) -> set[bytes]:
        """The reports that a helper has published numbers of."""
        return {name for helper, name in self._numbers if helper == place}

    def add(self, message: bytes) -> None:
        checks = Checks.decode(SignedChecks.decode(message).body)
        with self._lock:
            for name, own in zip(checks.ids, checks.numbers, strict=True):
                key, numbers = (checks.place, name.tobytes()), own.tobytes()
                self.repeated += key in self._numbers
                if self._numbers.setdefault(key, numbers) != numbers:
                    raise Broken(f"helper {checks.place} has published other numbers of a report: two points")


def is_of_checks(response: httpx.Response) -> bool:
    return response.request.method == "GET" and PART in str(response.url) and response.is_success


def leave(folder: Path, response: httpx.Response) -> None:
    """Keep a message for whoever started this process, which may be killed at any moment."""
    if is_of_checks(response):
        made = folder / f"{uuid4()}.part"
        made.write_bytes(response.read())
        made.rename(made.with_suffix(".message"))
