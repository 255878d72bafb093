import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from threadpoolctl import threadpool_limits
from torch import nn

from maskedlark.errors import BadArguments, MaskedLarkError, NotDeclared
from maskedlark.exact.errors import ModelDoesNotFit, WeightsDoNotFit
from maskedlark.features import Encoder
from maskedlark.fitting import CellLabels, cell_labels, maps
from maskedlark.fitting.clusters import Clusters, Space
from maskedlark.fitting.errors import RowsDiffer
from maskedlark.functions import weights
from maskedlark.ledger.errors import BudgetExhausted
from maskedlark.release.errors import TooFewRecords
from maskedlark.training.errors import RowsDoNotFit
from maskedlark.training.public_rows import real_error
from tests.unit.fitting import cases
from tests.unit.fitting.charged import charges

CELLS = 'mechanisms.cells = {kind = "laplace", noise_floor = 0.02}'


def blobs(count=2000, seed=0):
    """Rows around six points of feature space, and the point of each."""
    rng = np.random.default_rng(seed)
    centres = rng.integers(40, 215, (6, cases.FEATURES))
    place = rng.integers(0, 6, count)
    rows = np.clip(centres[place] + rng.normal(0, 12, (count, cases.FEATURES)), 0, 255).astype(np.uint8)
    return rows, place


def filled(label="softmax", count=2000, **options):
    rows, place = blobs(count)
    truth = place % (3 if label == "softmax" else 2)
    way = cases.workflow(label, more=CELLS, **options)
    way.make_training_dataset("first", cases.TAG, rows, [truth], decoded=True)
    return way, rows, truth


@pytest.fixture(scope="module")
def three():
    way, rows, truth = filled()
    with way:
        yield way, rows, truth, CellLabels(way, cases.TAG, epsilon=1.0).fit(rows)


def test_rows_get_their_labels_and_others_those_of_the_nearest(three):
    *_, truth, model = three
    assert model.soft_.shape == (2000, 3)
    np.testing.assert_allclose(model.soft_.sum(axis=1), 1, atol=1e-5)
    assert (model.soft_.argmax(axis=1) == truth).mean() > 0.99
    assert model.counts_.shape == (model.cells_.max() + 1, 3)
    others, place = blobs(500, seed=0)
    assert (model.predict(others) == place % 3).mean() > 0.99
    np.testing.assert_allclose(model.predict_proba(others).sum(axis=1), 1, atol=1e-5)
    assert is_classifier(model)
    assert list(model.classes_) == [0, 1, 2]
    low, high = model.error_.right
    assert low < (model.soft_.argmax(axis=1) == truth).mean() <= high
    assert model.error_.count == pytest.approx(4, rel=0.03), "two helpers' Laplace noise of scale 2"


def test_the_same_fit_again_costs_nothing(three):
    way, rows, _, model = three
    before = charges(way)
    again = clone(model).fit(rows)
    assert charges(way) == before
    np.testing.assert_array_equal(again.soft_, model.soft_)
    assert again.get_params()["epsilon"] == 1.0


@pytest.mark.parametrize("given", [None, nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 40))])
def test_threads_make_no_other_cells(given):
    rows, before, sent = blobs(4000)[0], torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            with threadpool_limits(threads):
                space = Space.of(given, rows)
                found = Clusters.find(space, rows, space.points(rows), 30, 1, 0)
        finally:
            torch.set_num_threads(before)
        sent.append(weights.encode(found.weights))
    assert sent[0] == sent[1]


def test_a_plan_spends_nothing_and_the_fit_keeps_to_it(three):
    way, rows, _, _ = three
    before, asked = charges(way), CellLabels(way, cases.TAG, noise=2.0, seed=3)
    plan = asked.plan(rows)
    assert charges(way) == before
    assert plan.fits
    assert plan.epsilon == pytest.approx(0.5, rel=1e-3)
    assert plan.size >= 6 * plan.deviation
    assert "Nothing was spent" in str(plan)
    assert len(asked.fit(rows).counts_) == plan.cells


