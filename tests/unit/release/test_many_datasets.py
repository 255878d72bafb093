"""Hourly datasets of weeks in one release: asked for without names, charged each, in one receipt."""

import pytest

from maskedlark.clock import FixedClock
from maskedlark.ledger.receipt import ReleaseReceipt
from maskedlark.randomness import SystemRandomness
from maskedlark.release.messages import Request
from maskedlark.workflow import Workflow

SETTINGS = """
k = 1
keys = ["city"]
budget = {epsilon = 8.0, delta = 0.0}
values = {visit = [0, 1]}
mechanisms.sums = {kind = "laplace", noise_floor = 0.5}
"""
WEEKS = 367
"""One more than a request could name before."""
MONTHS = 2000


def test_a_request_over_hourly_datasets_of_months_is_read():
    digests = tuple(f"{number:064x}" for number in range(MONTHS))
    asked = Request(id="0" * 32, datasets=digests, function="sums", arguments={}, noise=1.0)
    assert Request.decode(asked.encode()) == asked


@pytest.mark.long
def test_a_query_without_names_over_hourly_datasets_of_weeks_charges_each_once():
    with Workflow.declared(SETTINGS, 2, FixedClock(1_900_000_000), SystemRandomness()) as way:
        for number in range(WEEKS):
            way.make_aggregate_dataset(f"hour-{number}", [["Rome"] * 2], [[1] * 2], decoded=True)
        (row,) = way.query(["visit"], noise=0.5, confidence=1 - 1e-9).rows
        (visits,) = row.numbers
        assert visits.low <= 2 * WEEKS <= visits.high
        assert visits.high - visits.low < 100, "the noise of two helpers, once"
        for helper in way.helpers:
            *_, last = [each.claimed() for each in helper.ledger.receipts("ads.example", WEEKS)]
            assert isinstance(last, ReleaseReceipt)
            assert len(last.datasets) == WEEKS
        (limit, *_) = way.budget().limits
        assert limit.spent == pytest.approx(2)
