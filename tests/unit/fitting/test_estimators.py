import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

from maskedlark.errors import BadArguments
from maskedlark.features import Encoder, OneHot, Scaled
from maskedlark.fitting import (
    CellLabels,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    compare,
    evaluate,
    load,
)
from maskedlark.fitting.errors import RowsDiffer
from maskedlark.training.errors import RowsDoNotFit
from tests.unit.fitting import cases
from tests.unit.fitting.charged import charges

CELLS = 'mechanisms.cells = {kind = "laplace", noise_floor = 0.1}'
ESTIMATORS = {
    "logistic": LogisticRegression,
    "softmax": LogisticRegression,
    "least squares": LinearRegression,
    "poisson": PoissonRegressor,
}


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("label", ESTIMATORS)
def test_every_family_learns_from_one_release(label, kind):
    way, features, truth = cases.filled(label, kind=kind)
    with way:
        model = ESTIMATORS[label](way, cases.TAG, noise=0.05, map="columns").fit(features)
        assert charges(way) == 1
        z, scores = cases.scores(features), model.decision_function(features)
        found = scores[:, 1] - scores[:, 2] if label == "softmax" else scores
        assert np.corrcoef(found, z)[0, 1] > 0.98
        assert set(model.receipts_) == {"helper-0", "helper-1"}
        if label in ("logistic", "softmax"):
            chances = model.predict_proba(features)
            np.testing.assert_allclose(chances.sum(axis=1), 1)
            for each in model.classes_:
                assert abs(chances[:, each].mean() - (truth == each).mean()) < 0.02, "calibrated"
            assert (model.predict(features) == chances.argmax(axis=1)).all()
            assert is_classifier(model)
        else:
            assert abs(model.predict(features).mean() - truth.mean()) < 0.1
            assert is_regressor(model)
        outputs = {"logistic": (1,), "softmax": (3,)}.get(label, ())
        assert model.coef_.shape == (*outputs, 5)
        assert model.intervals_.shape == (*outputs, 5, 2)
        assert ((model.intervals_[..., 0] < model.coef_) & (model.coef_ < model.intervals_[..., 1])).all()


def test_labels_may_be_large_numbers(monkeypatch):
    """Money in cents: the field has room for the records there are, if not for all that a document allows."""
    monkeypatch.setitem(cases.LABELS, "cents", cases.LABELS["least squares"].replace("10", "100000"))
    monkeypatch.setattr(cases, "SETTINGS", cases.SETTINGS.replace("[-10, 10]", "[-100000, 100000]"))
    way, features = cases.workflow("cents"), cases.rows(1000)
    with way:
        way.make_training_dataset(
            "first", cases.TAG, features, [10_000 * cases.scores(features)], decoded=True
        )
        model = LinearRegression(way, cases.TAG, noise=0.05, map="columns").fit(features)
    assert np.corrcoef(model.predict(features), cases.scores(features))[0, 1] > 0.98
    # In cents: 10,000 of them for every unit of the score, by the line through the predictions.
    slope = np.polyfit(cases.scores(features), model.predict(features), 1)[0]
    assert slope == pytest.approx(10_000, rel=0.02)


def test_coefficients_are_of_the_columns():
    way, features, _ = cases.filled(count=20_000)
    with way:
        model = LogisticRegression(way, cases.TAG, noise=0.05, map="columns", ridge=1e-3).fit(features)
    # z = 3 x0 + 2 x4 - 3.1, and x goes to 255/256.
    assert list(model.feature_names_out_) == [f"byte {i}" for i in range(5)]
    np.testing.assert_allclose(model.coef_[0], [3, 0, 0, 0, 2], atol=0.25)
    assert model.intercept_[0] == pytest.approx(-3.1, abs=0.25)


