"""Reports come, and the ad server that takes them is killed."""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np

from maskedlark.clock import SystemClock, hour_of
from maskedlark.core import validity
from maskedlark.core.purpose import Purpose
from maskedlark.simulate.cluster import LocalCluster
from maskedlark.web.errors import ServiceAway
from maskedlark.web.remote import Remote
from maskedlark.wire import batch, columns, uploads
from maskedlark.wire.batch import Envelope
from maskedlark.wire.uploads import Verdict
from tests.simulation.kills.killer import Killer
from tests.simulation.kills.waiting import PATIENCE_S, Broken, end, wait_until

CAMPAIGNS = ("autumn", "spring")
BATCH, SENDERS = 8, 3
FORGED = 13
"""One of so many says that its value is a billion: of both campaigns, in nearly every dataset and chunk."""
BILLION = 10**9


class Made(NamedTuple):
    """A report, and what is true of it. No two have the same value."""

    data: bytes
    parameters: bytes
    campaign: str
    value: int
    is_forged: bool


class Reports(Killer):
    """Who made which report, and what was acknowledged."""

    def __init__(self, made: LocalCluster, settings: str) -> None:
        super().__init__(made, settings)
        self.made: dict[bytes, Made] = {}
        self.acknowledged: set[bytes] = set()

    def upload(self, count: int, kills: Sequence[tuple[int, float]]) -> None:
        """Browsers send at once; each kill is behind so many acknowledged batches, and a delay."""
        names = self._make(count)
        batches = [names[i : i + BATCH] for i in range(0, count, BATCH)]
        before, adserver = len(self.acknowledged), self.stage.adserver
        with ThreadPoolExecutor(SENDERS) as senders:
            sending = [senders.submit(self._send, each) for each in batches]
            for number, delay_s in kills:
                wanted = before + min(number * BATCH, count)
                wait_until(partial(self._has_acknowledged, wanted))
                time.sleep(delay_s)
                self.kill("upload", adserver)
                self.settle()
            for each in sending:
                each.result(PATIENCE_S)

    def _has_acknowledged(self, count: int) -> bool:
        return len(self.acknowledged) >= count

    def _send(self, names: Sequence[bytes]) -> None:
        """The same bytes until they are acknowledged."""
        body, last = uploads.encode_batch([self.made[name].data for name in names]), end()
        with Remote(self.stage.adserver.address) as remote:
            while True:
                try:
                    data = remote.post("/v2/reports", body, uploads.CONTENT_TYPE)
                    answers = uploads.decode_answers(data, len(names))
                    if Verdict.LATER not in {each.outcome for each in answers}:
                        break
                    raise ServiceAway("the ad server does not have the document yet")
                except ServiceAway:
                    if time.monotonic() > last:
                        raise
                    time.sleep(0.02)
        if any(each.outcome is Verdict.REFUSED for each in answers):
            raise Broken(f"a report was refused: {answers}")
        self.acknowledged.update(names)

    def valid(self, names: Iterable[bytes]) -> frozenset[bytes]:
        """Those that no browser forged."""
        return frozenset(name for name in names if not self.made[name].is_forged)

    def _make(self, count: int) -> list[bytes]:
        document, rng = self.stage.document, self.stage.rng
        campaigns = [CAMPAIGNS[i % 2] for i in range(count)]
        values = np.arange(len(self.made), len(self.made) + count)
        envelope = Envelope(document.layout(Purpose.AGGREGATE), self.stage.sealing_keys())
        shown = columns.aggregate_columns(document.measure, [campaigns], count)
        secrets = document.measure.lift([values], np.ones(count, np.bool_))
        hours = [hour_of(SystemClock().now())] * count
        proof = validity.prove(secrets, document.measure, rng)
        forged = values % FORGED == FORGED // 2
        secrets[forged, 1] = BILLION
        made = batch.seal_proved(envelope, 0, shown, np.concatenate([secrets, proof], axis=1), hours, rng)
        names = [envelope.layout.head(data).id for data in made]
        true = zip(campaigns, values.tolist(), forged.tolist(), strict=True)
        for name, data, own in zip(names, made, true, strict=True):
            self.made[name] = Made(data, document.digest, *own)
        return names
