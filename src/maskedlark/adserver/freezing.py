"""Freezing a dataset at all helpers: of every chunk the reports that all accepted, under one digest.

Then the seed that the helpers of the dataset share is carried from the first to the others. Helpers call a
frozen dataset sealed. Run on the ad server's machine; every call is safe to repeat.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from maskedlark.adserver.dataset_store import Dataset, Datasets, DatasetState
from maskedlark.adserver.errors import EmptyDataset, HelperAway, HelpersDiffer
from maskedlark.adserver.receipt_store import ReceiptStore
from maskedlark.adserver.remote_helper import RemoteHelper, at_once
from maskedlark.adserver.report_store import Reports
from maskedlark.adserver.sending import chunk
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


def freeze(
    datasets: Datasets,
    reports: Reports,
    receipts: ReceiptStore,
    dataset: Dataset,
    document: Document,
    helpers: Sequence[RemoteHelper],
) -> None:
    """Freeze a dataset that was sent everywhere."""
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
        _check(receipts, helper, document, dataset, answer, (digest.hex(), len(agreed)))
    # Nothing is answered before: masks on answers follow from it. Here it cannot be read.
    message = first.make_seed(digest.hex())
    at_once([partial(helper.relay_seed, digest.hex(), message) for helper in others])
    datasets.seal(dataset.name, digest, len(agreed))


def abort(datasets: Datasets, dataset: Dataset, helpers: Sequence[RemoteHelper]) -> None:
    """Take a dataset back everywhere that is frozen nowhere."""
    # All are asked before one lets go: what is sealed at one can only be finished.
    begun = [helper for helper in helpers if _is_there(helper, dataset.name)]
    at_once([partial(_abort, helper, dataset) for helper in begun])
    datasets.mark(dataset.name, DatasetState.ABORTED)


def give_up(datasets: Datasets, dataset: Dataset, helpers: Sequence[RemoteHelper]) -> list[str]:
    """Let go of a dataset that cannot be finished; returns the helpers who keep it.

    What is sealed at one helper stays there: the reports are taken, so they can be in no other dataset.
    """
    let_go = at_once([partial(_lets_go, helper, dataset) for helper in helpers])
    keeping = [helper.name for helper, gone in zip(helpers, let_go, strict=True) if not gone]
    datasets.mark(dataset.name, DatasetState.LOST if keeping else DatasetState.ABORTED)
    return keeping


def _members(
    datasets: Datasets, reports: Reports, dataset: Dataset, accepted: Sequence[str]
) -> NDArray[np.uint8]:
    """What all helpers saw of the reports that all accepted: read again from what was stored."""
    members = []
    for number, (start, bitmap) in enumerate(zip(datasets.chunks(dataset.name), accepted, strict=True)):
        page = chunk(reports, dataset, number, start)
        wanted = wire.unpack(bitmap, start.size)
        taken = [each.data for each, is_wanted in zip(page, wanted, strict=True) if is_wanted]
        public = [each for each in forms.public_parts(taken) if isinstance(each, PublicPart)]
        assert len(public) == len(taken), "what was stored had its form checked"
        ids = np.frombuffer(b"".join(part.id for part in public), np.uint8)
        hashes = np.frombuffer(b"".join(part.column_hash for part in public), np.uint8)
        hours = np.array([part.hour for part in public], np.uint32)
        members.append(wire.members(ids.reshape(-1, ID_BYTES), hours, hashes.reshape(-1, HASH_BYTES)))
    return np.concatenate(members)


def _agreed(datasets: Datasets, name: str, helpers: Sequence[str]) -> Iterator[str]:
    """A bitmap a chunk: what all helpers accepted of it."""
    for _, answers in groupby(datasets.answers(name), key=itemgetter(0)):
        said = {helper: answer for _, helper, answer in answers}
        assert said.keys() >= set(helpers), "a dataset is sealed when every chunk was answered by everyone"
        bitmaps = [wire.unpack(said[helper].accepted, said[helper].parts) for helper in helpers]
        yield wire.pack(np.logical_and.reduce(bitmaps))


def _check(
    receipts: ReceiptStore,
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
    opened = receipts.open(helper, document, signed)
    if not isinstance(opened, SealedReceipt):
        raise BadReceipt(f"{helper.name} gave a receipt of something else for sealing {dataset.name}")
    said = (opened.dataset, opened.records, opened.purpose)
    if said != (answer.digest, answer.records, dataset.selection.purpose.value):
        raise BadReceipt(f"{helper.name} gave a receipt of another dataset for sealing {dataset.name}")
    receipts.enter(helper, signed)


def _why(datasets: Datasets, dataset: Dataset) -> str:
    """How many each helper refused, and by which error."""
    refusals = datasets.refusals(dataset.name)
    said = [
        f"{helper} {reason} {count}"
        for helper, counts in refusals.items()
        for reason, count in counts.items()
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
        if _is_there(helper, dataset.name):
            _abort(helper, dataset)
    except (HelperAway, AlreadySealed):
        return False
    return True


def _abort(helper: RemoteHelper, dataset: Dataset) -> None:
    # It may be gone: an earlier try got through, and its answer did not.
    with suppress(NotThere):
        helper.abort(dataset.name, dataset.opening)
