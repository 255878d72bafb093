"""Freezes a dataset at all helpers: the reports of every chunk that all accepted, under one digest.

Then relays the dataset's shared seed from the first helper to the others. Run on the ad server's
machine; every call is safe to repeat.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import compress, groupby
from operator import itemgetter

import numpy as np

from maskedlark.adserver.dataset_store import Dataset, DatasetState
from maskedlark.adserver.errors import DatasetChanged, EmptyDataset, HelperAway, HelpersDiffer
from maskedlark.adserver.heads import SortedHeads
from maskedlark.adserver.receipt_store import ReceiptStore
from maskedlark.adserver.remote_helper import RemoteHelper, at_once
from maskedlark.adserver.sending import Sending
from maskedlark.ledger import receipt
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import FrozenReceipt
from maskedlark.web.errors import AlreadyFrozen, ChunkUnchecked, NotThere
from maskedlark.wire import datasets as wire
from maskedlark.wire.datasets import DatasetDigest, FreezeRequest, Frozen


def freeze(sending: Sending, receipts: ReceiptStore) -> None:
    """Freeze a dataset that was sent everywhere."""
    dataset, document, (first, *others) = sending.dataset, sending.document, sending.helpers
    accepted = tuple(_agreed(sending))
    if not any(bitmap.strip("0") for bitmap in accepted):
        raise EmptyDataset(f"no report of {dataset.name} was accepted by all helpers: {_why(sending)}")
    # Computed here from what was sent: a helper that computes another digest refuses, even the first one.
    agreed = _heads(sending, accepted)
    digest = agreed.digest(DatasetDigest(document.origin, document.digest, dataset.selection.purpose))
    request = FreezeRequest(accepted=accepted, digest=digest.hex())
    # One helper first: if it refuses, nothing is frozen anywhere, and the dataset can be aborted.
    sending.stage("frozen by helpers", 0, len(sending.helpers))
    answers = [_freeze(sending, request, first)]
    sending.stage("frozen by helpers", 1, len(sending.helpers))
    answers += at_once([partial(_freeze, sending, request, helper) for helper in others])
    sending.stage("frozen by helpers", len(answers), len(sending.helpers))
    for helper, answer in zip(sending.helpers, answers, strict=True):
        if (answer.digest, answer.records) != (digest.hex(), agreed.count):
            raise HelpersDiffer(
                f"{helper.name} froze {dataset.name} with another digest than that of its reports"
            )
        _enter(sending, receipts, helper, answer)
    # No query is answered before this: masks on answers derive from the seed. We cannot read it.
    message = first.make_seed(digest.hex())
    at_once([partial(helper.relay_seed, digest.hex(), message) for helper in others])
    sending.datasets.freeze(dataset.name, digest, agreed.count)


def abort(sending: Sending) -> None:
    """Abort a dataset that no helper has frozen, at all helpers."""
    # Ask all before any aborts: what one helper has frozen can only be finished.
    begun = [helper for helper in sending.helpers if _is_there(helper, sending.dataset.name)]
    at_once([partial(_abort, helper, sending.dataset) for helper in begun])
    sending.datasets.mark(sending.dataset.name, DatasetState.ABORTED)


def give_up(sending: Sending) -> list[str]:
    """Give up a dataset that cannot be finished; returns the helpers that may have frozen it."""
    let_go = at_once([partial(_lets_go, helper, sending.dataset) for helper in sending.helpers])
    keeping = [helper.name for helper, gone in zip(sending.helpers, let_go, strict=True) if not gone]
    sending.datasets.mark(sending.dataset.name, DatasetState.LOST if keeping else DatasetState.ABORTED)
    return keeping


def _freeze(sending: Sending, request: FreezeRequest, helper: RemoteHelper) -> Frozen:
    try:
        return helper.freeze(sending.dataset.name, request, sending.dataset.attempt)
    except ChunkUnchecked:
        # It was restored from before its verdicts, which are stored here: the same again relays all messages.
        sending.datasets.forget_verdicts(sending.dataset.name, helper.name)
        raise


def _heads(sending: Sending, accepted: Sequence[str]) -> SortedHeads:
    """What all helpers saw of the reports that all accepted, read again from storage."""
    heads, layout = SortedHeads(), sending.document.layout(sending.dataset.selection.purpose)
    chunks = sending.datasets.chunks(sending.dataset.name)
    for number, (start, bitmap) in enumerate(zip(chunks, accepted, strict=True)):
        taken = list(compress(sending.stored(number, start), wire.unpack(bitmap, start.size)))
        heads.add(layout.heads(taken))
        sending.stage("chunks in the digest", number + 1, len(accepted))
    return heads


def _agreed(sending: Sending) -> Iterator[str]:
    """One bitmap per chunk: what all helpers accepted, and found valid if reports are checked."""
    helpers, name = [helper.name for helper in sending.helpers], sending.dataset.name
    stored = sending.datasets.answers(name, sending.document.checked)
    for _, answers in groupby(stored, key=itemgetter(0)):
        said = {helper: answer for _, helper, answer in answers}
        if not said.keys() >= set(helpers):
            raise DatasetChanged(f"{name} was sent to a helper again by another client: do the same again")
        bitmaps = [wire.unpack(said[helper].accepted, said[helper].parts) for helper in helpers]
        yield wire.pack(np.logical_and.reduce(bitmaps))


def _enter(sending: Sending, receipts: ReceiptStore, helper: RemoteHelper, answer: Frozen) -> None:
    """Store a helper's receipt for the dataset it froze."""
    signed, name = receipt.decode(answer.receipt), sending.dataset.name
    opened = receipts.open(helper, sending.document, signed)
    if not isinstance(opened, FrozenReceipt):
        raise BadReceipt(f"{helper.name} gave a receipt of something else for freezing {name}")
    said = (opened.dataset, opened.records, opened.purpose, opened.invalid)
    invalid = sending.datasets.invalid(name, helper.name)
    if said != (answer.digest, answer.records, sending.dataset.selection.purpose.value, invalid):
        raise BadReceipt(f"{helper.name} gave a receipt of another dataset for freezing {name}")
    receipts.enter(helper, signed)


def _why(sending: Sending) -> str:
    """How many reports each helper refused, by error."""
    refusals = sending.datasets.refusals(sending.dataset.name).items()
    said = [f"{helper} {reason} {count}" for helper, counts in refusals for reason, count in counts.items()]
    return "; ".join(said) or "each helper accepted others"


def _is_there(helper: RemoteHelper, name: str) -> bool:
    try:
        state = helper.state(name)
    except NotThere:
        return False
    if state.state != "open":
        raise AlreadyFrozen(
            f"{helper.name} has frozen {name}: send it again, which finishes it. If another helper refuses "
            f"that for good, `datasets abort {name} --give-up` lets go of it"
        )
    return True


def _lets_go(helper: RemoteHelper, dataset: Dataset) -> bool:
    """Whether the helper no longer holds the dataset; False if that cannot be known."""
    try:
        if _is_there(helper, dataset.name):
            _abort(helper, dataset)
    except (HelperAway, AlreadyFrozen):
        return False
    return True


def _abort(helper: RemoteHelper, dataset: Dataset) -> None:
    # It may be gone: an earlier request got through, but its answer did not.
    with suppress(NotThere):
        helper.abort(dataset.name, dataset.attempt)