def test_a_plan_over_what_training_may_cost_says_so(monkeypatch):
    """Though the budget would allow it."""
    lower = cases.SETTINGS.replace(
        "training.adserver = {{epsilon = {epsilon}", "training.adserver = {{epsilon = 1.0"
    )
    monkeypatch.setattr(cases, "SETTINGS", lower)
    way, rows, _ = filled(count=200)
    with way:
        asked = CellLabels(way, cases.TAG, noise=0.5)
        plan = asked.plan(rows)
        assert (plan.explained.left_epsilon or 0) > 0
        assert not plan.fits
        assert "more than is left" in str(plan)
        assert (
            "1 of 1 is left of what training may cost against the ad server; epsilon = 1 fits, or noise 1"
            in str(plan.explained)
        )
        with pytest.raises(BudgetExhausted):
            asked.fit(rows)


def test_of_a_binary_label_ones_alone_are_asked():
    way, rows, truth = filled("logistic")
    with way:
        model = CellLabels(way, cases.TAG, epsilon=1.0).fit(rows)
        assert model.error_.count == pytest.approx(2, rel=0.03), "half of that of all labels"
        assert model.answered_.tables[0].columns[0].shape[1] == 1
        sizes = np.bincount(model.cells_, minlength=len(model.counts_))
        np.testing.assert_allclose(model.counts_.sum(axis=1), sizes)
        assert (model.soft_.argmax(axis=1) == truth).mean() > 0.99


@pytest.mark.parametrize(("count", "seed"), [(1, 0), (None, 2**63 - 1)])
def test_few_rows_are_one_cell(count, seed):
    way, rows, _ = filled(count=30)
    with way:
        model = CellLabels(way, cases.TAG, noise=0.1, cells=count, seed=seed).fit(rows)
        assert len(model.counts_) == 1
        assert model.soft_.shape == (30, 3)


def test_small_clusters_are_merged_and_k_holds():
    way, rows, _ = filled()
    with way:
        model = CellLabels(way, cases.TAG, noise=0.05, cells=300).fit(rows)
    sizes = np.bincount(model.cells_)
    assert 1 < len(sizes) < 300
    assert sizes.min() >= 20
    assert len(model.answered_.tables[0].rows) == len(sizes), "none is absent"


def test_absent_cells_get_labels_of_neighbours():
    way, rows, truth = filled(count=2000)
    twice = np.concatenate([rows, blobs(2000, seed=0)[0][:1000]])
    with way, pytest.warns(RowsDiffer, match="helpers lack about 1,000"):
        model = CellLabels(way, cases.TAG, noise=0.05, cells=60).fit(twice)
    assert (model.soft_[:2000].argmax(axis=1) == truth).mean() > 0.98
    assert np.isfinite(model.soft_).all()


@pytest.mark.parametrize("kind", ["network", "map", "sigmoid"])
def test_any_space_of_the_engine_will_do(three, kind):
    way, rows, truth, _ = three
    torch.manual_seed(0)
    steep = nn.Linear(5, 16)
    with torch.no_grad():
        steep.weight *= 8
    spaces: dict[str, nn.Module | maps.Map] = {
        "network": nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 8)),
        "map": maps.fit(rows, [*"abcde"], "buckets"),
        "sigmoid": nn.Sequential(steep, nn.Sigmoid()),
    }
    model = CellLabels(way, cases.TAG, noise=0.5, space=spaces[kind]).fit(rows)
    assert (model.soft_.argmax(axis=1) == truth).mean() > 0.95
    assert (model.predict(rows) == truth).mean() > 0.95


def far(factor, origin):
    """A linear space of any scale, far from 0."""
    linear = nn.Linear(5, 4)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(4, 5) * factor)
        linear.bias.fill_(origin)
    return linear


@pytest.mark.parametrize("space", [None, far(1.0, 0.0), far(50.0, 3000.0), far(0.01, -5.0)])
def test_helpers_find_the_caller_s_cells_in_spaces_of_any_scale(three, space):
    way, rows, truth, _ = three
    model = CellLabels(way, cases.TAG, noise=0.02, space=space, cells=25).fit(rows)
    exact = np.zeros_like(model.counts_)
    np.add.at(exact, (model.cells_, truth), 1)
    assert np.abs(model.counts_ - exact).max() <= 1, "next to no noise"
    assert len(exact) > 15
    assert exact.max(axis=1).sum() > 0.98 * len(rows), "cells of one blob"


