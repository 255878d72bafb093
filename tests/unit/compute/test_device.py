"""A device that cannot be computed on is refused at the start, with what to do."""

from contextlib import closing

import pytest
import torch

from maskedlark.compute.device import check_device
from maskedlark.compute.engine import SerialEngine
from maskedlark.compute.errors import UnusableDevice
from maskedlark.compute.local import LocalEngine
from tests.unit.helper.world import world

WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


class Elsewhere(SerialEngine):
    """Workers that have what this process lacks."""

    is_elsewhere = True

    def map(self, *_: object) -> list[str]:  # type: ignore[override]
        return [""]


@WITHOUT_GPU
def test_a_missing_gpu_is_said_before_anything_is_served(tmp_path):
    with (
        pytest.raises(
            UnusableDevice, match=r"^1 of 1 workers cannot compute on cuda \(.*device = \"cpu\" in"
        ),
        world(tmp_path, compute={"engine": "serial", "device": "cuda"}),
    ):
        pytest.fail("it must not start")


@WITHOUT_GPU
@pytest.mark.long
def test_every_worker_is_asked():
    with closing(LocalEngine(2)) as engine, pytest.raises(UnusableDevice, match="2 of 2 workers"):
        check_device(engine, "cuda")


def test_devices_that_compute_exactly_are_taken():
    for device in ("cpu", "cpu:0"):
        check_device(SerialEngine(), device)


def test_a_device_of_workers_elsewhere_need_not_be_here():
    check_device(Elsewhere(), "cuda")
