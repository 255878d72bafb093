"""Real processes, really killed: at every stage of a report's way, by schedules that are drawn from seeds.

A schedule that fails says its seed and its steps. `MASKEDLARK_KILLS_SEED=7 pytest …/test_kills.py -k quick`
runs that one (moments inside processes are never quite the same again).
"""

import os
import time
from collections import Counter

import pytest

from tests.simulation.kills.running import SEED, playing, run

SCHEDULES, STAGES = 50, 10
QUICK = 1562
"""A kill at every stage."""
ON_A_SERVER = 5
"""The stage whose ad server keeps its reports in PostgreSQL."""
TOTALS: Counter[str] = Counter()


def test_a_quick_schedule(tmp_path, capsys):
    with playing(tmp_path, 2, 1) as (play, invariants):
        run(play, invariants, int(os.environ.get(SEED, QUICK)))
    with capsys.disabled():
        print(f" kills {dict(play.kills)}", end=" ")


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
