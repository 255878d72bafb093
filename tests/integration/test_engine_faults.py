"""Whatever ends during ingest, freezing, a query or a step: the same bytes, one charge, and no report lost.

The life is that of `engine_life`; what it comes to, receipts included, is compared with one without faults.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from maskedlark.compute.settings import open_engine
from maskedlark.helper import service
from tests.integration import engine_life
from tests.integration.engine_fixtures import LONG, cluster, compute, copied, expected, prepared
from tests.integration.engine_life import Answers
from tests.integration.faults import FaultyEngine
from tests.unit.compute.ray_nodes import ROOT, RayNodes, ray_nodes

__all__ = ["cluster", "copied", "expected", "prepared"]

DURING = ("train-chunk-1", "train-freeze", "sums", "cells-hidden", "step-1")
"""Ingest, freezing, a query, one over a hidden part, and a step of a training."""


@pytest.mark.parametrize("named", ["local-2", pytest.param("ray-2", marks=LONG)])
def test_workers_that_are_killed_change_nothing(request, monkeypatch, named, copied, expected):
    monkeypatch.setattr(service, "open_engine", open_engine)  # To be put back afterwards.
    FaultyEngine.install(copied, dict.fromkeys(DURING, "worker"))
    assert engine_life.led(copied, compute(request, named)) == expected
    assert {path.name for path in copied.glob("fault-*")} == {f"fault-{name}" for name in DURING}


def lived(folder: Path, faults: dict[str, str], **given: Any) -> int:
    """A life in a process of its own. Returns its exit status."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    module = "tests.integration.engine_life"
    done = subprocess.run(
        [sys.executable, "-m", module, str(folder), json.dumps(given | {"faults": faults})],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def answers(folder: Path) -> Answers:
    return {path.name: path.read_bytes() for path in (folder / "answers").iterdir()}


@pytest.mark.parametrize(
    ("named", "during"),
    [
        ("local-2", ("step-1",)),
        pytest.param("serial", DURING, marks=LONG),
        pytest.param("local-2", DURING, marks=LONG),
        pytest.param("ray-2", DURING, marks=LONG),
    ],
)
def test_a_helper_that_is_killed_goes_on_where_it_was(request, named, during, copied, expected):
    given = {"faults": dict.fromkeys(during, "helper"), "compute": compute(request, named)}
    ended = [lived(copied, **given) for _ in (*during, "last")]
    assert ended == [-signal.SIGKILL] * len(during) + [0]
    assert answers(copied) == expected


@LONG
@pytest.mark.parametrize("named", ["serial", "local-2"])
def test_a_helper_that_is_killed_goes_on_over_a_server(request, named, copied, expected, postgresql_url):
    given = {"faults": dict.fromkeys(DURING, "helper"), "compute": compute(request, named)}
    ended = [lived(copied, **given, database=postgresql_url) for _ in (*DURING, "last")]
    assert ended == [-signal.SIGKILL] * len(DURING) + [0]
    assert answers(copied) == expected


def during_each(folder: Path, led: threading.Thread, cut: Any) -> None:
    """Do something while a worker is at each of these requests, then let it go on."""
    for name in DURING:
        mark = folder / f"fault-{name}"
        while not mark.exists():
            assert led.is_alive(), name
            time.sleep(0.02)
        cut()
        mark.with_suffix(".go").touch()


@LONG
def test_nodes_that_are_lost_change_nothing(monkeypatch, copied, expected):
    """A node is lost during every request, and a new one comes."""
    with ray_nodes(3, cpus=2) as made:
        monkeypatch.setenv("RAY_AUTH_TOKEN", made.token)
        monkeypatch.setattr(service, "open_engine", open_engine)
        FaultyEngine.install(copied, dict.fromkeys(DURING, "outside"))
        given = {"engine": "ray", "workers": 6, "address": made.address}
        found: list[Answers] = []

        def lead() -> None:
            found.append(engine_life.led(copied, given | {"shard_bytes": engine_life.SHARD_BYTES}))

        led = threading.Thread(target=lead)
        led.start()

        def cut() -> None:
            made.remove_node()
            made.add_node()

        during_each(copied, led, cut)
        led.join()
    assert found == [expected]


@LONG
@pytest.mark.parametrize("during", DURING)
def test_a_head_that_is_lost_wastes_no_charge(monkeypatch, copied, expected, during):
    """The request fails, says that it may be sent again, and is answered by the next cluster."""
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "3")
    with ray_nodes(1, cpus=2) as first:
        monkeypatch.setenv("RAY_AUTH_TOKEN", first.token)
        given = compute_on(first)
        process = threading.Thread(target=lived_anyhow, args=(copied, {during: "outside"}, given))
        process.start()
        mark = copied / f"fault-{during}"
        while not mark.exists():
            assert process.is_alive()
            time.sleep(0.02)
        first.kill_head()
    process.join()
    mark.with_suffix(".go").touch()
    with ray_nodes(1, cpus=2) as second:
        monkeypatch.setenv("RAY_AUTH_TOKEN", second.token)
        assert lived(copied, {}, compute=compute_on(second)) == 0
    assert answers(copied) == expected


def compute_on(made: RayNodes) -> dict[str, Any]:
    return {
        "engine": "ray",
        "workers": 2,
        "address": made.address,
        "shard_bytes": engine_life.SHARD_BYTES,
    }


def lived_anyhow(folder: Path, faults: dict[str, str], given: dict[str, Any]) -> None:
    """A life that an error may end."""
    with pytest.raises(AssertionError, match="send the same request again"):
        lived(folder, faults, compute=given)
