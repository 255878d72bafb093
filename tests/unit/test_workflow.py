import doctest
import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark import workflow as workflow_module
from maskedlark.adserver.errors import NotFrozen
from maskedlark.clock import FixedClock
from maskedlark.core import field, sharing
from maskedlark.core.purpose import Purpose
from maskedlark.errors import Expired, NoiseTooSmall
from maskedlark.ledger.errors import BudgetExhausted
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.release.errors import TooFewRecords
from maskedlark.training.begin import begin
from maskedlark.wire import report
from maskedlark.workflow import Workflow
from tests.unit.training.cases import evaluate

CLOCK = FixedClock(1_900_000_000)
MEASURE = """
k = {k}
checks = {checks}
keys = ["campaign", "city"]
budget = {{epsilon = {epsilon}, delta = 0.0}}
values = {{profit = [-20, 100], visit = [0, 1]}}
mechanisms.sums = {{kind = "laplace", noise_floor = {floor}}}
"""
TRAIN = """
k = 20
budget = {epsilon = 90.0, delta = 1e-3}
training = {adserver = {epsilon = 50.0, delta = 1e-4}, coalition = {epsilon = 80.0, delta = 1e-4}}
mechanisms.gradient = {kind = "gaussian", noise_floor = 0.2}
mechanisms.cells = {kind = "gaussian", noise_floor = 0.2}
models.clicks.columns = [{kind = "bytes", count = 3}]
"""


def measuring(helpers=2, k=1, epsilon=1000.0, floor=0.01, rng=None, checks="false"):
    toml = MEASURE.format(k=k, epsilon=epsilon, floor=floor, checks=checks)
    return Workflow.declared(toml, helpers, CLOCK, rng or SystemRandomness())


@settings(max_examples=10, deadline=None)
@given(
    st.integers(2, 5),
    st.integers(1, 30),
    st.booleans(),
    st.sampled_from(["true", "false"]),
    st.binary(max_size=6),
)
def test_sums_and_counts_are_true_but_for_noise_for_any_number_of_helpers(
    helpers, records, decoded, checks, seed
):
    rng = FixedRandomness(seed)
    campaign, city = rng.below(3, records).tolist(), [("Rome", "Seattle")[i] for i in rng.below(2, records)]
    profit, visit = rng.below(121, records) - 20, rng.below(2, records)
    with measuring(helpers, checks=checks) as way:
        way.make_aggregate_dataset("table", [campaign, city], [profit, visit], decoded)
        answer = way.query(["count", "profit", "visit"], ("city", "campaign"))
    assert {row.group for row in answer.rows} == set(zip(city, campaign, strict=True))
    for row in answer.rows:
        mine = (np.array(city) == row.group[0]) & (np.array(campaign) == row.group[1])
        count, profits, visits = (each.estimate for each in row.numbers)
        # Noise of a hundredth of what one record can change: whole numbers round it off, but for profit's.
        assert (count, visits) == (mine.sum(), visit[mine].sum())
        assert abs(profits - profit[mine].sum()) < 100


def test_no_helper_holds_the_truth_and_all_together_do():
    labels = np.array([0, 1] * 50)
    with Workflow.declared(TRAIN, 3, CLOCK, SystemRandomness()) as way:
        way.make_training_dataset("reports", "clicks", np.zeros((100, 3), np.uint8), [labels])
        views = way.views["reports"]
    assert not any(np.isin(view.shares, (0, 1)).any() for view in views)
    total = field.to_signed(sharing.combine([view.shares for view in views]))
    assert sorted(total[:, 1].tolist()) == sorted(labels.tolist())


