"""The simulation finds mistakes that are planted: one that finds none would prove nothing."""

import re
from contextlib import suppress
from typing import Any
from unittest import mock

import numpy as np
import pytest

from maskedlark.adserver.report_store import Outcome, Reports
from maskedlark.core import validity
from maskedlark.helper import check_keys
from maskedlark.helper.check_keys import CheckKey, CheckKeys
from maskedlark.helper.ids import Ids
from maskedlark.ledger import rows
from maskedlark.ledger.budget import Account
from maskedlark.ledger.ledger import Ledger
from maskedlark.parameters.document import Document
from maskedlark.web import request_signature
from maskedlark.web.request_signature import RequestVerifier, VerifiedRequest
from tests.simulation.schedule import draw, run
from tests.simulation.shrinking import failure, shrink

SEEDS = range(12)


def forgets_what_it_stored(self: Reports, batch: Any) -> list[Outcome]:
    return [Outcome.STORED] * len(batch)


def takes_ids_again(self: Ids, connection: Any, mark: Any, ids: Any) -> Any:
    return np.zeros(len(ids), np.bool_)


def takes_any_key(self: RequestVerifier, *request: Any) -> VerifiedRequest:
    signed, _ = request_signature.read(*request)
    return VerifiedRequest(signed.origin, signed.digest)


def all_are_valid(numbers: Any) -> Any:
    return np.ones(len(numbers[0]), np.bool_)


def another_key(self: CheckKeys, document: Document) -> CheckKey:
    """One for every hour."""
    return check_keys.derive(b"%d" % (self._clock.now() // 3600), document)


PLANTED = {
    "an upload is acknowledged and not stored": (Reports, "store", forgets_what_it_stored, "not stored"),
    "a receipt leaves before the anchor knows": (
        Ledger,
        "advance_anchor",
        lambda *_: None,
        "anchor|lacks receipts",
    ),
    "a report that is not valid is taken": (validity, "valid", all_are_valid, "not valid"),
    "a helper checks with a second key": (CheckKeys, "of", another_key, "two points|pin"),
    "a budget is never used up": (Account, "fits", lambda *_: True, "cost more"),
    "a question is charged anew every time": (rows, "find", lambda *_: None, ""),
    # Where both datasets hold the same and nothing else, the second cannot be frozen.
    "a report may be in two datasets": (
        Ids,
        "are_claimed",
        takes_ids_again,
        "two datasets|/freeze.* a bare 500",
    ),
    "an old copy of a ledger is taken": (rows, "check_anchor", lambda *_: None, "old copy"),
    "a key that was replaced is taken": (RequestVerifier, "verify", takes_any_key, "newer one replaced"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (place % 2)) for place, name in enumerate(PLANTED)]
)
def test_a_planted_mistake_is_found(name):
    where, what, mistake, words = PLANTED[name]
    with mock.patch.object(where, what, mistake), suppress(StopIteration):
        found = next(filter(None, (failure(draw(seed)) for seed in SEEDS)))
        assert re.search(words, found)
        return
    pytest.fail("nothing was found")


def test_what_fails_is_made_short():
    where, what, mistake, words = PLANTED["an upload is acknowledged and not stored"]
    with mock.patch.object(where, what, mistake):
        short = shrink(draw(0, 40))
        assert [step.operation for step in short.steps] in (["upload"], ["upload_again"])
        assert words in (failure(short) or "")


def test_a_schedule_runs_the_same_each_time():
    assert run(draw(7, 80)) == run(draw(7, 80))
