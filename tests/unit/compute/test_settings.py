"""The `[compute]` table, and the engines that need no cluster to be refused or made."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from maskedlark.compute import ray_connection, settings
from maskedlark.compute.engine import SerialEngine
from maskedlark.compute.errors import ClusterTaken, NotEncrypted, RayMissing
from maskedlark.compute.local import LocalEngine
from maskedlark.compute.ray_connection import Cluster, connect
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


@pytest.mark.parametrize("tls", ["", "0", "yes"])
@pytest.mark.parametrize("host", ["10.0.0.5", "head.example", "[fe80::1]", "localhost.example", "0.0.0.0"])
def test_a_cluster_on_other_machines_without_tls_is_refused(monkeypatch, host, tls):
    monkeypatch.setenv("RAY_USE_TLS", tls)
    with pytest.raises(NotEncrypted, match="in the clear: start Ray, and the helper, with RAY_USE_TLS=1"):
        connect(Cluster(f"{host}:6379", 1, False, "helper-0"))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_this_machine_needs_no_tls(monkeypatch, host):
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    ray_connection._check_encrypted([host])


@pytest.mark.parametrize("tls", ["1", "true", "True"])
def test_with_tls_all_machines_may_be_used(monkeypatch, tls):
    monkeypatch.setenv("RAY_USE_TLS", tls)
    ray_connection._check_encrypted(["10.0.0.5"])


def test_a_node_elsewhere_is_refused_whatever_the_address_of_the_head(monkeypatch):
    """Ray, as far as connecting to a head on this machine goes."""
    ended: list[bool] = []
    nodes = [{"NodeManagerAddress": each, "Alive": True} for each in ("127.0.0.1", "10.0.0.6")]
    away = {"NodeManagerAddress": "10.0.0.7", "Alive": False}
    ray: Any = ModuleType("ray")
    vars(ray).update(init=lambda **_: None, nodes=lambda: [away, *nodes], shutdown=lambda: ended.append(True))
    store = ModuleType("ray.experimental.internal_kv")
    experimental: Any = ModuleType("ray.experimental")
    experimental.internal_kv = store
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.experimental", experimental)
    monkeypatch.setattr(ray_connection, "_reach", lambda _: None)
    monkeypatch.setattr(ray_connection, "_authenticate", lambda *_: None)
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with pytest.raises(NotEncrypted, match=r"to 10\.0\.0\.6 in the clear"):
        connect(Cluster("127.0.0.1:6379", 1, False, "helper-0"))
    assert ended == [True]


def test_a_cluster_works_for_one_identity_whatever_the_name():
    kept: dict[bytes, bytes] = {}

    def put(key, value, overwrite, **_):
        if overwrite or key not in kept:
            kept[key] = value

    store = SimpleNamespace(_internal_kv_put=put, _internal_kv_get=lambda key, **_: kept[key])
    mine, other = f"helper-0 {'a' * 64}", f"helper-0 {'b' * 64}"
    ray_connection._claim(store, mine)
    ray_connection._claim(store, mine)
    with pytest.raises(ClusterTaken, match=f"another helper uses this cluster, {mine}: "):
        ray_connection._claim(store, other)