def test_the_ad_server_stores_reports_of_one_size_that_show_the_hour_and_nothing_else():
    with measuring() as way:
        way.make_aggregate_dataset("table", [[1, 2], ["Rome", "a much longer name"]], [[0, 100], [0, 1]])
        stored = way.stored["table"]
    assert len({len(data) for data in stored}) == 1
    layout = way.document.layout(Purpose.AGGREGATE)
    first, second = (report.decode_prefix(data) for data in stored)
    assert first == second == (Purpose.AGGREGATE, way.document.digest, way.document.origin)
    assert CLOCK.now() // 3600 - 24 <= layout.head(stored[0]).hour <= CLOCK.now() // 3600


def test_k_noise_and_budget_are_enforced():
    with measuring(k=20, epsilon=3.0, floor=1.0, rng=FixedRandomness(b"")) as way:
        with pytest.raises(NotFrozen, match="no dataset"):
            way.query(["count"])
        way.make_aggregate_dataset("few", [[1] * 19, ["Rome"] * 19], [[0] * 19] * 2, decoded=True)
        with pytest.raises(TooFewRecords):
            way.query(["count"])
        way.make_aggregate_dataset(
            "table", [[1] * 40 + [2] * 19, ["Rome"] * 59], [[0] * 59] * 2, decoded=True
        )
        with pytest.raises(NoiseTooSmall):
            way.query(["count"], noise=0.9, datasets=["table"])
        shown = way.query(["count"], "campaign", epsilon=1.0, datasets=["table"])
        assert [row.group for row in shown.rows] == [(1,)]
        way.query(["profit", "visit"], "campaign", datasets=["table"])
        with pytest.raises(BudgetExhausted):
            way.query(["visit"], "campaign", datasets=["table"])
        for helper in way.helpers:  # Two datasets and two answers.
            assert len(helper.ledger.receipts(way.document.origin)) == 4
            assert helper.ledger.receipts(way.document.origin) == way.receipts(helper.name)


@pytest.mark.parametrize("options", [{"batches": 2}, {"sampling_rate": 0.5}, {"sampling": "whole"}])
@pytest.mark.parametrize("helpers", [2, 3])
def test_training_and_evaluation_go_as_against_the_ad_servers_client(helpers, options):
    rng = FixedRandomness(b"training")
    features = rng.below(256, 600).reshape(200, 3).astype(np.uint8)
    runs = []
    for _ in range(2):
        noise = [FixedRandomness(b"helper %d" % place) for place in range(helpers)]
        way: Any = Workflow.declared(TRAIN, helpers, CLOCK, FixedRandomness(b"all"), noise)
        with way:
            way.make_training_dataset("table", "clicks", features, [features[:, 0] > 128], decoded=True)
            torch.manual_seed(1)
            model = torch.nn.Linear(3, 1)
            chosen = {"loss": "bce", "tag": "clicks", "steps": 4, "noise": 2.0, "delta": 1e-6, **options}
            training, optimiser = begin(way, model, **chosen), torch.optim.SGD(model.parameters(), lr=0.1)
            with training:
                for step in training:
                    step.backward()
                    optimiser.step()
            evaluated = evaluate(way, training, noise=1.0)
            assert set(evaluated.answered.receipts) == {each.name for each in way.helpers}
        runs.append((model.weight.detach().numpy().tobytes(), str(evaluated)))
    assert runs[0] == runs[1]


def test_a_dataset_expires_and_nothing_is_left_of_a_run_that_is_let_go_of():
    way = measuring()
    digest = way.make_aggregate_dataset("table", [[1], ["Rome"]], [[1], [1]])
    for helper in way.helpers:
        helper.datasets[digest].expires = CLOCK.now()
    with pytest.raises(Expired):
        way.query(["count"])
    assert "shares" not in repr(way.views) + repr(way.helpers)
    folder = Path(str(way.helpers[0].database.engine.url.database)).parent.parent
    assert folder.exists()
    del way, helper
    gc.collect()
    assert not folder.exists()


def test_the_example_that_one_reads_first_runs_as_it_stands():
    tried = doctest.testmod(workflow_module)
    assert (tried.failed, tried.attempted > 5) == (0, True)
