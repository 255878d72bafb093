import json
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from sklearn.base import clone

from maskedlark.errors import FieldOverflow
from maskedlark.fitting import CellLabels, LinearRegression, LogisticRegression, compare
from maskedlark.fitting.moments_request import FRACTION, arguments
from maskedlark.functions.moments import Moments
from maskedlark.training.plan import HOPELESS
from tests.unit.fitting import cases

CELLS = 'mechanisms.cells = {kind = "laplace", noise_floor = 0.02}'


def test_a_plan_says_what_it_costs_and_spends_nothing():
    way, features, _ = cases.filled(epsilon=4.0, floor=0.5)
    with way:
        model = LogisticRegression(way, cases.TAG, epsilon=1.0)
        plan = model.plan(features)
        assert all(len(each.ledger.receipts(way.document.origin)) == 1 for each in way.helpers)
        figures = plan.figures()
        assert json.loads(json.dumps(figures)) == figures
        assert 0.9 < figures["epsilon"] <= 1.0
        assert figures["coalition_epsilon"] == figures["epsilon"]
        assert figures["fits"] is True
        assert figures["left_epsilon"] == pytest.approx(4.0 - figures["epsilon"])
        assert 0.5 < figures["auc"] - 2 * figures["auc_deviation"] < figures["auc"] < 1
        assert {each["map"] for each in figures["others"]} == {"columns", "buckets", "trees", "random"}
        assert all(each["explained"] <= figures["explained"] <= 1 for each in figures["others"])
        said = str(plan)
        for part in ("against the ad server and against it with all helpers but one", "AUC 0.", "3,000 rows"):
            assert part in said
        model.fit(features)
        balance = model.answered_.balance
        assert balance.charged_epsilon == pytest.approx(figures["epsilon"])
        assert model.answered_.noise == figures["noise"]
        assert model.map_.kind == figures["map"]
        assert model.clip_ == figures["clip"]


def left(way):
    """ε of a source's budget."""
    return way.budget().limits[0].left


def test_the_plan_of_what_was_answered_is_of_its_noise_and_has_no_price():
    """Gaussian, so that after another release the same ε takes less noise; and nothing else fits."""
    way, features, _ = cases.filled(epsilon=4.0, floor=0.1, more=CELLS)
    with way:
        linear = LogisticRegression(way, cases.TAG, epsilon=2.0, map="columns")
        cells, other = CellLabels(way, cases.TAG, epsilon=0.5), clone(linear).set_params(epsilon=1.0)
        first = linear.plan(features)
        for model in (linear, cells, other):
            model.fit(features)
        for model in (linear, cells):
            plan, said = model.plan(features), str(model.plan(features))
            assert plan.explained.noise == model.answered_.noise
            assert (plan.epsilon, plan.explained.charged_coalition_epsilon) == (0, 0)
            assert plan.explained.left_epsilon == pytest.approx(left(way))
            assert plan.is_answered
            assert plan.fits, "which it would not if it were new"
            assert said.count("asked and answered before: fitting it again costs nothing") == 1
            assert "ε = " not in said
            assert "would leave" not in said
        figures, before = linear.plan(features).figures(), first.figures()
        same = ("noise", "map", "clip", "explained", "auc", "auc_deviation", "coefficient_error", "others")
        assert [figures[name] for name in same] == [before[name] for name in same]
        assert (figures["is_answered"], figures["fits"], figures["epsilon"]) == (True, True, 0)


def test_a_plan_of_what_was_begun_is_of_its_noise(monkeypatch):
    def dead(*_):
        raise KeyboardInterrupt

    way, features, _ = cases.filled(epsilon=4.0, floor=0.1)
    with way:
        model = LogisticRegression(way, cases.TAG, epsilon=1.0, map="columns")
        with monkeypatch.context() as patch:
            patch.setattr("maskedlark.adserver.requests.Requests.mark", dead)
            with pytest.raises(KeyboardInterrupt):
                model.fit(features)
        noise = model.plan(features).noise
        assert noise == model.fit(features).answered_.noise


