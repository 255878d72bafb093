"""All parties in one process: real storage, real signatures, one clock, and a network that may fail.

A party that ends loses everything but its folder, and begins again from there.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

import anyio.to_thread
from fastapi import FastAPI

from maskedlark.adserver.uploads import ReportLayouts
from maskedlark.clock import FixedClock
from maskedlark.randomness import FixedRandomness
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web.errors import ServiceAway
from tests.simulation import speedups
from tests.simulation.faults import Crash, Faults, installed
from tests.simulation.network import Network, at_once
from tests.simulation.parties import (
    NOW,
    ORIGINS,
    SERVICE,
    AdServer,
    Helper,
    ParameterService,
    Party,
    Skewed,
)

Servers = Mapping[str, str]
"""URLs of databases by host. Who is not there has a file."""


class World:
    """All parties, and the clock that they share."""

    def __init__(
        self, folder: Path, seed: int, helpers: int, origins: int, faults: Faults, servers: Servers
    ) -> None:
        self.seed, self.faults, self.clock = seed, faults, FixedClock(NOW)
        self.network = Network(faults, self._app, crashed=self._crashed)
        self.browsers = FixedRandomness(f"{seed} browsers".encode())
        self.helpers: list[Helper] = []
        self.adservers: list[AdServer] = []
        self.service = ParameterService(SERVICE, _folder(folder, SERVICE), Skewed(self.clock), self)
        for place in range(helpers):
            host = f"helper-{place}.test"
            self.helpers.append(Helper(host, _folder(folder, host), Skewed(self.clock), self, place=place))
        for host in ORIGINS[:origins]:
            self.adservers.append(AdServer(host, _folder(folder, host), Skewed(self.clock), self))
        self.parties: list[Party] = [self.service, *self.helpers, *self.adservers]
        for party in self.parties:
            party.server = servers.get(party.host)
        self.stays_down = False
        """Whoever ends in this step begins again in the next."""
        self.asleep: dict[str, int] = {}
        """Who is down, and for how many steps more."""
        self.skewed: dict[str, int] = {}
        """Whose clock is off, and for how many steps more."""

    def start(self) -> None:
        """Everything runs, and every origin has a document."""
        self.service.start()
        for helper in self.helpers:
            helper.rotate()
            helper.start()
        for adserver in self.adservers:
            adserver.publish()
            adserver.start()

    def tick(self) -> None:
        """A step begins."""
        for host in self.asleep:
            self.asleep[host] -= 1
        for host in [*self.skewed]:
            self.skewed[host] -= 1
            if self.skewed[host] <= 0:
                del self.skewed[host]
                self.party(host).clock.offset = 0
        self.revive()

    def revive(self) -> None:
        """Start whoever has ended, if it can be."""
        for party in self.parties:
            if party.app is None:
                self._start(party)

    def close(self) -> None:
        for party in self.parties:
            party.end()
        self.network.end()

    def _crashed(self, host: str) -> None:
        self.party(host).end()

    def party(self, host: str) -> Party:
        return next(party for party in self.parties if party.host == host)

    def _app(self, host: str) -> FastAPI | None:
        """Of a party that has ended: some are started again at once, some in the next step."""
        party = self.party(host)
        if party.app is None and not self.stays_down:
            self._start(party)
        return party.app

    def _start(self, party: Party) -> None:
        """It may end on its way, or find what it needs away: then it is tried again later."""
        if self.asleep.get(party.host, 0) > 0:
            return
        with suppress(Crash, ServiceAway, StorageUnavailable):
            party.start()


def _folder(folder: Path, host: str) -> Path:
    made = folder / host
    made.mkdir()
    return made


@contextmanager
def world(folder: Path, seed: int, helpers: int, origins: int, servers: Servers) -> Iterator[World]:
    """A world that runs, under faults that can be armed."""
    faults = Faults()
    with (
        installed(faults),
        speedups.installed(),
        mock.patch.object(anyio.to_thread, "run_sync", at_once),
        # Threads of their own would make runs differ.
        mock.patch.object(ReportLayouts, "_want", ReportLayouts._ask),
    ):
        made = World(folder, seed, helpers, origins, faults, servers)
        try:
            made.start()
            yield made
        finally:
            faults.arm(None)
            made.close()
