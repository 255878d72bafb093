"""A folder whose datasets answer nothing any more. That reports are frozen is in tests/integration."""

import threading
import time
from contextlib import contextmanager
from itertools import repeat
from types import SimpleNamespace
from typing import Any, cast

import pytest

from maskedlark.adserver.client import Client
from maskedlark.adserver.dataset_store import Dataset, DatasetState
from maskedlark.adserver.report_store import Selection
from maskedlark.core.purpose import Purpose
from maskedlark.simulate import reporting as reporting_module
from maskedlark.simulate.errors import OtherSimulation
from maskedlark.simulate.reporting import DATASETS, Reporting
from maskedlark.web.errors import ServiceAway


def run(tmp_path, state: DatasetState) -> dict[Purpose, Dataset]:
    """Over a folder of before, with a dataset to train in this state."""
    document = SimpleNamespace(purposes=lambda: [Purpose.TRAIN])
    selection = Selection(Purpose.TRAIN, b"document", 0, 1)
    there = Dataset(DATASETS[Purpose.TRAIN], selection, 5, state)
    cluster = cast(Any, SimpleNamespace(document=document, folder=tmp_path))
    return Reporting(cluster, cast(Any, None), "tag").run(
        cast(Client, SimpleNamespace(datasets=lambda: [there]))
    )


def test_what_is_frozen_stays(tmp_path):
    assert run(tmp_path, DatasetState.FROZEN)[Purpose.TRAIN].reports == 5


@pytest.mark.parametrize("state", [DatasetState.ABORTED, DatasetState.LOST, DatasetState.EXPIRED])
def test_what_is_neither_frozen_nor_selected_is_refused(tmp_path, state):
    with pytest.raises(OtherSimulation, match=f"dataset trained is {state}: give another folder"):
        run(tmp_path, state)


class Reports:
    """A cluster whose browsers report, and whose helpers freeze what was selected."""

    def __init__(self, folder, upload):
        self.folder, self.upload = folder, upload
        self.document = SimpleNamespace(purposes=lambda: [Purpose.AGGREGATE, Purpose.TRAIN])
        self.selected, self.sent = [], []
        self.trained = [[b"report"]]

    def browsers(self, _):
        return SimpleNamespace(measure=lambda *_: iter([[b"report"]]), train=lambda *_: iter(self.trained))

    def select(self, _, named):
        selection = Selection(Purpose.TRAIN, b"document", 0, 1)
        self.selected += [Dataset(name, selection, 5, DatasetState.SELECTED) for name in named.values()]

    def datasets(self):
        return self.selected

    def send(self, name, progress):
        progress("helper-0", 1, 1)
        self.sent.append(name)
        return next(each for each in self.selected if each.name == name)

    def reporting(self):
        users = SimpleNamespace(size=1, keys={}, values={}, features=0, label=0)
        return Reporting(cast(Any, self), cast(Any, users), "tag")


def test_who_interrupts_does_not_wait_until_all_reports_are_made(tmp_path):
    """The other thread would make reports for ever; only those of the first purpose are complete."""

    def interrupt(_):
        while not (tmp_path / "reports" / "train.part" / "000003").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    cluster: Any = Reports(tmp_path, interrupt)
    cluster.trained = repeat([b"report"])
    with pytest.raises(KeyboardInterrupt):
        cluster.reporting().run(cluster)
    assert [each.name for each in sorted((tmp_path / "reports").iterdir())] == ["aggregate", "train.part"]


@pytest.mark.parametrize("failing", [1, 2])
def test_an_upload_that_fails_is_raised_and_the_same_again_carries_on(tmp_path, failing):
    uploaded = []

    def upload(reports):
        uploaded.append(reports)
        if len(uploaded) == failing:
            raise ServiceAway("the ad server is away")

    cluster: Any = Reports(tmp_path, upload)
    reporting = cluster.reporting()
    with pytest.raises(ServiceAway):
        reporting.run(cluster)
    before = [*cluster.sent]
    assert before in ([], ["measured"][: failing - 1])  # What is under way is stopped, and sent again.
    reporting.run(cluster)
    assert sorted(cluster.sent[len(before) :]) == ["measured", "trained"]
    assert not (tmp_path / "reports").exists()


def test_progress_is_told_by_one_thread_at_a_time(tmp_path, monkeypatch):
    """The first call waits a moment for another to come in."""
    inside, another, twice = threading.Lock(), threading.Event(), []

    @contextmanager
    def bars(*_, **__):
        def progress(*said):
            if not inside.acquire(blocking=False):
                twice.append(said)
                another.set()
                return
            another.wait(0.2)
            inside.release()

        yield progress

    monkeypatch.setattr(reporting_module, "bars", bars)
    cluster: Any = Reports(tmp_path, lambda _: None)
    cluster.reporting().run(cluster)
    assert twice == []
    assert cluster.sent == ["measured", "trained"]
