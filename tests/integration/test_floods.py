"""A stranger who connects, or sends junk, without end: others are served, and nothing grows without bound."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from maskedlark.clock import SystemClock
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.cluster import LocalCluster, local_cluster
from maskedlark.web import request_signature
from maskedlark.wire import uploads
from maskedlark.wire.datasets import CHUNK_TYPE
from tests.integration.flooding import flooded
from tests.integration.hostile import Target, connect, head, status

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
