"""What an epoch costs through two helpers over HTTP, beside the same algorithm run locally, by batch size.

The loops and how they are timed are those of `benches/training.py`: an epoch is so many equal steps, so the
ratio of steps, measured in turns, is the ratio of epochs. Pixels are random bytes: no time depends on them.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from experiments import authors, drawing, log_axes
from experiments import rows as tables
from experiments.jobs import Found, Job, Value
from experiments.rows import Mean, Row
from experiments.size import Size

if TYPE_CHECKING:
    from benches.training import Race

NAME = "cost"
TITLE = "What an epoch through helpers costs"

SERIES = "through two helpers"
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Shape(NamedTuple):
    """One network, what the authors call its data, and its batch sizes: one for a look, and all of theirs."""

    case: str
    authors: str
    few: tuple[int]
    all: tuple[int, ...]
    whole: int
    """Records of an epoch: so many the paper trains on."""
    some: int
    """Records that services hold where an epoch is measured by some of its steps."""


SHAPES = {
    "MNIST network": Shape("mnist", "MNIST", (100,), (10, 20, 50, 100, 200, 500, 1000), 50_000, 6000),
    "WBCD network": Shape("wbcd", "WBCD", (50,), (5, 10, 20, 30, 50, 100, 500), 500, 500),
}
"""By a name that is no dataset's: nothing has to be there for it."""


def jobs(size: Size) -> Sequence[Job]:
    """A batch size each, all of a network with the same services; nothing beside them: time is measured."""
    return [
        Job(
            name, SERIES, batch, 0, measured, _settings(shape, size), 4 if shape.case == "mnist" else 1, True,
            together, name
        )
        for name, shape in SHAPES.items()
        for batch in size.pick(shape.few, shape.all, shape.all)
    ]  # fmt: skip


def _settings(shape: Shape, size: Size) -> dict[str, Value]:
    few = min(2000, shape.some)
    return {
        "network": _NETWORKS[shape.case],
        "records": size.pick(few, shape.some, shape.whole),
        "rounds": size.pick(4, 20, 20),
        "steps_a_round": _STEPS[shape.case],
        "noise": _NOISE,
    }


_NETWORKS = {"mnist": "784-500-10", "wbcd": "30-50-50-1"}
_STEPS = {"mnist": 3, "wbcd": 10}
_NOISE = 20.0
"""As `benches/training.py` has them; a test compares, since planning need not wait for torch."""


def measured(job: Job) -> Found:
    """One batch size."""
    (found,) = together([job])
    return found


def together(jobs: Sequence[Job]) -> list[Found]:
    """Both loops in turns, at all batch sizes of a network. In a process that nothing runs beside."""
    os.environ.update(_ONE_THREAD)  # The helpers' processes inherit it: each has one core.
    from benches.training import CASES, race  # noqa: PLC0415 - torch, which drawing need not wait for

    shape, given = SHAPES[jobs[0].dataset], jobs[0].settings
    sizes = {int(job.x): 0.0 for job in jobs}
    case = CASES[shape.case]._replace(records=int(given["records"]), authors=sizes)
    raced = race(shape.case, case, _silent, int(given["rounds"]))
    return [_found(raced, int(job.x)) for job in jobs]


def _found(raced: "Race", batch: int) -> Found:
    found, helpers = raced.found[batch], 2
    return {
        "y": found.multiplier,
        "spread": found.spread,
        "whole_loop": found.whole_loop,
        "http_ms": found.http_ms,
        "memory_ms": found.memory_ms,
        "request_bytes": found.request_bytes / helpers,
        "answer_bytes": found.answer_bytes / helpers,
        "upload_bytes_a_record": raced.upload_bytes / raced.case.records / helpers,
        "upload_ms_a_record": 1000 * raced.upload_s / raced.case.records,
    }


def _silent(_line: str) -> None:
    """The figure's bar is enough."""


def draw(rows: Sequence[Row], out: Path) -> Sequence[str]:
    """Multipliers, and bytes."""
    return [_multipliers(rows, out), _bytes(rows, out)]


def _multipliers(rows: Sequence[Row], out: Path) -> str:
    names = _names(rows)
    across = ["batch size (records)"] * len(names)
    figure = drawing.panels(names, across, ["epoch through helpers / epoch run locally"] * len(names))
    for axes, name in zip(figure.axes, names, strict=True):
        points = [Mean(row.x, row.y, row.number("spread"), 2) for row in _ours(rows, name)]
        drawing.ours(axes, points, 0, "ours (bar: the middle half of all rounds)")
        first = [Mean(row.x, _first(row), 0.0, 1) for row in _ours(rows, name)]
        drawing.ours(axes, first, 2, "ours, first epoch: reports sealed, uploaded, frozen")
        drawing.authors(axes, authors.points("cost_multiplier", SHAPES[name].authors), 1, "the authors'")
        log_axes.across(axes, [point.x for point in points])
        log_axes.up(axes)
        axes.axhline(1, color="#555555", linewidth=0.8)
        axes.legend()
    drawing.save(figure, out / "cost.svg")
    return "cost.svg"


