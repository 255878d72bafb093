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
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from maskedlark.compute.settings import open_engine
from maskedlark.errors import MaskedLarkError
from maskedlark.helper import service
from tests.integration import engine_life
from tests.integration.engine_fixtures import LONG, cluster, compute, copied, expected, prepared
from tests.integration.engine_life import Answers
from tests.integration.faults import FaultyEngine
from tests.unit.compute.ray_nodes import ROOT, RayNodes, ray_nodes

__all__ = ["cluster", "copied", "expected", "prepared"]

DURING = ("train-chunk-1", "train-freeze", "checked-chunk", "sums", "cells-hidden", "step-1")
"""Ingest, freezing, a chunk whose numbers are published, queries, and a step of a training."""
BRIEFLY = ("train-freeze", "step-1")
"""Where every restart takes long."""
ON_NODES = ("train-chunk-1", "train-freeze", "sums", "step-1")
"""Where it takes Ray many seconds to notice each."""


def killed_workers(monkeypatch: pytest.MonkeyPatch, folder: Path, during: Sequence[str]) -> None:
    """Lives in this process have a worker killed at each of these requests, from now on."""
    monkeypatch.setattr(service, "open_engine", open_engine)  # To be put back afterwards.
    FaultyEngine.install(folder, dict.fromkeys(during, "worker"))


@pytest.mark.parametrize(
    ("named", "during"),
    [
        pytest.param("local-2", DURING[1:], marks=LONG),
        pytest.param("ray-2", DURING, marks=LONG),
    ],
)
def test_workers_that_are_killed_change_nothing(request, monkeypatch, named, during, copied, expected):
    killed_workers(monkeypatch, copied, during)
    assert engine_life.led(copied, compute(request, named)) == expected
    assert {path.name for path in copied.glob("fault-*")} == {f"fault-{name}" for name in during}


@LONG
def test_actors_that_are_killed_change_nothing_over_a_server(
    request, monkeypatch, copied, expected, postgresql_url
):
    killed_workers(monkeypatch, copied, DURING)
    assert engine_life.led(copied, compute(request, "ray-2"), postgresql_url) == expected
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
@pytest.mark.parametrize(("named", "during"), [("serial", DURING), ("local-2", DURING), ("ray-2", BRIEFLY)])
def test_a_helper_that_is_killed_goes_on_over_a_server(
    request, named, during, copied, expected, postgresql_url
):
    given = {"faults": dict.fromkeys(during, "helper"), "compute": compute(request, named)}
    ended = [lived(copied, **given, database=postgresql_url) for _ in (*during, "last")]
    assert ended == [-signal.SIGKILL] * len(during) + [0]
    assert answers(copied) == expected


def during_each(
    names: Sequence[str], folder: Path, led: threading.Thread, cut: Callable[[str], None]
) -> None:
    """Do something while a worker is at each of these requests, given its node; then let it go on."""
    for name in names:
        cut(waited_for(folder / f"fault-{name}", led))
        (folder / f"fault-{name}.go").touch()


def waited_for(mark: Path, led: threading.Thread) -> str:
    """What a worker writes when it is at a request: the node that it is on."""
    while not mark.exists():
        assert led.is_alive(), mark.name
        time.sleep(0.02)
    return mark.read_text()


@LONG
@pytest.mark.parametrize(("database", "during"), [(None, ON_NODES), ("postgresql_url", BRIEFLY)])
def test_nodes_that_are_lost_change_nothing(request, monkeypatch, copied, expected, database, during):
    """During every request the node that is at it is lost, and a new one comes."""
    url = database and request.getfixturevalue(database)
    with ray_nodes(3, cpus=3, head_cpus=0) as made:
        made.let_in(monkeypatch)
        monkeypatch.setattr(service, "open_engine", open_engine)
        FaultyEngine.install(copied, dict.fromkeys(during, "outside"))
        given = compute_on(made, copied) | {"workers": 6}
        found: list[Answers] = []

        def lead() -> None:
            found.append(engine_life.led(copied, given, url))

        led = threading.Thread(target=lead)
        led.start()

        lost: list[str] = []

        def cut(node: str) -> None:
            lost.append(made.remove_node(node))
            assert lost[-1] == node, "the one that is at it, and never the head"
            made.add_node()

        during_each(during, copied, led, cut)
        led.join()
    assert found == [expected]
    assert len({*lost}) == len(during)


@LONG
@pytest.mark.parametrize(
    ("during", "database"),
    [*((each, None) for each in (*ON_NODES, "cells-hidden")), ("step-1", "postgresql_url")],
)
def test_a_head_that_is_lost_wastes_no_charge(request, monkeypatch, copied, expected, during, database):
    """The request fails, says that it may be sent again, and is answered by the next cluster."""
    url = database and request.getfixturevalue(database)
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "3")
    with ray_nodes(1, cpus=2) as first:
        first.let_in(monkeypatch)
        given = {"compute": compute_on(first, copied), "database": url}
        process = threading.Thread(target=lived_anyhow, args=(copied, {during: "outside"}, given))
        process.start()
        waited_for(copied / f"fault-{during}", process)
        first.kill_head()
    process.join()
    (copied / f"fault-{during}.go").touch()
    with ray_nodes(1, cpus=2) as second:
        second.let_in(monkeypatch)
        assert lived(copied, {}, compute=compute_on(second, copied), database=url) == 0
    assert answers(copied) == expected


@LONG
def test_a_helper_that_outlives_the_head_goes_on_with_the_next(monkeypatch, copied, expected):
    """The same helper: its request fails, a head comes back at the same address, and it goes on."""
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "3")
    monkeypatch.setattr(service, "open_engine", open_engine)
    FaultyEngine.install(copied, {"step-1": "outside"})
    rng, refused = engine_life.Repeated(), []
    with ExitStack() as stack:
        with ray_nodes(1, cpus=2) as first:
            first.let_in(monkeypatch)
            made = stack.enter_context(engine_life.running(copied, rng, compute_on(first, copied), None))
            life = engine_life.Life(made, rng)

            def lead() -> None:
                with pytest.raises(MaskedLarkError, match="send the same request again") as raised:
                    life.lead("")
                refused.append(raised.value)

            led = threading.Thread(target=lead)
            led.start()
            waited_for(copied / "fault-step-1", led)
            first.kill_head()
            led.join()
        assert len(refused) == 1
        (copied / "fault-step-1.go").touch()
        with ray_nodes(1, cpus=2, address=first.address, token=first.token):
            assert life.lead("") == expected
            stack.close()


def compute_on(made: RayNodes, folder: Path) -> dict[str, Any]:
    return {
        "engine": "ray",
        "workers": 2,
        "address": made.address,
        "shard_bytes": engine_life.SHARD_BYTES,
        "storage": f"file://{folder}/sealed",
    }


def lived_anyhow(folder: Path, faults: dict[str, str], given: dict[str, Any]) -> None:
    """A life that an error may end."""
    with pytest.raises(AssertionError, match="send the same request again"):
        lived(folder, faults, **given)
