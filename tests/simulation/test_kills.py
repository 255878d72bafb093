"""Real processes, really killed: at every stage of a report's way, by schedules that are drawn from seeds.

A schedule that fails says its seed and its steps. `MASKEDLARK_KILLS_SEED=7 pytest …/test_kills.py -k quick`
runs that one (moments inside processes are never quite the same again).
"""

import os
import time
from collections import Counter

import pytest

from tests.simulation.kills.running import SEED, playing, run
from tests.simulation.kills.waiting import Broken

SCHEDULES, STAGES = 50, 10
QUICK = 1562
"""A kill at every stage."""
ON_A_SERVER = 5
"""The stage whose ad server keeps its reports in PostgreSQL."""
SECOND_POINT = "tests.simulation.kills.second_point"
"""By its name: a process that imports it has its mistake."""
TOTALS: Counter[str] = Counter()


def test_a_quick_schedule(tmp_path, capsys):
    with playing(tmp_path, 2, 1) as (play, invariants):
        run(play, invariants, int(os.environ.get(SEED, QUICK)))
    with capsys.disabled():
        print(f" kills {dict(play.kills)}, {play.published.repeated} numbers again", end=" ")


def sent_again_after_kills(play):
    """Reports that were checked, taken back, and sent again to helpers that were killed meanwhile."""
    play.upload(24, [])
    play.select("d")
    play.kill_client("client", "send", "d", "/checks?", 2, 0.0)
    for helper in play.stage.helpers:
        play.kill("checks", helper.process)
    play.settle()
    play.abort("d")
    play.select("d")
    play.send("d")


@pytest.mark.long
def test_a_helper_that_publishes_other_numbers_after_a_kill_is_found(tmp_path):
    """Planted: else the schedules might compare nothing."""
    with (
        playing(tmp_path, 2, 1, functions=SECOND_POINT) as (play, _),
        pytest.raises(Broken, match="published other numbers"),
    ):
        sent_again_after_kills(play)


@pytest.mark.long
@pytest.mark.parametrize("number", range(STAGES))
def test_many_schedules(number, tmp_path, capsys, request):
    each = SCHEDULES // STAGES
    began = time.monotonic()
    database = request.getfixturevalue("postgresql_url") if number == ON_A_SERVER else None
    with playing(tmp_path, 3 if number % 4 == 3 else 2, 1 + number % 2, database) as (play, invariants):
        for seed in range(100 + number * each, 100 + (number + 1) * each):
            run(play, invariants, seed)
    taken = (time.monotonic() - began) / each
    TOTALS.update(play.kills, schedules=each)
    with capsys.disabled():
        print(f" {each} schedules of {taken:.1f} s, so far {dict(TOTALS)}", end=" ")
