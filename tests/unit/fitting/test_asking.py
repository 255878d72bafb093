import numpy as np
import pandas as pd
import pytest

from maskedlark.adserver.errors import NotFrozen
from maskedlark.errors import BadArguments, MaskedLarkError, NotDeclared
from maskedlark.features import Encoder
from maskedlark.fitting import LinearRegression, LogisticRegression, PoissonRegressor, asking, maps
from maskedlark.functions.moments import Moments
from maskedlark.ledger.errors import BudgetExhausted
from maskedlark.parameters.document import NoMechanism
from maskedlark.release.messages import MAX_REQUEST
from maskedlark.training.errors import RowsDoNotFit
from maskedlark.web.errors import UnknownDataset
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
    (ROWS[:, :4], {}, RowsDoNotFit, "takes 5 bytes a row"),
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


def test_more_coefficients_than_have_room_are_refused_before_the_charge(monkeypatch):
    """Their errors would take all memory once the release is paid for."""
    way, rows, _ = cases.filled("softmax", count=300)
    with way:
        monkeypatch.setattr(asking, "MAX_COEFFICIENTS", 3 * (5 + 1))
        assert LogisticRegression(way, cases.TAG, noise=1.0)._question(rows).chosen.map.kind == "columns"
        for most, given in ((3 * (5 + 1), "buckets"), (3 * (5 + 1) - 1, "auto")):
            monkeypatch.setattr(asking, "MAX_COEFFICIENTS", most)
            with pytest.raises(BadArguments, match="3 classes leave room for a map of"):
                LogisticRegression(way, cases.TAG, noise=1.0, map=given).fit(rows)
        assert charges(way) == 0


def test_the_widest_question_fits_a_request(monkeypatch):
    # So many columns are cut to components, so that their weights, in base64, leave room.
    monkeypatch.setattr(cases, "SETTINGS", cases.SETTINGS.replace("count = 5", "count = 1400"))
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (100, 1400)).astype(np.uint8)
    with cases.workflow() as way:
        way.make_training_dataset("wide", cases.TAG, rows, [rng.integers(0, 2, 100)], decoded=True)
        question = LogisticRegression(way, cases.TAG, noise=1.0, map="columns")._question(rows)
        assert 0.8 * MAX_REQUEST < len(question.arguments["weights"]) < MAX_REQUEST - 4096
        assert Moments().ask(way.document, question.arguments).columns[0].width < 1400
