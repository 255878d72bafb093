"""A folder whose datasets answer nothing any more. That reports are frozen is in tests/integration."""

import time
from itertools import repeat
from types import SimpleNamespace
from typing import Any, cast

import pytest

from maskedlark.adserver.client import Client
from maskedlark.adserver.dataset_store import Dataset, DatasetState
from maskedlark.adserver.report_store import Selection
from maskedlark.core.purpose import Purpose
from maskedlark.simulate.errors import OtherSimulation
from maskedlark.simulate.reporting import DATASETS, Reporting


def run(tmp_path, state: DatasetState) -> dict[Purpose, Dataset]:
    """Over a folder of before, with a dataset to train in this state."""
    document = SimpleNamespace(purposes=lambda: [Purpose.TRAIN])
    selection = Selection(Purpose.TRAIN, b"document", 0, 1)
    there = Dataset(DATASETS[Purpose.TRAIN], selection, 5, state)
    scene = cast(Any, SimpleNamespace(document=document, folder=tmp_path))
    return Reporting(scene, cast(Any, None), "tag").run(
        cast(Client, SimpleNamespace(datasets=lambda: [there]))
    )


def test_what_is_frozen_stays(tmp_path):
    assert run(tmp_path, DatasetState.FROZEN)[Purpose.TRAIN].reports == 5


@pytest.mark.parametrize("state", [DatasetState.ABORTED, DatasetState.LOST, DatasetState.EXPIRED])
def test_what_is_neither_frozen_nor_selected_is_refused(tmp_path, state):
    with pytest.raises(OtherSimulation, match=f"dataset trained is {state}: give another folder"):
        run(tmp_path, state)


def test_who_interrupts_does_not_wait_until_all_reports_are_made(tmp_path):
    """The other thread would make reports for ever; only those of the first purpose are complete."""
    users: Any = SimpleNamespace(size=1, keys={}, values={}, features=0, label=0)
    browsers = SimpleNamespace(measure=lambda *_: iter([[b"report"]]), train=lambda *_: repeat([b"report"]))

    def interrupt(_):
        while not (tmp_path / "reports" / "train.part" / "000003").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    document = SimpleNamespace(purposes=lambda: [Purpose.AGGREGATE, Purpose.TRAIN])
    scene: Any = SimpleNamespace(
        document=document, folder=tmp_path, browsers=lambda _: browsers, upload=interrupt
    )
    with pytest.raises(KeyboardInterrupt):
        Reporting(scene, users, "tag").run(cast(Client, SimpleNamespace(datasets=list)))
    assert [each.name for each in sorted((tmp_path / "reports").iterdir())] == ["aggregate", "train.part"]