def test_the_same_fit_again_costs_nothing_and_is_the_same():
    way, features, _ = cases.filled()
    with way:
        first = LogisticRegression(way, cases.TAG, epsilon=1.0).fit(features)
        again = LogisticRegression(way, cases.TAG, epsilon=1.0).fit(features)
        other = LogisticRegression(way, cases.TAG, epsilon=1.0, ridge=100.0).fit(features)
        assert charges(way) == 1
        assert (first.coef_ == again.coef_).all()
        assert np.abs(first.coef_ - other.coef_).max() > 0
        assert first.answered_.request == again.answered_.request == other.answered_.request
        LogisticRegression(way, cases.TAG, epsilon=1.1).fit(features)
        assert charges(way) == 2


@pytest.mark.parametrize("where", ["adserver.requests.Requests.mark", "fitting.fit.fit"])
def test_a_kill_costs_one_charge(monkeypatch, where):
    way, features, _ = cases.filled()

    def dead(*_):
        raise KeyboardInterrupt

    with way:
        with monkeypatch.context() as patch:
            patch.setattr(f"maskedlark.{where}", dead)
            with pytest.raises(KeyboardInterrupt):
                LogisticRegression(way, cases.TAG, epsilon=1.0).fit(features)
        LogisticRegression(way, cases.TAG, epsilon=1.0).fit(features)
        assert charges(way) == 1
        assert way.pending() == []


def test_a_fit_that_failed_after_its_release_is_no_fit(monkeypatch):
    way, features, _ = cases.filled(more=CELLS, count=500)

    def fail(*_):
        raise MemoryError

    with way:
        models = LogisticRegression(way, cases.TAG, noise=1.0, map="columns"), CellLabels(way, cases.TAG)
        for model, where in zip(models, ("fit.fit", "soft_labels.error"), strict=True):
            with monkeypatch.context() as patch:
                patch.setattr(f"maskedlark.fitting.{where}", fail)
                with pytest.raises(MemoryError):
                    model.fit(features)
            with pytest.raises(NotFittedError):
                check_is_fitted(model)
            check_is_fitted(model.fit(features))
            assert [name for name in vars(model) if name.endswith("_")][-1] == "answered_"
            assert set(model.receipts_) == {"helper-0", "helper-1"}
        assert charges(way) == 2


def test_it_has_scikit_learns_manners():
    way, features, _ = cases.filled()
    with way:
        model = LogisticRegression(way, cases.TAG, epsilon=1.0, map="columns")
        assert model.get_params()["epsilon"] == 1.0
        copied = clone(model).set_params(ridge=3.0)
        assert (copied.client, copied.ridge, model.ridge) == (way, 3.0, None)
        for method in (model.predict, model.predict_proba, model.decision_function):
            with pytest.raises(NotFittedError):
                method(features)
        with pytest.raises(BadArguments, match="there is no y"):
            model.fit(features, np.zeros(len(features)))
        with pytest.raises(BadArguments, match="needs labels"):
            model.score(features)
        assert charges(way) == 0
        line = Pipeline([("model", model)]).fit(features)
        assert line.predict_proba(features).shape == (len(features), 2)


@pytest.mark.parametrize("made", [LogisticRegression, LinearRegression, PoissonRegressor, CellLabels])
def test_the_help_of_a_class_tells_its_options(made):
    words = inspect.getdoc(made) or ""
    assert [name for name in inspect.signature(made).parameters if f"`{name}`" not in words] == []
    assert words.count("`epsilon`") == 1


def test_cross_validation_is_refused_before_a_fold_is_charged():
    way, features, truth = cases.filled(count=500)
    with way:
        for model in (
            LogisticRegression(way, cases.TAG, epsilon=0.5),
            LinearRegression(way, cases.TAG, epsilon=0.5),
            Pipeline([("model", LogisticRegression(way, cases.TAG, epsilon=0.5))]),
        ):
            assert not hasattr(model, "score")
            with pytest.raises(TypeError, match="should have a 'score' method"):
                cross_val_score(model, features)
            with pytest.raises(TypeError, match="should have a 'score' method"):
                GridSearchCV(model, {}).fit(features)
            with pytest.raises(ValueError, match="a release per fold"):
                cross_val_score(model, features, scoring="roc_auc")
            with pytest.raises(ValueError, match="there is no y"):
                cross_val_score(model, features, truth, scoring="roc_auc")
            with pytest.raises(ValueError, match="a release per fold"):
                GridSearchCV(model, {}, scoring=lambda *_: 1.0).fit(features)
        assert charges(way) == 0


