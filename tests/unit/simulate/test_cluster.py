"""All parties on one machine: whatever fails, no process is left."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from maskedlark.adserver.client import Client
from maskedlark.clock import SystemClock
from maskedlark.core.purpose import Purpose
from maskedlark.errors import Expired, InvalidDocument
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.cluster import LocalCluster, local_cluster
from maskedlark.simulate.forked import ForkServer
from maskedlark.simulate.services import Process, free_port
from maskedlark.web.errors import ServiceAway
from maskedlark.wire import uploads

SETTINGS = """
k = 1
[values]
euros = [0, 100]
"""


@pytest.fixture
def started(monkeypatch):
    """Every service that is started."""
    found = []
    fork = ForkServer.fork

    def watched(*given):
        found.append(fork(*given))
        return found[-1]

    monkeypatch.setattr(ForkServer, "fork", watched)
    return found


def test_nothing_is_started_for_settings_that_make_no_document(tmp_path, started):
    with pytest.raises(InvalidDocument, match="k"), local_cluster(tmp_path, "k = 0", SystemRandomness(), 2):
        pytest.fail("there is no such document")
    assert started == []


def test_nothing_runs_on_when_a_document_cannot_be_published(tmp_path, started):
    over = f"not_after = 1\n{SETTINGS}"
    with pytest.raises(Expired), local_cluster(tmp_path, over, SystemRandomness(), 2):
        pytest.fail("such a document is not published")
    assert len(started) == 3
    assert all(each.returncode is not None for each in started)


@contextmanager
def alone(port: int) -> Iterator[LocalCluster]:
    """A stage on which nothing runs, whose ad server would be at this port."""
    nothing = cast(Any, None)
    with httpx.Client() as http:
        adserver, rng = Process([], port), SystemRandomness()
        yield LocalCluster(Path(), "ads.example", {}, {}, nothing, nothing, adserver, (), nothing, http, rng)


class Takes(BaseHTTPRequestHandler):
    """An ad server that stores every report, or is busy."""

    protocol_version = "HTTP/1.1"
    status, connections, later = 200, 0, 0

    def setup(self) -> None:
        super().setup()
        type(self).connections += 1

    def do_POST(self) -> None:
        reports = uploads.decode_batch(self.rfile.read(int(self.headers["content-length"])), 9, 9)
        outcome = "later" if self.later > 0 else "stored"
        type(self).later -= 1
        answer = json.dumps({"answers": [{"outcome": outcome} for _ in reports]}).encode()
        self.send_response(self.status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Not on standard error."""


@pytest.fixture
def takes():
    class Counted(Takes):
        """With a count of its own."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Counted) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with alone(server.server_port) as made:
            yield made, Counted
        server.shutdown()


def test_what_comes_before_its_document_is_sent_again(takes):
    made, adserver = takes
    adserver.later = 2
    assert made.upload([[b"1", b"2"], [b"3"]]) == 3
    assert adserver.later == -2


def test_all_uploads_share_a_connection(takes):
    made, adserver = takes
    assert [made.upload([[b"1", b"2"], [b"3"]]), made.upload([[b"4"]])] == [3, 1]
    assert adserver.connections == 1


def test_an_ad_server_that_is_away_is_said_to_be(takes):
    with alone(free_port()) as made, pytest.raises(ServiceAway):
        made.upload([[b"1"]])
    made, adserver = takes
    adserver.status = 503
    with pytest.raises(ServiceAway):
        made.upload([[b"1"]])


def test_datasets_are_selected_when_the_second_is_over_and_sent_when_all_are():
    did: list[tuple[str, ...]] = []

    class RecordingClient:
        """An ad server's client that only records what it is asked to do."""

        def select(self, name, start, end, purpose):
            assert start == 0
            assert begun < end <= SystemClock().now(), "reports that were handed in are all in it"
            did.append(("select", name, purpose))

        def send(self, name):
            did.append(("send", name))
            return f"frozen {name}"

    begun, names = SystemClock().now(), {Purpose.AGGREGATE: "sums", Purpose.TRAIN: "model"}
    with alone(1) as made:
        frozen: object = made.freeze(cast(Client, RecordingClient()), names)
    assert frozen == {Purpose.AGGREGATE: "frozen sums", Purpose.TRAIN: "frozen model"}
    selected = [("select", name, purpose) for purpose, name in names.items()]
    assert did == [*selected, ("send", "sums"), ("send", "model")]


@pytest.mark.long
def test_over_a_folder_of_before_it_carries_on_also_where_a_port_is_taken(tmp_path):
    rng = SystemRandomness()
    with local_cluster(tmp_path, SETTINGS, rng) as made:
        digest, ports = made.document.digest, [helper.process.port for helper in made.helpers]
    with local_cluster(tmp_path, SETTINGS, rng) as made:
        assert [each.digest for each in made.documents] == [digest], "nothing was published again"
        assert [helper.process.port for helper in made.helpers] == ports
        assert made.ended() == []
    with socket.create_server(("127.0.0.1", ports[0])), local_cluster(tmp_path, SETTINGS, rng) as made:
        moved, stayed = made.helpers
        assert moved.process.port != ports[0]
        assert stayed.process.port == ports[1]
        found = made.parameters.keys(moved.name, moved.identity.verifying)
        assert found.address == moved.process.address, "browsers and ad server find it"
    with local_cluster(tmp_path, SETTINGS.replace("100", "200"), rng) as made:
        assert [each.version for each in made.documents] == [1, 2]
        os.kill(made.helpers[0].process.pid, signal.SIGKILL)
        while not made.ended():
            time.sleep(0.01)
        assert made.ended() == ["helper-0"]
