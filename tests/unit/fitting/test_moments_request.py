import numpy as np
import pandas as pd
import pytest

from maskedlark.adserver.errors import NotFrozen
from maskedlark.errors import BadArguments, MaskedLarkError, NotDeclared
from maskedlark.exact.losses import BinaryCrossEntropy
from maskedlark.features import Encoder
from maskedlark.fitting import (
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    load,
    maps,
    moments_request,
)
from maskedlark.fitting.errors import NoIntervals
from maskedlark.functions import weights
from maskedlark.functions.moments import Moments
from maskedlark.ledger.errors import BudgetExhausted
from maskedlark.parameters.document import NoMechanism
from maskedlark.release import messages
from maskedlark.release.messages import MAX_REQUEST
from maskedlark.training.errors import RowsDoNotFit
from maskedlark.web.errors import BodyTooLarge, UnknownDataset
from maskedlark.workflow import LocalHelper
from tests.unit.fitting import cases
from tests.unit.fitting.charged import charges

ROWS = cases.rows(300)
BEFORE = [
    (ROWS, {"tag": "visitz"}, NotDeclared, "visits"),
    (ROWS, {"label": 1}, BadArguments, "counted from 0"),
    (ROWS, {"datasets": ["frist"]}, UnknownDataset, "first"),
    (ROWS, {"map": "boxes"}, BadArguments, "there are auto, columns"),
    (ROWS, {"noise": 0.001}, MaskedLarkError, "below the declared"),
    (ROWS, {"noise": 1.0, "epsilon": 1.0}, BadArguments, "not both"),
    (ROWS, {"epsilon": 1e-9}, BadArguments, "no noise"),
    (ROWS, {"epsilon": 500.0}, BudgetExhausted, "would fit"),
    (ROWS, {"clip": -1.0}, BadArguments, "clip=-1.0"),
    (ROWS, {"noise": float("nan")}, BadArguments, "noise=nan"),
    (ROWS, {"epsilon": 0.0}, BadArguments, "epsilon=0.0"),
    (ROWS, {"epsilon": float("inf")}, BadArguments, "finite"),
    (ROWS, {"epsilon": "1"}, BadArguments, "epsilon='1'"),
    (ROWS, {"ridge": -1.0}, BadArguments, "ridge=-1.0"),
    (ROWS, {"clip": "2"}, BadArguments, "clip='2'"),
    (ROWS, {"clip": 1e12}, MaskedLarkError, "a clip is"),
    (ROWS, {"tag": None}, BadArguments, "name of a model"),
    (ROWS, {"label": 0.5}, BadArguments, "whole number"),
    (ROWS, {"label": -1}, BadArguments, "whole number"),
    (ROWS, {"seed": -1}, BadArguments, "seed=-1"),
    (ROWS, {"seed": None}, BadArguments, "seed=None"),
    (ROWS, {"datasets": [None]}, BadArguments, "list of names"),
    (ROWS, {"datasets": "frist"}, UnknownDataset, "'frist'"),
    (ROWS, {"datasets": []}, NotFrozen, "at least one"),
    (ROWS, {"encoder": "encoder.json"}, BadArguments, "Encoder.load"),
    (ROWS[:0], {}, RowsDoNotFit, "no rows"),
    (ROWS[:1], {}, RowsDoNotFit, "of 1 rows none differs"),
    (np.repeat(ROWS[:1], 300, axis=0), {}, RowsDoNotFit, "of 300 rows none differs"),
    (ROWS[:, :4], {}, RowsDoNotFit, "takes 5 bytes per row"),
    (ROWS.astype(float), {}, RowsDoNotFit, "float64"),
    (np.full((300, 5), np.nan), {}, RowsDoNotFit, "float64"),
    (ROWS[0], {}, RowsDoNotFit, "1 dimension"),
    (pd.DataFrame(ROWS), {}, RowsDoNotFit, "encoder="),
    (ROWS, {"map": maps.fit(cases.rows(50)[:, :3], "abc", "columns")}, BadArguments, "takes 3 bytes"),
]


