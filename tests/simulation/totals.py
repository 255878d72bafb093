"""What simulations did: schedules, operations, faults by kind, refusals, and what there was to be found."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Totals:
    """What was done."""

    schedules: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    """How many reports, datasets, answers and receipts there were: a simulation in which nothing happens
    finds nothing."""

    def add(self, other: "Totals") -> None:
        self.schedules += other.schedules
        for ours, theirs in zip(self._counts(), other._counts(), strict=True):
            ours.update(theirs)

    def line(self) -> str:
        """All of it, in one line."""
        parts = zip(("operations", "faults", "refusals", "found"), self._counts(), strict=True)
        said = "; ".join(f"{name} {counts.total()} ({_listed(counts)})" for name, counts in parts)
        return f"{self.schedules} schedules; {said}"

    def write(self, folder: str, name: str) -> None:
        """A file more in a folder, to be added up later."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        counts = [dict(each) for each in self._counts()]
        (Path(folder) / f"{name}.json").write_text(json.dumps([self.schedules, *counts]))

    @staticmethod
    def read(folder: Path) -> "Totals":
        """The sum of all files in a folder."""
        totals = Totals()
        for path in sorted(folder.glob("*.json")):
            schedules, *counts = json.loads(path.read_text())
            totals.add(Totals(schedules, *(Counter(each) for each in counts)))
        return totals

    def _counts(self) -> tuple[Counter[str], ...]:
        return self.operations, self.faults, self.errors, self.found


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
