"""Schedules, run on a stage of real processes."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from maskedlark.randomness import SystemRandomness
from maskedlark.simulate.cluster import local_cluster
from tests.simulation.kills import held
from tests.simulation.kills.held import COST, HOLDING, NOISE
from tests.simulation.kills.invariants import QUESTIONS, Invariants
from tests.simulation.kills.play import Play
from tests.simulation.kills.schedule import FEWEST, draw
from tests.simulation.kills.waiting import Broken

SETTINGS = f"""
keys = ["campaign"]
checks = true
k = 10
budget = {{epsilon = {QUESTIONS * COST}, delta = 0.0}}
mechanisms.sums = {{kind = "laplace", noise_floor = {NOISE}}}
mechanisms.held_sums = {{kind = "laplace", noise_floor = {NOISE}}}
[values]
number = [0, 1048576]
"""
CHUNK = 8
SEED = "MASKEDLARK_KILLS_SEED"


@contextmanager
def playing(
    folder: Path, helpers: int, workers: int, database: str | None = None, functions: str = held.__name__
) -> Iterator[tuple[Play, Invariants]]:
    """A stage, helpers of which know the sums that wait, and many small chunks.

    `functions`: a module that helpers load.
    """
    settings = f'functions = ["{functions}"]\n'
    holding = folder / "holding"
    holding.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[3]), prepend=os.pathsep)
        patch.setenv(HOLDING, str(holding))
        patch.setattr("maskedlark.adserver.datasets.PARTS", CHUNK)
        with local_cluster(
            folder, SETTINGS, SystemRandomness(), helpers, database, settings, workers=workers
        ) as made:
            play = Play(made, SETTINGS, holding)
            try:
                yield play, _watching(play)
            finally:
                play.close()


def _watching(play: Play) -> Invariants:
    invariants = Invariants(play)
    play.after_kill = invariants.after_kill
    return invariants


def run(play: Play, invariants: Invariants, seed: int) -> None:
    """One schedule. What goes wrong says how to see it again."""
    steps = draw(seed, len(play.stage.helpers))
    before, began = play.kills.total(), time.monotonic()
    done: list[str] = []
    try:
        for step in steps:
            done.append(f"{time.monotonic() - began:6.2f} {step}")
            if step.name in ("rotate", "publish_and_kill"):
                play.bring_service_back()
            if step.name != "take_service_away" or not play.is_service_away:
                getattr(play, step.name)(*step.arguments)
            if step.name not in (
                "ingest",
                "in_checks",
                "between_freezes",
                "in_freeze",
                "in_abort",
                "kill_client",
            ):
                invariants.after_step()
        play.bring_service_back()
        invariants.at_the_end(f"d{seed}")
    except Exception as error:
        raise Broken(f"{SEED}={seed} helpers={len(play.stage.helpers)}\n" + "\n".join(done)) from error
    assert play.kills.total() - before >= FEWEST - 2, steps
