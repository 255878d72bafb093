"""What simulations found, each with its shortest schedule."""

import pytest

from tests.simulation.faults import Fault, Kind
from tests.simulation.schedule import Schedule, Step, run

BEGUN = (Step("upload", 0, 5), Step("upload", 0, 5), Step("select", 0, 0))
FROZEN = (*BEGUN, Step("send", 0, 0))


@pytest.mark.parametrize("at", [3, 4], ids=["the file", "its folder"])
def test_a_full_disk_under_the_anchor_is_no_mistake_of_the_helper(at):
    """Its database has the charge, the anchor cannot be written: a bare 500 says nothing of trying again."""
    run(Schedule(0, 2, 1, (*FROZEN, Step("query", 0, 1, Fault(Kind.FULL, at)))))


def test_a_full_disk_under_a_helpers_cache_is_no_mistake_of_the_helper():
    """It cannot keep a document that it has verified, when a dataset is begun under it."""
    run(Schedule(0, 2, 1, (*BEGUN, Step("send", 0, 0, Fault(Kind.FULL, 4)))))


@pytest.mark.parametrize("operation", ["select", "send"])
def test_a_full_disk_under_the_ad_servers_cache_is_an_error_of_ours(operation):
    steps = BEGUN[:2] if operation == "select" else BEGUN
    run(Schedule(0, 2, 1, (*steps, Step(operation, 0, 0, Fault(Kind.FULL, 0)))))


def test_a_full_disk_when_a_helper_starts_is_an_error_of_ours():
    run(Schedule(1159, 3, 1, (Step("restart", 53678, 18596, Fault(Kind.FULL, 2)),)))