def test_after_other_releases_a_plan_is_of_the_noise_that_it_prints():
    """It was of the noise of a first release of that ε, which still chooses: to resume asks the same."""
    way, features, _ = cases.filled(epsilon=100.0, floor=0.1)
    with way:
        fresh = LogisticRegression(way, cases.TAG, epsilon=0.3).plan(features)
        LogisticRegression(way, cases.TAG, epsilon=20.0, map="columns").fit(features)
        model = LogisticRegression(way, cases.TAG, epsilon=0.3)
        plan = model.plan(features)
        assert plan.noise < fresh.noise / 2
        assert (plan.map, plan.clip) == (fresh.map, fresh.clip)
        same = LogisticRegression(way, cases.TAG, noise=plan.noise, map=plan.map, clip=plan.clip)
        told = same.plan(features)
        for name in ("share", "auc", "coefficient_error"):
            assert getattr(plan, name) == pytest.approx(getattr(told, name), rel=1e-6), name
            assert getattr(plan, name) != getattr(fresh, name)
        assert plan.coefficient_error < fresh.coefficient_error
        better = round(max(share for *_, share in plan.others), 2) > round(plan.share, 2)
        assert ("auto chooses as if nothing had been spent" in str(plan)) == better
        assert "auto chooses" not in str(fresh)
        assert model.fit(features).answered_.noise == plan.noise


def test_a_plan_over_the_budget_says_what_fits():
    way, features, _ = cases.filled(epsilon=4.0, floor=0.01)
    with way:
        plan = LogisticRegression(way, cases.TAG, noise=0.2, map="columns").plan(features)
        assert not plan.fits
        assert "more than is left: 4 of 4 is left of a source's budget; epsilon = 4 fits, or noise" in str(
            plan
        )
        fits = LogisticRegression(way, cases.TAG, noise=plan.explained.noise_that_fits, map="columns")
        assert fits.plan(features).fits


def test_the_error_of_a_coefficient_counts_labels_rounded_at_random(monkeypatch):
    """To buckets of 10, with next to no noise; no row is clipped, as the plan takes it."""
    monkeypatch.setitem(cases.LABELS, "least squares", cases.LABELS["least squares"].replace("20", "2"))
    way, features, _ = cases.filled("least squares")
    with way:
        model = LinearRegression(way, cases.TAG, noise=0.05, map="columns", clip=10.0, ridge=1e-3)
        plan = model.plan(features)
        errors = model.fit(features).model_.errors[0, :-1]
    expected = np.sqrt(10**2 / 4 / len(features) / (features[:, 0] / 255).var())
    assert plan.coefficient_error == pytest.approx(expected, rel=0.1)
    assert np.median(errors) == pytest.approx(expected, rel=0.1)


def test_less_noise_explains_more_and_a_number_has_no_auc():
    way, features, _ = cases.filled("least squares")
    with way:
        plans = [LinearRegression(way, cases.TAG, noise=each).plan(features) for each in (0.1, 1, 10)]
    assert [plan.auc for plan in plans] == [None] * 3
    shares = [plan.share for plan in plans]
    assert shares == sorted(shares, reverse=True)
    errors = [plan.coefficient_error for plan in plans]
    assert errors[0] < errors[1]


def test_a_plan_of_which_nothing_will_come_says_so():
    way, features, _ = cases.filled(epsilon=4.0, floor=0.01)
    with way:
        hopeless = LogisticRegression(way, cases.TAG, noise=2000.0, map="columns").plan(features)
        assert str(hopeless).splitlines()[-1] == HOPELESS
        assert hopeless.figures()["hopeless"] is True
        assert HOPELESS not in str(
            LogisticRegression(way, cases.TAG, epsilon=1.0, map="columns").plan(features)
        )


def test_moments_of_long_labels_are_planned_to_fit_the_field():
    """With 16 bits helpers refuse them: numbers of ten digits, times clip factors, times 3,000 records."""
    far = '{kind = "reals", value = "spent", low = -2000000000, high = 2000000000, buckets = 20}'
    with mock.patch.dict(cases.LABELS, far=far):
        way = cases.workflow("far", more="values.far = [-2000000000, 2000000000]\nmax_records = 1000000")
    features = cases.rows()
    truth = cases.scores(features) * 1e9 / 2
    way.make_training_dataset("first", cases.TAG, features, [truth], decoded=True)
    with way:
        model = LinearRegression(way, cases.TAG, noise=0.1, map="columns")
        figures, said = model.plan(features).figures(), str(model.plan(features))
        assert 8 <= figures["fraction"] < FRACTION
        assert f"clip factors have {figures['fraction']} bits, not 16, so that sums fit the field" in said
        predicted = model.fit(features).predict(features)
        assert model.model_.phi.fraction == figures["fraction"]
        assert np.corrcoef(predicted, truth)[0, 1] > 0.95
        finer = replace(model.model_.phi, fraction=figures["fraction"] + 1)
        asked = arguments(cases.TAG, 0, finer)
        with pytest.raises(FieldOverflow, match="could leave the field"):
            way.price(Moments(), asked, None, 0.1, None)
        assert len(compare([model], features, noise=0.1).losses) == 1
