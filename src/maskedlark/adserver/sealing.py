"""Agreeing: of every chunk the reports that all helpers accepted, sealed at every helper with one digest.

Then the seed that the helpers of the dataset share is carried from the first to the others.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from maskedlark.adserver.book import Book
from maskedlark.adserver.dataset_store import Dataset, Datasets
from maskedlark.adserver.errors import EmptyDataset, HelperAway, HelpersDiffer
from maskedlark.adserver.remote_helper import RemoteHelper
from maskedlark.adserver.report_store import Reports
from maskedlark.adserver.sending import at_once, chunk
from maskedlark.ledger import receipt
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import SealedReceipt
from maskedlark.parameters.document import Document
from maskedlark.web.errors import AlreadySealed, NotThere
from maskedlark.wire import datasets as wire
from maskedlark.wire import forms
from maskedlark.wire.columns import HASH_BYTES
from maskedlark.wire.datasets import Sealed, Sealing
from maskedlark.wire.report import ID_BYTES, PublicPart


def seal(
    datasets: Datasets,
    reports: Reports,
    book: Book,
    dataset: Dataset,
    document: Document,
    helpers: Sequence[RemoteHelper],
) -> None:
    """Seal a dataset that was sent everywhere. Run by the ad server; safe to repeat."""
    accepted = tuple(_agreed(datasets, dataset.name, [helper.name for helper in helpers]))
    if not any(bitmap.strip("0") for bitmap in accepted):
        raise EmptyDataset(
            f"no report of {dataset.name} was accepted by all helpers: {_why(datasets, dataset)}"
        )
    # Computed here, from what was sent: a helper that finds another digest refuses, also the first one.
    agreed = _members(datasets, reports, dataset, accepted)
    digest = wire.digest(document.origin, document.digest, dataset.selection.purpose, agreed)
    sealing = Sealing(accepted=accepted, digest=digest.hex())
    first, *others = helpers
    # One alone at first: if it refuses, nothing is sealed anywhere, and the dataset can be taken back.
    answers = [first.seal(dataset.name, sealing, dataset.opening)]
    answers += at_once([partial(helper.seal, dataset.name, sealing, dataset.opening) for helper in others])
    for helper, answer in zip(helpers, answers, strict=True):
        _check(book, helper, document, dataset, answer, (digest.hex(), len(agreed)))
    # Nothing is answered before: masks on answers follow from it. Here it cannot be read.
    message = first.make_seed(digest.hex())
    at_once([partial(helper.take_seed, digest.hex(), message) for helper in others])
    datasets.seal(dataset.name, digest, len(agreed))


def abort(datasets: Datasets, dataset: Dataset, helpers: Sequence[RemoteHelper]) -> None:
    """Take an unsealed dataset back everywhere. Run by the ad server; safe to repeat."""
    # All are asked before one lets go: what is sealed at one can only be finished.
    begun = [helper for helper in helpers if _is_there(helper, dataset.name)]
    at_once([partial(_abort, helper, dataset) for helper in begun])
    datasets.abort(dataset.name)


def give_up(datasets: Datasets, dataset: Dataset, helpers: Sequence[RemoteHelper]) -> list[str]:
    """Let go of a dataset that cannot be finished; returns the helpers who keep it. Run by the ad server.

    What is sealed at one helper stays there: the reports are taken, so they can be in no other dataset.
    """
    let_go = at_once([partial(_lets_go, helper, dataset) for helper in helpers])
    keeping = [helper.name for helper, gone in zip(helpers, let_go, strict=True) if not gone]
    if keeping:
        datasets.lose(dataset.name)
    else:
        datasets.abort(dataset.name)
    return keeping


def _members(
    datasets: Datasets, reports: Reports, dataset: Dataset, accepted: Sequence[str]
) -> NDArray[np.uint8]:
    """What all helpers saw of the reports that all accepted: read again from what was stored."""
    found = []
    for number, (mark, bitmap) in enumerate(zip(datasets.marks(dataset.name), accepted, strict=True)):
        page = chunk(reports, dataset, number, mark)
        wanted = wire.unpack(bitmap, mark.size)
        taken = [each.data for each, is_wanted in zip(page, wanted, strict=True) if is_wanted]
        public = [each for each in forms.public_parts(taken) if isinstance(each, PublicPart)]
        assert len(public) == len(taken), "what was stored had its form checked"
        ids = np.frombuffer(b"".join(part.id for part in public), np.uint8)
        hashes = np.frombuffer(b"".join(part.column_hash for part in public), np.uint8)
        hours = np.array([part.hour for part in public], np.uint32)
        found.append(wire.members(ids.reshape(-1, ID_BYTES), hours, hashes.reshape(-1, HASH_BYTES)))
    return np.concatenate(found)


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
    book: Book,
    helper: RemoteHelper,
    document: Document,
    dataset: Dataset,
    answer: Sealed,
    agreed: tuple[str, int],
) -> None:
    """Every helper has sealed what was sent, and signs it."""
    if (answer.digest, answer.records) != agreed:
        raise HelpersDiffer(
            f"{helper.name} sealed {dataset.name} with another digest than that of its reports"
        )
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
        raise AlreadySealed(
            f"{helper.name} has sealed {name}: send it again, which finishes it. If another helper refuses "
            f"that for good, `datasets abort {name} --give-up` lets go of it"
        )
    return True


def _lets_go(helper: RemoteHelper, dataset: Dataset) -> bool:
    """Whether the helper has nothing of a dataset any more. Of one that stays away, nobody knows."""
    try:
        if helper.state(dataset.name).state == "open":
            helper.abort(dataset.name, dataset.opening)
            return True
    except NotThere:
        return True
    except (HelperAway, AlreadySealed):
        return False
    return False


def _abort(helper: RemoteHelper, dataset: Dataset) -> None:
    try:
        helper.abort(dataset.name, dataset.opening)
    except NotThere:
        return  # An earlier try got through, and its answer did not.