@pytest.fixture(scope="module")
def way():
    made = cases.workflow(epsilon=50.0, floor=0.02)
    made.make_training_dataset("first", cases.TAG, ROWS, [cases.labels(ROWS)], decoded=True)
    yield made
    made.close()


@pytest.mark.parametrize(("rows", "options", "error", "says"), BEFORE)
def test_bad_input_is_refused_before_anything_is_charged(way, rows, options, error, says):
    with pytest.raises(error, match=says):
        LogisticRegression(**{"client": way, "tag": cases.TAG, **options}).fit(rows)
    assert [len(each.ledger.receipts(way.document.origin)) for each in way.helpers] == [1, 1], "the dataset's"
    assert way.pending() == []


@pytest.mark.parametrize(
    ("label", "estimator", "says"),
    [
        ("poisson", LogisticRegression, "no class"),
        ("least squares", LogisticRegression, "no class"),
        ("softmax", LinearRegression, "no number"),
        ("softmax", PoissonRegressor, "no number"),
        ("least squares", PoissonRegressor, "down to -10"),
    ],
)
def test_a_label_of_another_kind_is_refused(label, estimator, says):
    way, features, _ = cases.filled(label, count=100)
    with way, pytest.raises(BadArguments, match=says):
        estimator(way, cases.TAG, noise=1.0).fit(features)


def test_a_binary_label_is_a_number_too():
    way, features, truth = cases.filled(count=1000)
    with way:
        for estimator in (LinearRegression, PoissonRegressor):
            model = estimator(way, cases.TAG, noise=0.1, map="columns").fit(features)
            assert abs(model.predict(features).mean() - truth.mean()) < 0.02


@pytest.mark.parametrize(
    "model",
    [
        "feature_noise = {epsilon = 9.0, sensitivity = 255.0}",
        "randomised_response = {epsilon = 2.0}",
    ],
)
def test_what_browsers_change_is_for_gradients(model):
    way, features, _ = cases.filled(count=100, model=model)
    with way, pytest.raises(BadArguments, match="train it with gradients"):
        LogisticRegression(way, cases.TAG, noise=1.0).fit(features)


def test_another_encoder_than_the_documents_is_refused():
    table = {f"c{i}": list(range(100)) for i in range(5)}
    way, _, _ = cases.filled(count=100, model=f'encoder = "{"ab" * 32}"')
    with way, pytest.raises(BadArguments, match="declared with the encoder"):
        LogisticRegression(way, cases.TAG, noise=1.0, encoder=Encoder.fit(table)).fit(table)


def test_a_document_without_the_mechanism_says_so():
    way = cases.workflow()
    settings = cases.SETTINGS.replace("mechanisms.moments", "mechanisms.gradient")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cases, "SETTINGS", settings)
        way, features, _ = cases.filled(count=100)
    with way, pytest.raises(NoMechanism, match="moments"):
        LogisticRegression(way, cases.TAG).fit(features)


def test_more_coefficients_than_have_room_have_no_intervals(monkeypatch, tmp_path):
    """Their errors would take all memory once the release is paid for."""
    way, rows, truth = cases.filled("softmax", count=300)
    with way:
        monkeypatch.setattr(moments_request, "MAX_COEFFICIENTS", 3 * (5 + 1))
        assert LogisticRegression(way, cases.TAG, noise=1.0)._request(rows).chosen.map.kind == "columns"
        with pytest.raises(BadArguments, match="fewer than 18 numbers"):
            LogisticRegression(way, cases.TAG, noise=1.0, map="buckets").fit(rows)
        assert charges(way) == 0
        monkeypatch.setattr(moments_request, "MAX_COEFFICIENTS", 3 * (5 + 1) - 1)
        model = LogisticRegression(way, cases.TAG, noise=0.1)
        plan = model.plan(rows)
        assert not plan.has_intervals
        assert "they will have no intervals" in str(plan)
        with pytest.warns(NoIntervals, match="intervals_ are NaN"):
            model.fit(rows)
        assert np.isnan(model.intervals_).all()
        assert (model.predict(rows) == truth).mean() > 0.45
        model.save(tmp_path / "model.json")
        loaded = load(tmp_path / "model.json")
        assert np.isnan(loaded.intervals()).all()
        np.testing.assert_array_equal(loaded.predict_proba(rows), model.predict_proba(rows))