def broken(value):
    linear = nn.Linear(5, 3)
    with torch.no_grad():
        linear.weight[1, 2] = value
    return nn.Sequential(linear)


ROWS = blobs(300)[0]
BEFORE = [
    (ROWS, {"tag": "visitz"}, NotDeclared, "visits"),
    (ROWS, {"label": 1}, BadArguments, "counted from 0"),
    (ROWS, {"space": broken(float("nan"))}, WeightsDoNotFit, "not finite"),
    (ROWS, {"space": broken(float("-inf"))}, WeightsDoNotFit, "not finite"),
    (ROWS, {"space": nn.Linear(7, 2)}, ModelDoesNotFit, "takes 7 numbers, and gets 5"),
    (ROWS, {"space": nn.Sequential(nn.Linear(5, 8), nn.Linear(4, 2))}, ModelDoesNotFit, "gets 8"),
    (ROWS, {"space": nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8))}, ModelDoesNotFit, "drop it"),
    (ROWS, {"space": nn.ReLU()}, ModelDoesNotFit, "no Linear layer"),
    (ROWS, {"space": nn.Sequential(nn.Linear(5, 2100), nn.Linear(2100, 2100))}, BadArguments, "fit into a"),
    (ROWS, {"space": "pca"}, BadArguments, "a torch module"),
    (ROWS, {"space": maps.fit(ROWS[:, :3], "abc", "columns")}, ModelDoesNotFit, "takes 3 numbers"),
    (ROWS, {"cells": 301}, BadArguments, "1 to 300 fit"),
    (np.repeat(ROWS, 100, axis=0), {"cells": 100_000}, BadArguments, "1 to 21845 fit"),
    (ROWS, {"cells": 0}, BadArguments, "fit"),
    (ROWS, {"cells": 2.5}, BadArguments, "whole number"),
    (ROWS, {"cells": True}, BadArguments, "whole number"),
    (ROWS, {"neighbours": -1}, BadArguments, "0 or more"),
    (ROWS, {"neighbours": 2.5}, BadArguments, "whole number"),
    (ROWS, {"neighbours": None}, BadArguments, "whole number"),
    (ROWS, {"seed": -1}, BadArguments, "seed=-1"),
    (ROWS, {"epsilon": float("inf")}, BadArguments, "finite"),
    (ROWS, {"epsilon": float("nan")}, BadArguments, "finite"),
    (ROWS, {"epsilon": 0.0}, BadArguments, "over 0"),
    (ROWS, {"noise": float("nan")}, BadArguments, "noise=nan"),
    (ROWS, {"encoder": "encoder.json"}, BadArguments, "Encoder.load"),
    (ROWS, {"noise": 0.001}, MaskedLarkError, "below the declared"),
    (ROWS, {"epsilon": 500.0}, BudgetExhausted, "would fit"),
    (ROWS[:0], {}, RowsDoNotFit, "no rows"),
    (ROWS[:, :4], {}, RowsDoNotFit, "takes 5 bytes per row"),
    (np.full((300, 5), np.nan), {}, RowsDoNotFit, "float64"),
    (pd.DataFrame(ROWS), {}, RowsDoNotFit, "encoder="),
]


@pytest.fixture(scope="module")
def small():
    way = cases.workflow("softmax", epsilon=20.0, more=CELLS)
    way.make_training_dataset("first", cases.TAG, ROWS, [np.zeros(300, int)], decoded=True)
    with way:
        yield way


@pytest.mark.parametrize(("rows", "options", "error", "said"), BEFORE)
def test_what_cannot_be_asked_is_refused_before_it_is_charged(small, rows, options, error, said):
    with pytest.raises(error, match=said):
        CellLabels(small, **{"tag": cases.TAG, **options}).fit(rows)
    assert charges(small) == 0


