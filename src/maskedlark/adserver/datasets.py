"""Freezing: reports of one purpose and one document, received in one span of time, become a dataset."""

from dataclasses import replace

from pydantic import TypeAdapter, ValidationError

from maskedlark.adserver.dataset_store import Dataset, Datasets, Standing
from maskedlark.adserver.dates import shown
from maskedlark.adserver.errors import EmptyDataset, NameTaken, NotOver, NotSealed, Overlapping, TooLarge
from maskedlark.adserver.report_store import Reports, Selection
from maskedlark.clock import Clock
from maskedlark.core.suggestions import did_you_mean
from maskedlark.errors import WrongType
from maskedlark.parameters.document import Document
from maskedlark.storage.errors import BelowFloor
from maskedlark.web.errors import UnknownDataset
from maskedlark.wire.datasets import MOST_CHUNKS, PARTS, DatasetName
from maskedlark.wire.hpke import OVERHEAD

CHUNK_BYTES = 8 << 20
"""A chunk stays below this: it is held in memory several times on both sides."""
_NAME: TypeAdapter[str] = TypeAdapter(DatasetName)
_AROUND = 512
"""A part is at most so much larger than its sealed payload."""


def freeze(
    datasets: Datasets, reports: Reports, clock: Clock, name: str, selection: Selection, parts: int
) -> Dataset:
    """Fix a dataset: from here on it never changes. Run by the ad server."""
    _check_name(name)
    before = datasets.get(name)
    if before is not None and before.state is not Standing.ABORTED:
        raise _in_the_way(name, before)  # First: it is the plainest mistake.
    if selection.end > clock.now():
        raise NotOver(
            f"{shown(selection.end)} UTC, the end of {name}, is not in the past, so reports may still come: "
            "choose an earlier end"
        )
    if selection.start >= selection.end:
        raise EmptyDataset(f"{name} would end before it begins")
    # Before it is read: from here on no clock can add to it.
    reports.end(selection.end)
    while not _fixed(datasets, reports, name, selection, parts):
        pass  # What is old went meanwhile, which happens once an hour: it begins behind that.
    return known(datasets, name)


def _fixed(datasets: Datasets, reports: Reports, name: str, selection: Selection, parts: int) -> bool:
    """Whether the dataset is kept, from the first report on that is not being deleted."""
    lowest = datasets.floor()
    kept = replace(selection, start=max(selection.start, lowest))
    if kept.start >= kept.end:
        raise EmptyDataset(f"reports from before {shown(lowest)} UTC are deleted: choose a later time")
    marks = reports.marks(kept, parts)
    if not marks:
        raise EmptyDataset(f"no report to {selection.purpose} under that document was received in that time")
    if len(marks) > MOST_CHUNKS:
        raise TooLarge(
            f"{name} would have {len(marks)} chunks, at most {MOST_CHUNKS} fit: freeze a shorter time"
        )
    try:
        other = datasets.add(name, kept, marks)
    except BelowFloor:
        return False
    if other is not None:
        raise _in_the_way(name, other)
    return True


def parts_of(document: Document, selection: Selection) -> int:
    """How many parts a chunk has: fewer where payloads are large."""
    size = document.payload_size(selection.purpose) + OVERHEAD + _AROUND
    return max(1, min(PARTS, CHUNK_BYTES // size))


def known(datasets: Datasets, name: str) -> Dataset:
    """The dataset of this name."""
    found = datasets.get(name)
    if found is None:
        there = did_you_mean(name, [each.name for each in datasets.all()])
        raise UnknownDataset(f"no dataset {name!r} here; {there}")
    return found


def sealed(datasets: Datasets, name: str) -> Dataset:
    """The dataset of this name, if questions can be asked of it."""
    found = known(datasets, name)
    if found.state is not Standing.SEALED:
        raise NotSealed(f"{name} is {found.state}, not sealed: {_instead(found)}")
    return found


def _instead(found: Dataset) -> str:
    match found.state:
        case Standing.FROZEN:
            return f"`datasets send {found.name}` first"
        case Standing.EXPIRED:
            return "a report of it is past its lifetime, and helpers have let go of it; ask newer ones"
        case _:
            return "nothing can be asked of it"


def _check_name(name: str) -> None:
    try:
        _NAME.validate_python(name)
    except ValidationError:
        raise WrongType(
            f"{name[:80]!r} is no name of a dataset: use up to 64 letters, digits, dots and hyphens"
        ) from None


def _in_the_way(name: str, other: Dataset) -> NameTaken | Overlapping:
    if other.name == name:
        return NameTaken(f"there is a dataset {name} already, and it is {other.state}: choose another name")
    span = other.selection
    return Overlapping(
        f"{other.name} holds what was received from {shown(span.start)} until {shown(span.end)} UTC: "
        "choose a time outside it"
    )
