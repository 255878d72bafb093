"""A folder whose datasets answer nothing any more. That reports are frozen is in tests/integration."""

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
