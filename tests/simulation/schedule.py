"""Schedules: drawn from a seed, and run against a fresh world.

A schedule is a plain list of steps with their numbers, so any part of it can be run alone.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from maskedlark.adserver.dataset_store import DatasetState
from maskedlark.errors import MaskedLarkError
from maskedlark.randomness import FixedRandomness
from tests.simulation.faults import Fault, Kind
from tests.simulation.invariants import Invariants
from tests.simulation.life import Broken
from tests.simulation.operations import Operations
from tests.simulation.speedups import collected
from tests.simulation.totals import Totals
from tests.simulation.world import Servers, world

LENGTH = 200
WEIGHTS = {
    "upload": 22,
    "upload_again": 4,
    "select": 12,
    "send": 15,
    "abort": 4,
    "query": 11,
    "explain": 1,
    "resume": 5,
    "drop": 1,
    "ask_again": 5,
    "smuggle": 2,
    "deliver": 7,
    "rotate": 2,
    "publish": 2,
    "forget": 4,
    "restart": 3,
    "put_back": 2,
    "sleep": 1,
    "advance": 14,
    "skew": 2,
}
FAULTY = 0.3
"""Of all steps have a fault, if they come to its place."""
PLACES = {Kind.CRASH: 40, Kind.AWAY: 20, Kind.FULL: 10}
FEW = 8
"""Places of messages: there are fewer of them."""
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Step:
    """An operation, the numbers that choose for it, and what goes wrong."""

    operation: str
    a: int = 0
    b: int = 0
    fault: Fault | None = None

    def __str__(self) -> str:
        fault = f", Fault(Kind.{self.fault.kind.name}, {self.fault.at})" if self.fault else ""
        return f'Step("{self.operation}", {self.a}, {self.b}{fault})'


@dataclass(frozen=True)
class Schedule:
    """A world and its steps."""

    seed: int
    helpers: int
    origins: int
    steps: tuple[Step, ...]


def draw(seed: int, length: int = LENGTH) -> Schedule:
    """The schedule of a seed."""
    draws = FixedRandomness(b"schedule %d" % seed)
    names = [name for name, weight in WEIGHTS.items() for _ in range(weight)]
    kinds = list(Kind)
    chosen = draws.below(len(names), length).tolist()
    firsts, seconds = draws.below(1 << 16, length).tolist(), draws.below(1 << 16, length).tolist()
    faulty = (draws.unit(length) < FAULTY).tolist()
    kind, at = draws.below(len(kinds) + 4, length).tolist(), draws.unit(length).tolist()
    steps = [
        Step(
            names[chosen[i]],
            firsts[i],
            seconds[i],
            # Crashes more often than the others.
            _fault(kinds[max(0, kind[i] - 4)], at[i]) if faulty[i] else None,
        )
        for i in range(length)
    ]
    helpers, origins = 2 + (seed % 4 == 3), 1 + (seed % 3 == 2)
    return Schedule(seed, helpers, origins, tuple(steps))


def _fault(kind: Kind, at: float) -> Fault:
    """Early places more often: most steps have few."""
    return Fault(kind, int(PLACES.get(kind, FEW) * at**2))


def run(schedule: Schedule, servers: Servers = MappingProxyType({})) -> Totals:
    """Run a schedule in a fresh world. Raises `Broken`, or whatever a party should not have raised."""
    begun = partial(world, seed=schedule.seed, helpers=schedule.helpers, origins=schedule.origins)
    with collected(), _folder() as folder, begun(folder, servers=servers) as made:
        life = Operations(made)
        invariants = Invariants(life)
        for step in schedule.steps:
            _take(life, invariants, step)
        _heal(life, invariants)
        invariants.at_the_end()
        return _totals(schedule, life)


def _take(life: Operations, invariants: Invariants, step: Step) -> None:
    made = life.world
    made.faults.arm(None)
    made.tick()
    made.stays_down = step.fault is not None and step.fault.at % 2 == 1
    made.faults.arm(step.fault)
    getattr(life, step.operation)(step.a, step.b)
    made.faults.arm(None)
    invariants.after_a_step()


def _heal(life: Operations, invariants: Invariants) -> None:
    """All faults end: whatever was begun can be finished, or is refused for a reason that stays."""
    made = life.world
    made.stays_down = False
    made.asleep.clear()
    made.network.late.clear()
    for party in made.parties:
        party.clock.offset = 0
        party.end()
    made.clock.seconds += 1
    made.revive()
    for adserver in made.adservers:
        adserver.finish()
    made.revive()
    for place, adserver in enumerate(made.adservers):
        life.resume(place, 0)
        for dataset in adserver.client.datasets():
            if dataset.state is DatasetState.SELECTED:
                _finish(life, place, dataset.name)
        life.query(place, 3)
    invariants.after_a_step()


def _finish(life: Operations, place: int, name: str) -> None:
    """Send a dataset; one that cannot be frozen any more can be let go of."""
    adserver = life.world.adservers[place]
    try:
        adserver.client.send(name)
    except MaskedLarkError as error:
        why = f"{type(error).__name__}: {error}"
        try:
            adserver.client.abort(name, give_up=True)
        except MaskedLarkError as stuck:
            raise Broken(f"{name} can neither be sent ({why}) nor let go of ({stuck})") from stuck


def _totals(schedule: Schedule, life: Operations) -> Totals:
    found = Counter(reports=len(life.acknowledged), datasets=len(life.members), questions=len(life.shown))
    for adserver in life.world.adservers:
        found.update(f"{dataset.state} dataset" for dataset in adserver.client.datasets())
    operations = Counter(step.operation for step in schedule.steps)
    return Totals(1, operations, life.world.faults.injected, Counter(life.errors), found)


@contextmanager
def _folder() -> Iterator[Path]:
    """In memory where that can be: nothing here outlives the process."""
    where = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(dir=where, prefix="maskedlark-simulation-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
