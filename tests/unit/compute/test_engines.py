"""The engines that need no cluster; of those that have processes, also how these end."""

import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskedlark.compute.engine import Engine, SerialEngine
from maskedlark.compute.errors import WorkersLost
from maskedlark.compute.local import LocalEngine
from maskedlark.errors import MaskedLarkError
from maskedlark.ledger.errors import BudgetExhausted
from tests.unit.compute import work
from tests.unit.compute.conformance import CHECKS
from tests.unit.compute.processes import are_gone

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module", params=["serial", "local-2", "local-3"])
def engine(request) -> Iterator[Engine]:
    kind, _, workers = request.param.partition("-")
    with closing(SerialEngine() if kind == "serial" else LocalEngine(int(workers))) as made:
        yield made


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_engine_conforms(engine, check, tmp_path):
    check(engine, tmp_path)


@given(common=st.integers(), items=st.lists(st.integers(), max_size=20))
def test_results_are_those_of_the_twin(engine, common, items):
    assert engine.map(work.multiply, common, items) == SerialEngine().map(work.multiply, common, items)


def test_processes_start_on_demand_and_end_on_close():
    engine = LocalEngine(3)
    assert {engine.run(work.nap, 0) for _ in range(4)} == {engine.run(work.nap, 0)}
    processes = engine.map(work.process_of, None, range(3))
    engine.close()
    assert are_gone(processes)
    with pytest.raises(WorkersLost, match="send the same request again"):
        engine.run(work.double, 1)


def test_who_waits_when_the_engine_is_closed_is_told(tmp_path):
    engine, raised = LocalEngine(2), []

    def wait() -> None:
        try:
            engine.map(work.wait_for, tmp_path, range(8))
        except WorkersLost as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while len([*tmp_path.iterdir()]) < 2:
        time.sleep(0.02)
    closing = threading.Thread(target=engine.close)
    closing.start()
    (tmp_path / "go").touch()
    thread.join()
    closing.join()
    assert len(raised) == 1
    assert not (tmp_path / "begun-7").exists()


def test_a_busy_worker_is_not_chosen(tmp_path):
    with closing(LocalEngine(2)) as engine:
        wait = partial(work.wait_for, tmp_path)
        busy = threading.Thread(target=engine.run, args=(wait, 0))
        busy.start()
        while not (tmp_path / "begun-0").exists():
            time.sleep(0.02)
        assert engine.run(work.double, 1) == 2
        (tmp_path / "go").touch()
        busy.join()


def test_workers_leave_interrupts_to_the_helper():
    with closing(LocalEngine(2)) as engine:
        before = engine.map(work.process_of, None, range(2))
        for process in before:
            os.kill(process, signal.SIGINT)
        assert engine.map(work.process_of, None, range(2)) == before


def test_nothing_of_an_item_is_logged(caplog, tmp_path):
    caplog.set_level(logging.DEBUG)
    with closing(LocalEngine(2)) as engine, pytest.raises(WorkersLost):
        engine.map(work.end_always, work.SECRET, [1, 2])
    assert "its item is run again" in caplog.text
    assert work.SECRET not in caplog.text


_PARENT = """
import os
from maskedlark.compute.local import LocalEngine
from tests.unit.compute import work
if __name__ == "__main__":
    print(*LocalEngine(2).map(work.process_of, None, range(2)), flush=True)
    os.kill(os.getpid(), 9)
"""


def test_workers_end_with_a_helper_that_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, script], stdout=subprocess.PIPE, check=False, env={**os.environ, "PYTHONPATH": paths}
    )
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.split()) == 2
    assert are_gone(map(int, done.stdout.split()))


@pytest.mark.parametrize("error", [BudgetExhausted(1.0, 2.0, None), MaskedLarkError("plain", 2)])
def test_errors_are_pickled_by_content(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.args, vars(again)) == (type(error), error.args, vars(error))
    assert again.facts() == error.facts()
