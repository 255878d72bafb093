"""Random schedules of all parties under faults: nothing is lost, counted twice, or answered twice for free.

A failing one prints its seed and a short schedule; `python -m tests.simulation.replay SEED` runs it again.
"""

import os

import pytest

from tests.simulation import schedule
from tests.simulation.faults import Kind
from tests.simulation.schedule import LENGTH, draw
from tests.simulation.shrinking import failure, shown, shrink
from tests.simulation.totals import Totals

QUICK = 4
LONG, BLOCK = 800, 20
FIRST_LONG = 1000
"""Its seeds are others than those of the quick run."""


def check(seeds: range) -> Totals:
    """Run all; of one that fails, show what is left of it when everything needless is gone."""
    totals = Totals()
    for seed in seeds:
        drawn = draw(seed)
        try:
            totals.add(schedule.run(drawn))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what was looked for
            short = shrink(drawn, tries=60)
            pytest.fail(
                f"seed {seed}: {type(error).__name__}: {error}\n"
                f"python -m tests.simulation.replay {seed}\n{shown(short)}\n{failure(short)}"
            )
    return totals


def report(totals: Totals, record_property, name: str) -> None:
    """For the run's own output, and, where a folder is named, for adding up what several processes did."""
    record_property("simulation", totals.line())
    print(totals.line())
    if folder := os.environ.get("SIMULATION_TOTALS"):
        totals.write(folder, name)


@pytest.mark.parametrize("seed", range(QUICK))
def test_a_short_run(seed, record_property):
    totals = check(range(seed, seed + 1))
    assert totals.operations.total() == LENGTH
    report(totals, record_property, f"quick-{seed}")


@pytest.mark.long
@pytest.mark.parametrize("block", range(LONG // BLOCK))
def test_many_schedules(block, record_property):
    first = FIRST_LONG + block * BLOCK
    totals = check(range(first, first + BLOCK))
    # A world in which nothing happens would find nothing.
    assert totals.schedules == BLOCK
    assert min(totals.found[what] for what in ("reports", "datasets", "questions")) >= BLOCK
    assert len(totals.faults) == len(Kind)
    report(totals, record_property, f"long-{block}")
