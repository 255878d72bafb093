"""All parties on one machine: whatever fails, no process is left."""

import os
import signal
import socket
import subprocess
import time

import pytest

from maskedlark.errors import MaskedLarkError
from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.stage import stage


def test_nothing_runs_on_when_a_document_cannot_be_published(tmp_path, monkeypatch):
    started = []

    class Watched(subprocess.Popen[str]):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            started.append(self)

    monkeypatch.setattr("maskedlark.simulate.services.subprocess.Popen", Watched)
    with pytest.raises(MaskedLarkError), stage(tmp_path, "k = 0", SystemRandomness(), 2):
        pytest.fail("such a document is not published")
    assert len(started) == 4
    assert all(each.returncode is not None for each in started)


SETTINGS = """
k = 1
[values]
euros = [0, 100]
"""


@pytest.mark.long
def test_over_a_folder_of_before_it_carries_on_also_where_a_port_is_taken(tmp_path):
    rng = SystemRandomness()
    with stage(tmp_path, SETTINGS, rng) as made:
        digest, ports = made.document.digest, [helper.process.port for helper in made.helpers]
    with stage(tmp_path, SETTINGS, rng) as made:
        assert [each.digest for each in made.documents] == [digest], "nothing was published again"
        assert [helper.process.port for helper in made.helpers] == ports
        assert made.ended() == []
    with socket.create_server(("127.0.0.1", ports[0])), stage(tmp_path, SETTINGS, rng) as made:
        moved, stayed = made.helpers
        assert moved.process.port != ports[0]
        assert stayed.process.port == ports[1]
        found = made.parameters.keys(moved.name, moved.identity.verifying)
        assert found.address == moved.process.address, "browsers and ad server find it"
    with stage(tmp_path, SETTINGS.replace("100", "200"), rng) as made:
        assert [each.version for each in made.documents] == [1, 2]
        os.kill(made.helpers[0].process.pid, signal.SIGKILL)
        while not made.ended():
            time.sleep(0.01)
        assert made.ended() == ["helper-0"]
