"""The `[compute]` table, and the engines that need no cluster to be refused or made."""

import pytest
from pydantic import ValidationError

from maskedlark.compute import settings
from maskedlark.compute.engine import SerialEngine
from maskedlark.compute.errors import RayMissing
from maskedlark.compute.local import LocalEngine
from maskedlark.compute.settings import ComputeSettings, open_engine


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"engine": "dask"}, "'local', 'serial' or 'ray'"),
        ({"engine": "ray"}, "needs the cluster's address"),
        ({"address": "10.0.0.5:6379"}, "an address is of a Ray cluster"),
        ({"engine": "ray", "address": "10.0.0.5"}, "should match pattern"),
        ({"engine": "ray", "address": "10.0.0.5:6379"}, "need storage that they reach"),
        ({"engine": "ray", "address": "ray://10.0.0.5:10001"}, "should match pattern"),
        ({"workers": 0}, "greater than or equal to 1"),
        ({"device": "tpu"}, "'cpu' or 'cuda'"),
        ({"worker": 2}, "Extra inputs are not permitted"),
    ],
)
def test_bad_settings_are_refused(given, said):
    with pytest.raises(ValidationError, match=said):
        ComputeSettings(**given)


@pytest.mark.parametrize("address", ["local", "10.0.0.5:6379", "head.example:6379", "[::1]:6379"])
def test_addresses(address):
    assert ComputeSettings(engine="ray", address=address, storage="file:///mnt/0").address == address


def test_a_cluster_of_this_machine_needs_no_storage():
    assert ComputeSettings(engine="ray", address="local").storage is None


def test_every_setting_ends_in_an_example():
    for name, field in ComputeSettings.model_fields.items():
        assert f": {name} = " in (field.description or "")


def test_one_worker_is_this_process():
    assert isinstance(open_engine(ComputeSettings(workers=1), "helper-0"), SerialEngine)
    assert isinstance(open_engine(ComputeSettings(engine="serial", workers=4), "helper-0"), SerialEngine)
    assert isinstance(open_engine(ComputeSettings(workers=3), "helper-0"), LocalEngine)
    assert ComputeSettings().workers >= 1


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(settings, "find_spec", lambda name: None)
    with pytest.raises(RayMissing, match=r"pip install 'maskedlark\[ray\]'"):
        open_engine(ComputeSettings(engine="ray", address="local"), "helper-0")