def _bytes(rows: Sequence[Row], out: Path) -> str:
    names = _names(rows)
    across = ["batch size (records)"] * len(names)
    figure = drawing.panels(names, across, ["kilobytes a step and helper"] * len(names))
    for axes, name in zip(figure.axes, names, strict=True):
        for place, (label, parts) in enumerate(_PARTS.items()):
            points = [Mean(row.x, _kilobytes(row, parts), 0.0, 1) for row in _ours(rows, name)]
            drawing.ours(axes, points, (0, 2, 3)[place], label)
        theirs = authors.points("request_bytes", SHAPES[name].authors)
        drawing.authors(
            axes, [point._replace(y=point.y / 1000) for point in theirs], 1, "the authors' request"
        )
        log_axes.across(axes, [point.x for point in points])
        log_axes.up(axes)
        axes.legend()
    drawing.save(figure, out / "cost_bytes.svg")
    return "cost_bytes.svg"


_PARTS: Mapping[str, tuple[str, ...]] = {
    "ours, request": ("request_bytes",),
    "ours, request and answer": ("request_bytes", "answer_bytes"),
    "ours, with the batch's part of the upload": ("request_bytes", "answer_bytes", "upload"),
}


def _kilobytes(row: Row, parts: Sequence[str]) -> float:
    upload = row.x * row.number("upload_bytes_a_record")
    return sum(upload if part == "upload" else row.number(part) for part in parts) / 1000


def _first(row: Row) -> float:
    """The multiplier of an epoch that bears what comes before it: reports are made, uploaded, frozen."""
    return row.y + row.x * row.number("upload_ms_a_record") / row.number("memory_ms")


def text(rows: Sequence[Row]) -> str:
    """What an epoch costs, the first and those after it, and a table of all points."""
    ours = [row for name in _names(rows) for row in _ours(rows, name)]
    later, first, theirs = (_span(map(each, ours)) for each in (lambda row: row.y, _first, _theirs))
    return f"""**An epoch through helpers costs {later} times one that is run locally; the first, {first}
times.** The authors' cost {theirs} times, and contain the data in every request. Beside them is only our
first epoch, in which all reports are sealed, uploaded and frozen.

Every point is measured over HTTP, through real processes: two helpers, each pinned to one core, answer every
step; the ad server quantises, signs, asks, adds up and descends. Locally, one process on one core does what
one helper does in a step, without HTTP, signature and database; the ad server's own work is not counted
there, so that it does not flatter the ratio. "Whole loop" counts it in both. Local is the same algorithm, as
the paper defines the ratio: masked, clipped, exact in integers. A plain float32 step without masks is several
times as fast as that, and not what is compared here. The loops take turns of a few steps each, and a figure
is the median over rounds. {_scaled(rows)}

The authors send the network and a batch's records in every request (5.3 of the paper). Our records go to
helpers once: the time for that was measured once for each network, on both cores, and is shared out over the
steps of one epoch. Every later epoch is without: its steps bring 8-bit weights and take a gradient of field
elements back.

{_table(rows)}
"""


def _span(found: Iterable[float]) -> str:
    low, *_, high = sorted(found)
    return f"{low:.1f} to {high:.1f}"


def _scaled(rows: Sequence[Row]) -> str:
    held = {name: int(_ours(rows, name)[0].number("records")) for name in _names(rows)}
    scaled = [name for name, records in held.items() if records < SHAPES[name].whole]
    if not scaled:
        return "Services hold the records of a whole epoch; its time is that of one step, times their number."
    return " ".join(
        f"For the {name}, services hold {held[name]:,} records of an epoch's {SHAPES[name].whole:,}: the "
        "epoch is scaled up from its steps, which are the same."
        for name in scaled
    )


def _table(rows: Sequence[Row]) -> str:
    head = (
        "| network | batch | authors' | ours, first epoch | ours, later | later, whole loop "
        "| step over HTTP, ms | step locally, ms "
        "| authors' request, KB | our request, KB | with answer, KB |"
    )
    lines = [head, "|---" + "|--:" * 10 + "|"]
    for name in _names(rows):
        lines += [_line(name, row) for row in _ours(rows, name)]
    return "\n".join(lines)


def _line(name: str, row: Row) -> str:
    number, (request, both, _) = row.number, [_kilobytes(row, parts) for parts in _PARTS.values()]
    return (
        f"| {name.removesuffix(' network')} | {row.x:.0f} | {_theirs(row):.1f} | {_first(row):.2f} "
        f"| {row.y:.2f} | {number('whole_loop'):.2f} | {number('http_ms'):.1f} | {number('memory_ms'):.1f} "
        f"| {_theirs(row, 'request_bytes') / 1000:,.0f} | {request:,.1f} | {both:,.1f} |"
    )


def _theirs(row: Row, figure: str = "cost_multiplier") -> float:
    return next(point.y for point in authors.points(figure, SHAPES[row.dataset].authors) if point.x == row.x)


def _names(rows: Sequence[Row]) -> list[str]:
    return [name for name in SHAPES if _ours(rows, name)]


def _ours(rows: Sequence[Row], name: str) -> list[Row]:
    return sorted(tables.of(rows, name), key=lambda row: row.x)
