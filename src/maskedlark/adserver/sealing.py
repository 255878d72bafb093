"""Agreeing: of every chunk the reports that all helpers accepted, sealed at every helper with one digest."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

from maskedlark.adserver.book import Book
from maskedlark.adserver.errors import EmptyDataset, HelpersDiffer
from maskedlark.adserver.remote_helper import RemoteHelper
from maskedlark.adserver.sending import at_once
from maskedlark.privacy import receipt
from maskedlark.privacy.document import Document
from maskedlark.privacy.errors import BadReceipt
from maskedlark.privacy.receipt import SealedReceipt
from maskedlark.storage.datasets import Dataset, Datasets
from maskedlark.web.errors import AlreadySealed, NotThere
from maskedlark.wire import datasets as wire
from maskedlark.wire.datasets import Sealed, Sealing


def seal(
    datasets: Datasets, book: Book, dataset: Dataset, document: Document, helpers: Sequence[RemoteHelper]
) -> None:
    """Seal a dataset that was sent everywhere. Run by the ad server; safe to repeat."""
    accepted = tuple(_agreed(datasets, dataset.name, [helper.name for helper in helpers]))
    if not any(bitmap.strip("0") for bitmap in accepted):
        raise EmptyDataset(
            f"no report of {dataset.name} was accepted by all helpers: {_why(datasets, dataset)}"
        )
    first, *others = helpers
    found = first.seal(dataset.name, Sealing(accepted=accepted))
    # With the digest: another helper that would find another one refuses, and nothing is sealed there.
    sealing = Sealing(accepted=accepted, digest=found.digest)
    answers = [found, *at_once([partial(helper.seal, dataset.name, sealing) for helper in others])]
    for helper, answer in zip(helpers, answers, strict=True):
        _check(book, helper, document, dataset, answer, found)
    datasets.seal(dataset.name, bytes.fromhex(found.digest), found.records)


def abort(datasets: Datasets, dataset: Dataset, helpers: Sequence[RemoteHelper]) -> None:
    """Take an unsealed dataset back everywhere. Run by the ad server; safe to repeat."""
    # All are asked before one lets go: what is sealed at one can only be finished.
    begun = [helper for helper in helpers if _is_there(helper, dataset.name)]
    at_once([partial(_abort, helper, dataset.name) for helper in begun])
    datasets.abort(dataset.name)


def _agreed(datasets: Datasets, name: str, helpers: Sequence[str]) -> Iterator[str]:
    """A bitmap a chunk: what all helpers accepted of it."""
    for _, answers in groupby(datasets.answers(name), key=itemgetter(0)):
        said = {helper: answer for _, helper, answer in answers}
        assert said.keys() >= set(helpers), "a dataset is sealed when every chunk was answered by everyone"
        bitmaps = [wire.unpack(said[helper].accepted, said[helper].parts) for helper in helpers]
        agreed = bitmaps[0]
        for bitmap in bitmaps[1:]:
            agreed = agreed & bitmap
        yield wire.pack(agreed)


def _check(
    book: Book, helper: RemoteHelper, document: Document, dataset: Dataset, answer: Sealed, first: Sealed
) -> None:
    """Every helper has sealed the same, and signs it."""
    if (answer.digest, answer.records) != (first.digest, first.records):
        raise HelpersDiffer(f"{helper.name} sealed {dataset.name} with another digest than the first helper")
    signed = receipt.decode(answer.receipt)
    found = book.open(helper, document, signed)
    if not isinstance(found, SealedReceipt):
        raise BadReceipt(f"{helper.name} gave a receipt of something else for sealing {dataset.name}")
    said = (found.dataset, found.records, found.purpose)
    if said != (answer.digest, answer.records, dataset.selection.purpose.value):
        raise BadReceipt(f"{helper.name} gave a receipt of another dataset for sealing {dataset.name}")
    book.enter(helper, signed)


def _why(datasets: Datasets, dataset: Dataset) -> str:
    """How many each helper refused, and by which error."""
    refusals = datasets.refusals(dataset.name)
    said = [
        f"{helper} {reason} {count}" for helper, found in refusals.items() for reason, count in found.items()
    ]
    return "; ".join(said) or "each helper accepted others"


def _is_there(helper: RemoteHelper, name: str) -> bool:
    try:
        state = helper.state(name)
    except NotThere:
        return False
    if state.state != "open":
        raise AlreadySealed(f"{helper.name} has sealed {name}: send it again, which finishes it")
    return True


def _abort(helper: RemoteHelper, name: str) -> None:
    try:
        helper.abort(name)
    except NotThere:
        return  # An earlier try got through, and its answer did not.
