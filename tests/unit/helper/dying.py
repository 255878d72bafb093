"""A helper that ends at a chosen point, without a word: what it has left must be enough."""

import os
import sys
from pathlib import Path
from typing import Any

from maskedlark.core.purpose import Purpose
from maskedlark.helper import sharding
from maskedlark.helper.dataset_context import DatasetContext
from maskedlark.helper.ids import Ids
from maskedlark.ledger.ledger import Ledger
from tests.unit.helper.cases import DOCUMENT, NAME, ORIGIN, agreed, helper, measured

REPORTS, EACH = 20, 10
POINTS: dict[str, tuple[str, Any, str, bool]] = {
    # name: what it is doing, where it ends, and whether it does that first
    "chunk: file written": ("add", Ids, "lock", False),
    "chunk: before commit": ("add", Ids, "claim", True),
    "chunk: after commit": ("add", Ids, "claimed", False),
    "freeze: columns written": ("freeze", sharding, "remove_all_but", True),
    "freeze: before commit": ("freeze", Ledger, "freeze", True),
    "freeze: after commit": ("freeze", DatasetContext, "sweep", False),
    "freeze: before the anchor": ("freeze", Ledger, "advance_anchor", False),
    "freeze: after the anchor": ("freeze", Ledger, "advance_anchor", True),
    "abort: marked": ("abort", DatasetContext, "finish_aborts", False),
    "abort: some freed": ("abort", Ids, "freed", False),
    "abort: almost done": ("abort", Ids, "_free_some", True),
}
DIED = 9


def prepare(folder: Path) -> None:
    """The same chunks for the helper that dies and for the one that comes after it."""
    reports = measured(REPORTS)
    for number in range(2):
        body = reports.chunk(0, EACH * number, EACH * (number + 1))
        (folder / f"{number}.body").write_bytes(body)
    (folder / "all.body").write_bytes(reports.chunk(0))


def die_at(cls: Any, name: str, after: bool) -> None:
    """The next call of a method is the last."""
    original = getattr(cls, name)

    def last(*arguments: Any) -> Any:
        if after:
            original(*arguments)
        os._exit(DIED)

    setattr(cls, name, last)


def main(folder: Path, url: str, point: str) -> None:
    doing, cls, name, after = POINTS[point]
    with helper(folder, url) as (datasets, _, _):
        datasets.open(DOCUMENT, NAME, Purpose.AGGREGATE)
        datasets.add(ORIGIN, NAME, 0, (folder / "0.body").read_bytes())
        if doing != "add":
            datasets.add(ORIGIN, NAME, 1, (folder / "1.body").read_bytes())
        die_at(cls, name, after)
        match doing:
            case "add":
                datasets.add(ORIGIN, NAME, 1, (folder / "1.body").read_bytes())
            case "freeze":
                datasets.freeze(ORIGIN, NAME, agreed(datasets, chunks=2))
            case "abort":
                datasets.abort(ORIGIN, NAME)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