@pytest.mark.parametrize(
    ("label", "said"), [("least squares", "LinearRegression"), ("poisson", "PoissonRegressor")]
)
def test_numbers_are_no_classes(label, said):
    way = cases.workflow(label, more=CELLS)
    way.make_training_dataset("first", cases.TAG, ROWS, [np.zeros(300, int)], decoded=True)
    with way:
        with pytest.raises(BadArguments, match=said):
            CellLabels(way, cases.TAG).fit(ROWS)
        assert charges(way) == 0


def test_another_encoder_and_too_few_records_are_refused():
    table = pd.DataFrame(ROWS, columns=[*"abcde"])
    own, other = Encoder.fit(table), Encoder.fit(table[:100] // 2)
    way = cases.workflow("softmax", more=CELLS, model=f'encoder = "{own.digest.hex()}"')
    way.make_training_dataset("first", cases.TAG, ROWS[:10], [np.zeros(10, int)], decoded=True)
    with way:
        with pytest.raises(BadArguments, match="is declared with the encoder"):
            CellLabels(way, cases.TAG, encoder=other).fit(table)
        with pytest.raises(TooFewRecords, match="k is 20"):
            CellLabels(way, cases.TAG, encoder=own).fit(table)
        assert charges(way) == 0


def test_rows_of_fakes_are_not_expected():
    decoy = (
        f'{CELLS}\nfake_rate = 0.25\ndecoys = [{{keys = {{}}}}, {{tag = "visits", columns = "{"00" * 5}"}}]'
    )
    rows, place = blobs(1000)
    way = cases.workflow("softmax", more=decoy)
    way.make_training_dataset("first", cases.TAG, rows, [place % 3], decoded=True)
    with way:
        model = CellLabels(way, cases.TAG, noise=0.1).fit(rows)
    assert model.records_ > 1150
    assert model.real_records_ == pytest.approx(1000, rel=0.1)
    assert model.counts_.sum() == pytest.approx(1000, rel=0.1), "as if all were rows"
    off = model.counts_.sum(axis=0) / 1000 * real_error(0.25, model.real_records_)
    assert (model.error_.shares > off).all(), "nobody knows how many are fakes"
    assert (model.soft_.argmax(axis=1) == place % 3).mean() > 0.98


def test_it_does_as_estimators_of_scikit_learn_do(three):
    way, rows, truth, model = three
    with pytest.raises(NotFittedError):
        CellLabels(way, cases.TAG).predict(rows)
    with pytest.raises(BadArguments, match="no y"):
        CellLabels(way, cases.TAG).fit(rows, truth)
    with pytest.raises(BadArguments, match="needs labels"):
        model.score(rows, truth)
    before = charges(way)
    with pytest.raises(ValueError, match="a release per fold"):
        cross_val_score(CellLabels(way, cases.TAG, epsilon=0.7), rows, scoring=lambda *_: 1.0, cv=2)
    assert charges(way) == before


def test_it_is_cloned_and_ends_a_pipeline(three):
    way, rows, _, model = three
    space = nn.Linear(5, 2)
    copied = clone(model).set_params(cells=20, space=space)
    assert (copied.client, copied.cells, clone(copied).space) == (way, 20, space)
    assert model.get_params() == CellLabels(way, cases.TAG, epsilon=1.0).get_params()
    with pytest.raises(NotFittedError):
        copied.predict_proba(rows)
    before, turned = charges(way), rows[:, ::-1]
    steps = [("bytes", FunctionTransformer(np.fliplr)), ("labels", CellLabels(way, cases.TAG))]
    line = clone(Pipeline(steps)).set_params(labels__epsilon=1.0).fit(turned)
    np.testing.assert_array_equal(line["labels"].soft_, model.soft_)
    np.testing.assert_array_equal(line.predict_proba(turned), model.predict_proba(rows))
    np.testing.assert_array_equal(line.predict(turned), model.predict(rows))
    assert charges(way) == before, "a step before it makes the same bytes, so it is the same question"


@pytest.mark.parametrize("columns", [40, 1400])
def test_a_table_too_wide_for_buckets_has_principal_components(columns):
    rows = np.random.default_rng(0).integers(0, 256, (60, columns)).astype(np.uint8)
    found = cell_labels._buckets(rows, [f"c{i}" for i in range(columns)], 0)
    assert (found is None) == (columns == 1400)
    assert Space.of(found, rows).most_cells > 1000
