import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark import workflow
from maskedlark.clock import FixedClock
from maskedlark.core import field
from maskedlark.core.candidates import ALL, Pair, Sample
from maskedlark.core.declared import Measure, Model, Value
from maskedlark.core.labels import LabelSpace
from maskedlark.errors import FieldOverflow, NotDeclared
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.wire import report

CLOCK = FixedClock(1_794_441_600)
MEASURE = Measure(("campaign", "city"), (Value("profit", -20, 100), Value("visit", 0, 1)))


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 5), st.integers(1, 30), st.binary(max_size=6))
def test_sums_and_counts_are_true_for_any_number_of_helpers(helpers, records, seed):
    rng = FixedRandomness(seed)
    campaign, city = rng.below(3, records).tolist(), [("Rome", "Seattle")[i] for i in rng.below(2, records)]
    profit, visit, real = rng.below(121, records) - 20, rng.below(2, records), rng.below(5, records) > 0
    way = workflow.measure(MEASURE, [campaign, city], [profit, visit], helpers, rng, CLOCK, real)
    answers = way.sums(["city", "campaign"])
    assert len(answers) == len(set(zip(city, campaign, strict=True)))
    for (place, number), answer in answers.items():
        mine = real & (np.array(city) == place) & (np.array(campaign) == number)
        assert answer == {"count": mine.sum(), "profit": profit[mine].sum(), "visit": visit[mine].sum()}
    assert way.sums()[()]["count"] == real.sum()


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 5), st.sampled_from([ALL, Pair(), Sample(3)]), st.binary(max_size=6))
def test_masked_sums_of_any_function_are_true(helpers, policy, seed):
    rng = FixedRandomness(seed)
    model = Model("tag", 3, (LabelSpace.integers(-2, 3), LabelSpace.binary()), policy)
    features = rng.below(256, 60).reshape(20, 3).astype(np.uint8)
    labels, second, real = rng.below(6, 20) - 2, rng.below(2, 20), rng.below(5, 20) > 0
    way = workflow.train(model, features, [labels, second], helpers, rng, CLOCK, real)

    def function(x, y):
        x = x.astype(np.int64)
        return np.stack([x[:, 0] * y**3, (y == 2) * 10**12, x.sum(axis=1) - y], axis=1)

    assert way.masked_sum(function).tolist() == function(features, labels)[real].sum(axis=0).tolist()
    assert way.masked_sum(function, label=1).tolist() == function(features, second)[real].sum(axis=0).tolist()


def test_no_helper_holds_the_truth_and_all_together_do():
    labels = np.array([0, 1] * 50)
    way = workflow.train(
        Model("tag", 1), np.zeros((100, 1), np.uint8), [labels], 3, SystemRandomness(), CLOCK
    )
    for helper in way.helpers:
        assert not np.isin(helper.opened.shares, (0, 1)).any()
    total = field.total(np.stack([helper.opened.shares for helper in way.helpers]))
    assert total[:, 1].tolist() == labels.tolist()


def test_the_ad_server_stores_reports_of_one_size_that_show_the_hour_and_nothing_else():
    way = workflow.measure(
        MEASURE, [[1, 2], ["Rome", "a much longer name"]], [[0, 100], [0, 1]], 2, SystemRandomness(), CLOCK
    )
    assert len({len(data) for data in way.reports}) == 1
    first, second = (report.decode_public(report.decode(data).public) for data in way.reports)
    assert first.hour == CLOCK.now() // 3600
    assert first._replace(id=b"", column_hash=b"") == second._replace(id=b"", column_hash=b"")


def test_questions_that_were_not_declared_are_refused():
    rng = SystemRandomness()
    measured = workflow.measure(MEASURE, [[1], ["Rome"]], [[5], [1]], 2, rng, CLOCK)
    with pytest.raises(NotDeclared, match="group by campaign, city"):
        measured.sums(["country"])
    with pytest.raises(NotDeclared, match="reports to train"):
        measured.masked_sum(lambda x, y: y[:, None])
    trained = workflow.train(Model("tag", 1), np.zeros((1, 1), np.uint8), [[1]], 2, rng, CLOCK)
    with pytest.raises(NotDeclared, match="reports to aggregate"):
        trained.sums()
    with pytest.raises(NotDeclared, match="return int64"):
        trained.masked_sum(
            lambda x, y: x.sum(axis=1, keepdims=True) - y[:, None]
        )  # uint64 - int64 is float64
    with pytest.raises(NotDeclared, match="one row a record"):
        trained.masked_sum(lambda x, y: y)
    with pytest.raises(FieldOverflow, match="larger units"):
        trained.masked_sum(lambda x, y: np.full((1, 1), 2**60))
    with pytest.raises(NotDeclared, match="takes 1 features"):
        workflow.train(Model("tag", 1), np.zeros((1, 2), np.uint8), [[1]], 2, rng, CLOCK)
    with pytest.raises(NotDeclared, match="2 keys are declared"):
        workflow.measure(MEASURE, [[1]], [[5], [1]], 2, rng, CLOCK)
    with pytest.raises(NotDeclared, match="nothing to measure"):
        workflow.measure(Measure((), ()), [], [], 2, rng, CLOCK)
    huge = Measure((), (Value("v", 0, field.HALF),))
    with pytest.raises(FieldOverflow):
        workflow.measure(huge, [], [[1, 1]], 2, rng, CLOCK).sums()
    assert "shares" not in repr(measured) + repr(measured.helpers[0])
