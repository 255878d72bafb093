"""Selects a dataset's reports by time received, and a query's datasets. Run on the ad server's machine."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from pydantic import TypeAdapter, ValidationError

from maskedlark.adserver.dataset_store import Dataset, Datasets, DatasetState, name_taken
from maskedlark.adserver.dates import format_utc
from maskedlark.adserver.errors import BelowFloor, EmptyDataset, NotFrozen, NotOver, TooLarge
from maskedlark.adserver.remote_helper import Connections, at_once
from maskedlark.adserver.report_store import Reports, Selection
from maskedlark.clock import Clock
from maskedlark.core.purpose import Purpose
from maskedlark.core.suggestions import did_you_mean
from maskedlark.errors import BadArguments, Expired, WrongType
from maskedlark.parameters.document import Document
from maskedlark.release.errors import MixedDatasets, OtherPurpose
from maskedlark.release.messages import MAX_DATASETS
from maskedlark.web.errors import UnknownDataset
from maskedlark.web.parameters import ParameterClient
from maskedlark.wire.datasets import MAX_CHUNKS, PARTS, DatasetName

CHUNK_BYTES = 8 << 20
"""Upper bound on a chunk: both sides hold it in memory several times."""
_NAME: TypeAdapter[str] = TypeAdapter(DatasetName)
_ADVICE = {
    DatasetState.SELECTED: "`datasets send {}` first",
    DatasetState.EXPIRED: "a report of it is past its lifetime, and helpers have let go of it; "
    "ask newer ones",
}
"""What to do about a dataset that cannot be queried."""
_LOG = logging.getLogger(__name__)


def select(
    datasets: Datasets, reports: Reports, clock: Clock, name: str, selection: Selection, document: Document
) -> Dataset:
    """Fix which reports a dataset holds: it never changes afterwards. Run by the ad server."""
    _check_name(name)
    before = datasets.get(name)
    if before is not None and before.state is not DatasetState.ABORTED:
        raise name_taken(before)  # First: it is the simplest mistake.
    if selection.end > clock.now():
        raise NotOver(
            f"{format_utc(selection.end)} UTC, the end of {name}, is not in the past, so reports may still "
            "come: choose an earlier end"
        )
    if selection.start >= selection.end:
        raise EmptyDataset(f"{name} would end before it begins")
    # Before reading: from now on no clock can add to it.
    reports.end(selection.end)
    parts = _parts(document, selection.purpose)
    while True:
        lowest = datasets.floor()
        kept = replace(selection, start=max(selection.start, lowest))
        if kept.start >= kept.end:
            raise EmptyDataset(f"reports from before {format_utc(lowest)} UTC are deleted: take a later time")
        chunks = reports.chunks(kept, parts)
        if not chunks:
            raise EmptyDataset(f"no report to {selection.purpose} under that document was received then")
        reports_in, most = sum(chunk.size for chunk in chunks), max_reports(document, selection.purpose)
        if reports_in > most:
            raise TooLarge(
                f"{name} would have {reports_in:,} reports, and the document allows at most {most:,} in what "
                "is asked at once (max_records): select a shorter time"
            )
        if len(chunks) > MAX_CHUNKS:
            raise TooLarge(
                f"{name} would have {len(chunks)} chunks, at most {MAX_CHUNKS} fit: select a shorter time"
            )
        try:
            datasets.add(name, kept, chunks)
        except BelowFloor:
            continue  # Hourly deletion has raised the floor meanwhile: begin above it.
        return known(datasets, name)


def max_reports(document: Document, purpose: Purpose) -> int:
    """The most reports of a dataset. With more to train, some model would have too many records."""
    return document.max_records * (len(document.models) if purpose is Purpose.TRAIN else 1)


def known(datasets: Datasets, name: str) -> Dataset:
    """The dataset of this name."""
    dataset = datasets.get(name)
    if dataset is None:
        there = did_you_mean(name, [each.name for each in datasets.all()])
        raise UnknownDataset(f"no dataset {name!r} here; {there}")
    return dataset


def present(datasets: Datasets, name: str) -> Dataset:
    """The dataset of this name, if it was not aborted."""
    dataset = known(datasets, name)
    if dataset.state is DatasetState.ABORTED:
        raise UnknownDataset(f"{name} was aborted: select it again")
    if dataset.state is DatasetState.LOST:
        raise UnknownDataset(f"{name} was given up: its reports are lost, select later ones")
    return dataset


@dataclass(frozen=True)
class QueryableDatasets:
    """The datasets of one origin that every helper has frozen, and which of them have expired since."""

    origin: str
    datasets: Datasets
    parameters: ParameterClient
    connections: Connections

    def choose(self, purpose: Purpose, names: Sequence[str] | None) -> tuple[Document, tuple[bytes, ...]]:
        """The document and digests of these datasets, or of all frozen ones of this purpose."""
        chosen = self._frozen(purpose) if names is None else self._named(purpose, names)
        if len(chosen) > MAX_DATASETS:
            raise BadArguments(
                f"{len(chosen)} datasets, and one query is over at most {MAX_DATASETS}: name fewer, and from "
                "now on select longer spans"
            )
        digests = tuple(sorted(each.digest for each in chosen if each.digest is not None))
        return self.parameters.by_digest(chosen[0].selection.parameters), digests

    @contextmanager
    def noticing_age(self, digests: Sequence[bytes]) -> Iterator[None]:
        """If a helper reports that something has expired, find out what, and leave it out from then on."""
        try:
            yield
        except Expired as error:
            frozen = [each for each in self.datasets.all() if each.state is DatasetState.FROZEN]
            gone = [each.name for each in frozen if each.digest in digests and self._has_expired(each)]
            if not gone:
                raise
            for name in gone:
                self.datasets.mark(name, DatasetState.EXPIRED)
            raise Expired(
                f"{error} ({', '.join(gone)}). It is marked so here, and left out of queries that name no "
                "dataset: ask again"
            ) from None

    def _has_expired(self, dataset: Dataset) -> bool:
        document = self.parameters.by_digest(dataset.selection.parameters)
        states = at_once([partial(each.state, dataset.name) for each in self.connections.helpers(document)])
        # One is enough: a query needs all helpers.
        return any(each.state == "expired" for each in states)

    def _named(self, purpose: Purpose, names: Sequence[str]) -> list[Dataset]:
        listed = [names] if isinstance(names, str) else dict.fromkeys(names)
        chosen = [known(self.datasets, name) for name in listed]
        if not chosen:
            raise NotFrozen("name at least one dataset, or none for all that are frozen")
        for each in chosen:
            if each.state is not DatasetState.FROZEN:
                advice = _ADVICE.get(each.state, "nothing can be asked of it").format(each.name)
                raise NotFrozen(f"{each.name} is {each.state}, not frozen: {advice}")
            if each.selection.purpose is not purpose:
                fitting = ", ".join(
                    own.name
                    for own in self.datasets.all()
                    if (own.selection.purpose, own.state) == (purpose, DatasetState.FROZEN)
                )
                raise OtherPurpose(
                    f"{each.name} is of reports to {each.selection.purpose}, and this is asked of reports to "
                    f"{purpose}: {f'there is {fitting}' if fitting else 'select and send a dataset of those'}"
                )
        if len({each.selection.parameters for each in chosen}) > 1:
            raise MixedDatasets("these datasets are of several documents: ask for each apart")
        return chosen

    def _frozen(self, purpose: Purpose) -> list[Dataset]:
        """All frozen ones of a purpose, of the newest document that has any."""
        datasets = [each for each in self.datasets.all() if each.selection.purpose is purpose]
        for document in reversed(self.parameters.chain(self.origin)):
            same = [each for each in datasets if each.selection.parameters == document.digest]
            if frozen := [each for each in same if each.state is DatasetState.FROZEN]:
                if expired := [each.name for each in same if each.state is DatasetState.EXPIRED]:
                    _LOG.warning("left out, because their reports have expired: %s", ", ".join(expired))
                return frozen
        raise NotFrozen(f"no dataset to {purpose} is frozen yet: select and send one first")


def _parts(document: Document, purpose: Purpose) -> int:
    """How many parts a chunk has: fewer when payloads are large."""
    return max(1, min(PARTS, CHUNK_BYTES // document.layout(purpose).part_size(0)))


def _check_name(name: str) -> None:
    try:
        _NAME.validate_python(name)
    except ValidationError:
        raise WrongType(
            f"{name[:80]!r} is no name of a dataset: use up to 64 letters, digits, dots and hyphens"
        ) from None