def frame(features):
    table = pd.DataFrame(features[:, :4] / 10, columns=["age", "visits", "hour", "spent"])
    return table.assign(member=np.where(features[:, 4] > 0, "yes", "no"))


def test_tables_go_through_the_encoder():
    features = cases.rows(2000)
    people = frame(features)
    kinds = {name: Scaled(low=0, high=25.5) for name in people.columns[:4]} | {"member": OneHot()}
    encoder = Encoder.fit(people, kinds)
    more = f'encoder = "{encoder.digest.hex()}"'
    settings = cases.SETTINGS.replace("count = 5", f"count = {len(encoder)}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cases, "SETTINGS", settings)
        way = cases.workflow(model=more)
    with way:
        truth = cases.labels(features)
        way.make_training_dataset("people", cases.TAG, encoder.encode(people), [truth], decoded=True)
        model = LogisticRegression(way, cases.TAG, noise=0.1, encoder=encoder, map="buckets").fit(people)
        assert "member = yes" in model.feature_names_out_
        assert any(name.startswith("age > ") for name in model.feature_names_out_)
        rows = people.to_dict("records")
        for same in (rows, {name: people[name].tolist() for name in people}, encoder.encode(people)):
            np.testing.assert_array_equal(model.predict_proba(same), model.predict_proba(people))
        before = charges(way)
        # A step before the model makes the same bytes, so it is the same question.
        bare = clone(model).set_params(encoder=None, map=model.map_)
        line = clone(Pipeline([("bytes", FunctionTransformer(encoder.encode)), ("model", bare)])).fit(people)
        np.testing.assert_array_equal(line.predict_proba(people), model.predict_proba(people))
        assert charges(way) == before


def test_missing_values_are_what_browsers_sent_or_refused():
    """The encoder saw some of `age`, and none of `visits`."""
    features = cases.rows(600)
    people = frame(features).drop(columns="member")
    people.loc[::7, "age"] = np.nan
    encoder = Encoder.fit(people, {name: Scaled(low=0, high=25.5) for name in people.columns})
    assert len(encoder) == 5, "with a byte for missing ages"
    with cases.workflow(more=CELLS) as way:
        sent = encoder.encode(people)
        way.make_training_dataset("first", cases.TAG, sent, [cases.labels(features)], decoded=True)
        model = LogisticRegression(way, cases.TAG, noise=0.1, encoder=encoder, map="columns").fit(people)
        assert "age is missing" in model.feature_names_out_
        before, broken = charges(way), people.copy()
        broken.loc[41, "visits"] = np.nan
        labels = CellLabels(way, cases.TAG, noise=1.0, encoder=encoder)
        for ask in (
            clone(model).plan,
            clone(model).fit,
            labels.fit,
            lambda table: compare([model], table, noise=1.0),
            lambda table: evaluate(way, model, table, noise=1.0),
        ):
            with pytest.raises(RowsDoNotFit, match="column 'visits', row 42: a value is missing"):
                ask(broken)
        assert charges(way) == before
        # Predictions and bytes take the median's byte, as a browser does.
        filled = encoder.encode(broken)
        np.testing.assert_array_equal(model.predict_proba(broken), model.predict_proba(filled))
        clone(model).plan(filled)


def test_rows_that_differ_much_in_number_are_said_and_warned_of():
    way, features, _ = cases.filled(more=CELLS)
    with way:
        model = LogisticRegression(way, cases.TAG, noise=0.1, map="columns")
        plan = model.plan(features[:2000])
        assert "\n2,000 rows here, 3,000 records at the helpers" in str(plan)
        assert plan.figures()["rows_differ"]
        assert "this table lacks about 1,000" in str(CellLabels(way, cases.TAG).plan(features[:2000]))
        assert "lack" not in str(model.plan(features))
        with pytest.warns(RowsDiffer, match="this table lacks about 1,000"):
            model.fit(features[:2000])
        assert (model.rows_, model.records_, model.real_records_) == (2000, 3000, 3000.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert model.fit(features).mismatch_.endswith("as many, as far as anybody can tell")


FAKES = 'fake_rate = 0.5\ndecoys = [{keys = {}}, {tag = "visits", columns = "ff00ff00ff"}]'


def test_fakes_count_as_nothing():
    way, features, truth = cases.filled(more=FAKES)
    with way:
        model = LogisticRegression(way, cases.TAG, noise=0.1, map="columns").fit(features)
        assert model.records_ > 4000, "with fakes"
        assert model.real_records_ == pytest.approx(3000, rel=0.05)
        # With all records taken for real, it would be two thirds.
        assert model.predict_proba(features)[:, 1].mean() == pytest.approx(truth.mean(), rel=0.06)


def test_any_of_several_labels_is_fitted(monkeypatch):
    """The second of three: it has the other sign, and another loss than its neighbours."""
    several = ", ".join(cases.LABELS[each] for each in ("logistic", "logistic", "least squares"))
    monkeypatch.setitem(cases.LABELS, "several", several)
    features = cases.rows(2000)
    first, third = cases.labels(features), cases.labels(features, "least squares")
    with cases.workflow("several") as way:
        labels = [first, 1 - first, third]
        way.make_training_dataset("first", cases.TAG, features, labels, decoded=True)
        one, other = (
            LogisticRegression(way, cases.TAG, noise=0.05, map="columns", label=each).fit(features)
            for each in (0, 1)
        )
        number = LinearRegression(way, cases.TAG, noise=0.05, map="columns", label=2).fit(features)
        assert charges(way) == 3
        again = compare([other], features, noise=0.05)
    z = cases.scores(features)
    for model, sign in ((one, 1), (other, -1), (number, 1)):
        assert sign * np.corrcoef(model.decision_function(features), z)[0, 1] > 0.98
    np.testing.assert_allclose(other.coef_, -one.coef_, atol=0.3)
    assert again.losses[0] == pytest.approx(log_loss(1 - first, other.predict_proba(features)), abs=0.02)


@pytest.mark.parametrize(
    ("label", "noise", "ridge"),
    [
        ("logistic", 30.0, 1e-9),
        ("logistic", 100.0, 1e-6),
        ("softmax", 30.0, 1e-9),
        ("poisson", 30.0, 1e-3),
        ("poisson", 30.0, None),
    ],
)
def test_moments_without_a_solution_are_warned_of_and_have_no_intervals(tmp_path, label, noise, ridge):
    """L-BFGS stops somewhere on its way to infinity, or where next to no ridge holds it."""
    way, features, _ = cases.filled(label, count=300)
    with way:
        model = ESTIMATORS[label](way, cases.TAG, noise=noise, map="columns", ridge=ridge)
        with pytest.warns(ConvergenceWarning, match="a larger epsilon, or give a larger ridge") as warned:
            model.fit(features)
        assert warned[0].filename == __file__
        assert np.isnan(model.intervals_).all()
        assert np.isnan(model.intercept_interval_).all()
        model.save(tmp_path / "model.json")
        assert np.isnan(load(tmp_path / "model.json").intervals()).all()


def test_a_class_of_which_noise_says_there_is_none_is_no_lack_of_a_solution():
    way, features, _ = cases.filled("softmax", count=300)
    with way:
        model = LogisticRegression(way, cases.TAG, noise=30.0, map="columns").fit(features)
    assert model.intercept_.min() < -1000
    assert np.isfinite(model.intervals_).all()


def test_several_datasets_are_one_release():
    way, features, _ = cases.filled(count=2000)
    with way:
        more = cases.rows(1000, seed=7)
        way.make_training_dataset("second", cases.TAG, more, [cases.labels(more)], decoded=True)
        model = LogisticRegression(way, cases.TAG, noise=0.1, map="columns").fit(np.vstack([features, more]))
        assert (model.records_, charges(way)) == (3000, 1)
        LogisticRegression(way, cases.TAG, noise=0.1, map="columns", datasets=["second"]).fit(more)
        assert charges(way) == 2
