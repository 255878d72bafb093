"""The plan on paper: the page is what the script prints, and the script follows from its figures."""

import math
from pathlib import Path

import pytest

from experiments import scale_plan
from experiments.scale_plan import DAYS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "SCALE.md").read_text()


def test_the_page_has_what_the_script_prints():
    """If not: put the output of `python -m experiments.scale_plan` in its place."""
    for table in scale_plan.tables():
        assert table in PAGE


@pytest.mark.parametrize("figure", ["1,600 uploads/s", "21,365 reports/s", "5.5 ms", "17.6 ms", "6.8 ms"])
def test_figures_are_those_of_the_page_on_speed(figure):
    assert figure in (ROOT / "docs" / "SPEED.md").read_text()


def test_the_time_to_claim_an_id_is_the_one_that_was_measured():
    assert f"with 713,000 ids {scale_plan.CLAIM_S * 1e6:g} against" in (ROOT / "CONTRIBUTING.md").read_text()


@pytest.mark.parametrize("reports", DAYS)
def test_a_plan_says_the_same_things_of_every_size(reports):
    assert list(scale_plan.plan(reports)) == list(scale_plan.plan(DAYS[0]))


def test_the_longest_worker_is_never_below_the_mean_and_near_it_where_shards_are_many():
    assert scale_plan.balance(256, 256) > scale_plan.balance(2112, 16) >= 1
    assert scale_plan.balance(100, 1) == 1


def test_nobody_waits_where_nobody_comes_and_for_ever_past_the_rate():
    assert scale_plan.waiting(0) == 0
    most = 3600 * scale_plan.INGEST_HOURS / scale_plan.CLAIM_S
    assert math.isinf(scale_plan.waiting(int(most) + 1))
    assert math.isfinite(scale_plan.waiting(int(0.99 * most)))