def wide(monkeypatch, columns, count=100):
    """Helpers of a table of so many columns, and its rows."""
    monkeypatch.setattr(cases, "SETTINGS", cases.SETTINGS.replace("count = 5", f"count = {columns}"))
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (count, columns)).astype(np.uint8)
    way = cases.workflow(floor=1.0)
    way.make_training_dataset("wide", cases.TAG, rows, [rng.integers(0, 2, count)], decoded=True)
    return way, rows


@pytest.mark.long
def test_the_widest_question_fits_a_request(monkeypatch):
    # So many columns are cut to components, so that their weights, in base64, leave room.
    way, rows = wide(monkeypatch, 1500)
    with way:
        question = LogisticRegression(way, cases.TAG, noise=1.0, map="columns")._request(rows)
        assert 0.8 * MAX_REQUEST < len(question.arguments["weights"]) < MAX_REQUEST - 4096
        assert Moments().ask(way.document, question.arguments).columns[0].width < 1500


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("columns", 300),
        pytest.param("buckets", 300, marks=pytest.mark.long),
        ("trees", 300),
        ("random", 300),
        ("columns", 1400),
        ("buckets", 1400),
        ("trees", 1400),
        ("random", 1400),
    ],
)
def test_maps_of_wide_tables_fit_a_request_or_are_refused(kind, columns):
    rows = np.random.default_rng(0).integers(0, 256, (60, columns)).astype(np.uint8)
    names = [f"c{i}" for i in range(columns)]
    if columns == 1400 and kind != "columns":
        with pytest.raises(BadArguments, match=r"1,400 columns has .* and 1,000,000 fit into a request"):
            maps.fit(rows, names, kind)
        return
    found = maps.fit(rows, names, kind)
    sent = weights.to_text(found.representation((BinaryCrossEntropy(),), 1.0).weights)
    assert len(sent) < MAX_REQUEST - 4096
    assert len(found.bias) > 0.8 * columns, "and says of the table what can be said"
    assert (kind == "columns") == (len(found.names) == columns)


def test_of_a_wide_table_auto_takes_what_fits(monkeypatch):
    monkeypatch.setattr(maps, "MAX_WEIGHTS", 2500)
    way, rows = wide(monkeypatch, 40)
    with way:
        asked = LogisticRegression(way, cases.TAG, noise=1.0, clip=30.0)._request(rows)
        assert [each.map.kind for each in asked.candidates] == ["columns"]
        with pytest.raises(BadArguments, match="take map='columns'"):
            LogisticRegression(way, cases.TAG, noise=1.0, map="trees").fit(rows)
        assert charges(way) == 0


def test_a_request_that_no_helper_would_read_is_not_sent(monkeypatch):
    """In memory as over HTTP: it is refused before it is stored, sent or charged."""
    way, rows = wide(monkeypatch, 40)
    with way:
        model = LogisticRegression(way, cases.TAG, noise=1.0, map="columns")
        monkeypatch.setattr(messages, "MAX_REQUEST", 4000)
        for ask in (model.plan, model.fit):
            with pytest.raises(BadArguments, match="and helpers read 4,000: send a smaller network"):
                ask(rows)
        assert (charges(way), way.pending()) == (0, [])


def test_a_helper_that_reads_less_leaves_nothing_pending(monkeypatch):
    way, rows = wide(monkeypatch, 5)

    def release(*_):
        raise BodyTooLarge("a body has at most 100 bytes; send less at once")

    with way:
        monkeypatch.setattr(LocalHelper, "release", release)
        with pytest.raises(BodyTooLarge):
            LogisticRegression(way, cases.TAG, noise=1.0, map="columns").fit(rows)
        assert (charges(way), way.pending()) == (0, [])
