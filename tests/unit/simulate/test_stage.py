"""All parties on one machine: whatever fails, no process is left."""

import subprocess

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
