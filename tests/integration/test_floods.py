"""A stranger who connects, or sends junk, without end: others are served, and nothing grows without bound."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from maskedlark.browser.upload import Progress
from maskedlark.clock import SystemClock, hour_of
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.cluster import LocalCluster, local_cluster
from maskedlark.web import request_signature
from maskedlark.wire import uploads
from maskedlark.wire.datasets import CHUNK_TYPE
from tests.integration.flooding import flooded
from tests.integration.hostile import Target, connect, head, status
from tests.integration.uploading import (
    PATIENCE_S,
    command,
    parameter_service,
    process,
    stored,
    uploader,
    uploading,
    when_empty,
)
from tests.integration.uploading import made as made_reports
from tests.unit.adserver.stored import arrivals
from tests.unit.browser.outbox import MemoryOutbox

SETTINGS = """
keys = ["campaign"]
k = 1
fake_rate = 0.0
budget = {epsilon = 8.0, delta = 0.0}
[values]
bought = [0, 1]
"""
TAKES_S, PIECES = 4.0, 40
BYTES_PER_S = 32_000
"""256 kbit/s."""
RATE, FLOOD_S = 1500, 15


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Iterator[LocalCluster]:
    folder, bodies = tmp_path_factory.mktemp("flood"), "limits.bodies = 64"  # An origin has half of them.
    with local_cluster(folder, SETTINGS, SystemRandomness(), helper_settings=bodies) as found:
        yield found


def slowly(target: Target, body: bytes) -> int | None:
    """Send a body over four seconds; returns the status of the answer, None if the connection is cut."""
    size = -(-len(body) // PIECES)
    with connect(target.address) as link:
        try:
            link.sendall(head(target, f"content-length: {len(body)}"))
            for start in range(0, len(body), size):
                link.sendall(body[start : start + size])
                time.sleep(TAKES_S / PIECES)
        except ConnectionError:
            return None
        return status(link)


def upload(made: LocalCluster) -> int | None:
    batch = uploads.encode_batch([bytes(1000)] * 100)
    headers = {"content-type": uploads.CONTENT_TYPE}
    return slowly(Target(made.adserver.address, "/v2/reports", headers, 0), batch)


def signed_chunk(made: LocalCluster) -> int | None:
    """Signed, and of a dataset that the helper does not have: it says so when all of it was read."""
    path, body = f"/v2/datasets/d/chunks/0?attempt={'0' * 32}", bytes(int(BYTES_PER_S * TAKES_S))
    now, key = SystemClock().now(), made.request_keys[made.origin]
    headers = request_signature.sign("POST", path, CHUNK_TYPE, body, made.origin, "helper-0", now, key)
    return slowly(Target(made.helpers[0].process.address, path, headers, 0), body)


REPORTS_PER_S = 4000
STRICT = f"""
[limits]
address_reports_per_s = {REPORTS_PER_S}
address_bytes_per_s = {8 << 20}
bytes_per_s = {1 << 30}
burst_s = 1
reports_per_s = 100000
"""
BATCH = 1000


def junk(count: int) -> Iterator[bytes]:
    """Uploads of reports that an ad server cannot tell from true ones, each report of an id of its own."""
    (like,) = arrivals(1, hour=hour_of(SystemClock().now()))
    start = len(like.layout.prefix)
    before, after = like.data[:start], like.data[start + 16 :]
    for first in range(0, count, BATCH):
        names = (place.to_bytes(16) for place in range(first, first + BATCH))
        yield uploads.encode_batch([before + name + after for name in names])


@pytest.mark.parametrize("count", [20_000, pytest.param(135_000, marks=pytest.mark.long)])
def test_junk_from_one_address_is_bounded_and_no_other_waits_for_it(tmp_path, count):
    url = f"sqlite:///{tmp_path / 'reports.db'}"
    statuses: Counter[int] = Counter()
    with contextlib.ExitStack() as stack:
        words = command(url, tmp_path, stack.enter_context(parameter_service(tmp_path)))
        with (tmp_path / "adserver.toml").open("a") as settings:
            settings.write(STRICT)
        address, _ = stack.enter_context(process(words))
        client = stack.enter_context(httpx.Client(timeout=60))

        def send(batch: bytes) -> None:
            headers = {"content-type": uploads.CONTENT_TYPE}
            with contextlib.suppress(httpx.WriteError, httpx.ReadError):  # Refused before all was sent.
                answer = client.post(f"{address}/v2/reports", content=batch, headers=headers)
                statuses[answer.status_code] += 1
                if answer.status_code == 429:
                    assert int(answer.headers["retry-after"]) > 0

        begun = time.monotonic()
        with ThreadPoolExecutor(4) as threads:
            flood = [threads.submit(send, each) for each in junk(count)]
            # Somebody at another address meanwhile.
            transport = httpx.HTTPTransport(local_address="127.0.0.2")
            other = stack.enter_context(httpx.Client(transport=transport))
            theirs = MemoryOutbox(made_reports(50, b"theirs"))
            assert uploader(address, other, theirs).send_due() == Progress(50, 0)
            for each in flood:
                each.result()
        taken, lasted = BATCH * statuses[200], time.monotonic() - begun
        assert statuses.keys() == {200, 429}
        # The burst, what each thread had in hand, and the rate.
        assert taken <= REPORTS_PER_S * (1 + lasted) + 4 * BATCH
        # Somebody behind the address that it came from: they are told to come later, and do.
        ours = MemoryOutbox(made_reports(50, b"ours"))
        finished = when_empty(ours)
        with uploading(address, ours):
            assert finished.wait(PATIENCE_S)
        assert not ours.refusals
    print(f"{taken} of {count} junk reports were taken in {lasted:.1f} s")
    assert len(stored(url)) == taken + 100


SENDERS = {"adserver": (upload, 12, 200), "helper": (signed_chunk, 30, 404)}


@pytest.mark.long
@pytest.mark.parametrize("party", SENDERS)
def test_a_flood_of_silent_connections_ends_no_slow_upload(made, party):
    send: Callable[[LocalCluster], int | None]
    send, count, answer = SENDERS[party]
    address = made.adserver.address if party == "adserver" else made.helpers[0].process.address

    def late(place: int) -> int | None:
        time.sleep(1 + (FLOOD_S - TAKES_S - 2) * place / count)  # All begin and end within the flood.
        return send(made)

    with flooded(address, RATE, FLOOD_S) as flood, ThreadPoolExecutor(count) as threads:
        statuses = list(threads.map(late, range(count)))
        connects = int(flood.communicate(timeout=60)[0])
    print(f"{connects / FLOOD_S:.0f} connects per second; {statuses.count(answer)} of {count} finished")
    assert statuses == [answer] * count
    # So many that each place was taken many times over, even on a busy machine.
    assert connects > 300 * FLOOD_S
