"""A world and what is known of it from outside: who made which report, what was acknowledged and shown."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from maskedlark.adserver.client import Client
from maskedlark.adserver.dataset_store import Dataset, DatasetState
from maskedlark.adserver.errors import HelpersDiffer
from maskedlark.adserver.table import Table
from maskedlark.clock import hour_of
from maskedlark.core import validity
from maskedlark.core.purpose import Purpose
from maskedlark.errors import BadSignature, BrokenChain, MaskedLarkError
from maskedlark.helper.errors import DamagedDataset
from maskedlark.ledger.errors import BadReceipt, LedgerBehind
from maskedlark.release.errors import BadCheckKey, BadChecks
from maskedlark.web.errors import CorruptCache, FreezeMismatch
from maskedlark.web.remote import SignedRemote
from maskedlark.wire import batch, columns
from maskedlark.wire.batch import Envelope
from maskedlark.wire.signatures import SigningKey
from tests.simulation.faults import Crash
from tests.simulation.network import Message
from tests.simulation.parties import MAX_VALUE, AdServer, Helper, Party
from tests.simulation.world import World

# Errors that say that parties no longer agree: no fault may lead to one.
NEVER = (
    BadCheckKey,
    BadChecks,
    BadReceipt,
    BadSignature,
    BrokenChain,
    CorruptCache,
    DamagedDataset,
    HelpersDiffer,
    LedgerBehind,
    FreezeMismatch,
)
FORGED = 12
"""One report in so many is forged, where reports are checked."""
CAMPAIGNS = ("autumn", "spring")


class Broken(AssertionError):
    """Something that must hold does not."""


class Made(NamedTuple):
    """A report, and what is true of it."""

    origin: str
    parameters: bytes
    data: bytes
    campaign: str
    value: int
    forged: bool = False
    """Whether it says that it counts a billion times, under a document whose helpers check that."""


@dataclass
class Life:
    """A world, and what is known of it from outside."""

    world: World
    made: dict[bytes, Made] = field(default_factory=dict)
    """By id."""
    acknowledged: set[bytes] = field(default_factory=set)
    members: dict[bytes, frozenset[bytes]] = field(default_factory=dict)
    """The ids in every dataset that a helper has frozen, by its digest."""
    shown: dict[str, list[Table]] = field(default_factory=dict)
    """What was answered to a request, by its id."""
    asked: list[Message] = field(default_factory=list)
    """Questions as they went to helpers."""
    errors: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def acting(self, party: Party | None) -> Iterator[None]:
        """A party does something: it may be refused, and it may end. None stands for browsers."""
        try:
            with self.world.faults.running(party.host) if party else nullcontext():
                yield
        except Crash as crash:
            self.world.party(str(crash)).end()
        except NEVER as error:
            raise Broken(f"{type(error).__name__}: {error}") from error
        except MaskedLarkError as error:
            self.errors[type(error).__name__] = self.errors.get(type(error).__name__, 0) + 1

    def adserver(self, a: int) -> AdServer:
        return self.world.adservers[a % len(self.world.adservers)]

    def helper(self, a: int) -> Helper:
        return self.world.helpers[a % len(self.world.helpers)]

    def make(self, adserver: AdServer, count: int) -> list[bytes]:
        document, now, rng = adserver.documents[-1], self.world.clock.now(), self.world.browsers
        published = [helper.published for helper in self.world.helpers]
        if any(each is None or not any(key.valid_at(now) for key in each.keys) for each in published):
            return []
        keys = tuple(each.current(now) for each in published if each)
        campaigns = [CAMPAIGNS[int(i)] for i in rng.below(len(CAMPAIGNS), count)]
        values = rng.below(MAX_VALUE, count)
        secrets = document.measure.lift([values], np.ones(count, np.bool_))
        forged = document.checked & (rng.below(FORGED, count) == 0)
        if document.checked:
            secrets = np.concatenate([secrets, validity.prove(secrets, document.measure, rng)], axis=1)
            secrets[forged, 0] = 10**9
        shown = columns.aggregate_columns(document.measure, [campaigns], count)
        envelope = Envelope(document.layout(Purpose.AGGREGATE), keys)
        made = batch.seal_proved(envelope, 0, shown, secrets, [hour_of(now)] * count, rng)
        names = [envelope.layout.head(data).id for data in made]
        rows = zip(names, made, campaigns, values.tolist(), forged.tolist(), strict=True)
        for name, data, *truth in rows:
            self.made[name] = Made(adserver.origin, document.digest, data, *truth)
        return names

    def show(self, tables: list[Table]) -> None:
        before = self.shown.setdefault(tables[0].request, tables)
        if [table.rows for table in before] != [table.rows for table in tables]:
            raise Broken(f"request {tables[0].request} was answered with other numbers")

    def client(self, adserver: AdServer) -> Client:
        if adserver.app is None:
            raise Crash(adserver.host)
        return adserver.client

    def chosen(self, adserver: AdServer, state: DatasetState, b: int) -> list[Dataset]:
        found = [each for each in self.client(adserver).datasets() if each.state is state]
        return [found[b % len(found)]] if found else []

    def remote(self, adserver: AdServer, helper: Helper, key: SigningKey | None = None) -> SignedRemote:
        key, address = key or adserver.keys[-1], f"http://{helper.host}"
        return SignedRemote(address, helper.name, adserver.origin, key, adserver.clock, adserver.http())
