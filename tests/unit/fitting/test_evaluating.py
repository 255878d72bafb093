from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

from maskedlark.errors import BadArguments
from maskedlark.features import Encoder, Scaled
from maskedlark.fitting import (
    CellLabels,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    evaluate,
    evaluation,
    load,
    recalibrated,
    saving,
)
from maskedlark.training.evaluating import evaluation_query
from maskedlark.training.metrics import Values
from maskedlark.training.predictor import Predictor
from tests.unit.fitting import cases
from tests.unit.fitting.cases import FEATURES, TAG, filled
from tests.unit.fitting.charged import charges

EVALUATED = 'mechanisms.cells = {kind = "gaussian", noise_floor = 0.01}'


def evaluated(estimator, label, **options):
    """A fitted model, the rows and labels, and what helpers say of it with hardly any noise."""
    client, rows, labels = filled(label, more=EVALUATED)
    model = estimator(client, TAG, noise=0.5, **options).fit(rows)
    return model, rows, labels, evaluate(client, model, noise=0.01).labels[0]


def test_helpers_count_what_the_model_predicts(tmp_path):
    model, rows, labels, found = evaluated(LogisticRegression, "logistic")
    predicted = model.predict_proba(rows)[:, 1]
    assert abs(found.accuracy.value - np.mean((predicted >= 0.5) == labels)) < 0.005
    counts = np.stack([np.histogram(predicted[labels == each], found.edges)[0] for each in (0, 1)], axis=1)
    # 16-bit weights carry some scores over an edge.
    assert np.abs(found.counts - counts).sum() < 0.02 * len(rows)
    model.save(tmp_path / "model.json")
    again = evaluate(model.client, load(tmp_path / "model.json"), noise=0.01).labels[0]
    assert np.abs(again.counts - found.counts).max() < 1


def test_a_plan_says_what_it_costs_and_its_error_bars_and_spends_nothing():
    """Errors are said within a fifth beforehand: the model is nearly right about its own scores."""
    client, rows, _ = filled(more=EVALUATED)
    model = LogisticRegression(client, TAG, noise=0.5).fit(rows)
    asked = evaluation(client, model, rows)
    plan, before = asked.plan(), charges(client)
    assert asked.epsilon == 0.5, "what it may cost, unless said"
    assert plan.epsilon == pytest.approx(0.5, rel=0.01)
    assert (plan.rows, plan.records, plan.part) == (3000, 3000, "all")
    assert plan.figures()["coalition_epsilon"] == plan.epsilon
    said = str(plan)
    assert "against the ad server and against it with all helpers but one" in said
    assert "; if its probabilities are about right, expect AUC ± " in said
    assert not asked.is_answered()
    assert charges(client) == before
    found = asked.ask()
    for name in ("auc", "log_loss", "accuracy"):
        expected = plan.figures()["expected"][0][name]
        assert getattr(found.labels[0], name).error == pytest.approx(expected["error"], rel=0.2)
    # The same again is the same answer, and costs nothing.
    again = evaluation(client, model, rows)
    assert again.is_answered()
    assert np.array_equal(again.ask().labels[0].counts, found.labels[0].counts)
    assert charges(client) == before + 1
    # Of what was answered the plan has the same noise, also when the same ε would now take another.
    evaluate(client, model, rows, noise=0.1)
    shown = evaluation(client, model, rows).plan()
    assert shown.explained.noise == plan.explained.noise == found.answered.noise
    assert shown.figures()["expected"] == plan.figures()["expected"]
    assert (shown.epsilon, shown.fits, shown.is_answered) == (0, True, True)
    blind = evaluation(client, model).plan()
    assert "no error bars beforehand" in str(blind)
    assert blind.figures()["expected"] == [None]


def test_more_noise_has_fewer_buckets():
    client, rows, _ = filled(more=EVALUATED)
    model = LogisticRegression(client, TAG, noise=0.5).fit(rows)
    counts = [evaluation(client, model, rows, noise=noise).plan().buckets[0] for noise in (0.01, 5.0, 50.0)]
    assert counts[0] > counts[1] > counts[2] >= 5


def test_a_model_that_is_wrong_about_its_probabilities_is_set_right(tmp_path):
    client, rows, labels = filled(more=EVALUATED)
    fitted = LogisticRegression(client, TAG, noise=0.5).fit(rows).model_
    wrong = replace(fitted, theta=fitted.theta * 0.5 - np.eye(1, fitted.theta.shape[1], fitted.phi.width - 1))
    found = recalibrated(wrong, evaluate(client, wrong, rows, noise=0.5))
    before, after = wrong.predict_proba(rows)[:, 1], found.predict_proba(rows)[:, 1]
    assert before.mean() < 0.7 * labels.mean()
    assert after.mean() == pytest.approx(labels.mean(), rel=0.03)
    assert found.theta == pytest.approx(fitted.theta, rel=0.2, abs=0.2)
    assert found.coefficients / wrong.coefficients == pytest.approx(found.theta[0, 0] / wrong.theta[0, 0])
    # Noise moved slope and intercept too, and clear labels would have others: there are no intervals.
    saving.save(found, tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    for each in (found, again):
        assert np.isnan(each.intervals()).all()
        assert each.before is not None
        assert (each.before.errors == fitted.errors).all()
    assert (again.theta == found.theta).all()


def test_classes_and_numbers():
    model, rows, labels, found = evaluated(LogisticRegression, "softmax")
    assert abs(found.accuracy.value - np.mean(model.predict(rows) == labels)) < 0.01
    model, rows, labels, found = evaluated(LinearRegression, "least squares")
    error = found.squared_error
    assert abs(error.value - np.mean((model.predict(rows) - labels) ** 2)) < error.coarse + 0.2
    planned = str(evaluation(model.client, model, rows, noise=0.01).plan())
    assert "; if its predictions are about right, expect squared error ± " in planned


def test_of_several_labels_the_one_that_was_fitted_is_evaluated(monkeypatch, tmp_path):
    kinds, rows = ("softmax", "logistic", "least squares"), cases.rows(2000)
    monkeypatch.setitem(cases.LABELS, "several", ", ".join(cases.LABELS[each] for each in kinds))
    truths = [cases.labels(rows, each) for each in kinds]
    with cases.workflow("several", more=EVALUATED) as client:
        client.make_training_dataset("first", TAG, rows, truths, decoded=True)
        for place, kind in enumerate(kinds):
            estimator = LinearRegression if kind == "least squares" else LogisticRegression
            model = estimator(client, TAG, noise=0.5, label=place, map="columns").fit(rows)
            model.save(tmp_path / "model.json")
            for each, table in ((model, rows), (load(tmp_path / "model.json"), None)):
                (found,) = evaluate(client, each, table, noise=0.02).labels
                assert evaluation(client, each, table, noise=0.02).is_answered()
                if isinstance(found, Values):
                    clear, error = np.mean((model.predict(rows) - truths[place]) ** 2), found.squared_error
                    assert abs(error.value - clear) < error.coarse + 0.2
                else:
                    assert kind != "least squares"
                    clear = np.mean(model.predict(rows) == truths[place])
                    assert abs(found.accuracy.value - clear) < 0.01
            if kind == "logistic":
                assert recalibrated(model, evaluate(client, model, rows, noise=0.02)).label == place
        number = LinearRegression(client, TAG, noise=0.5, label=1, map="columns").fit(rows)
        with pytest.raises(BadArguments, match="takes a yes or no for a number"):
            evaluate(client, number)
        with pytest.raises(BadArguments, match="has 3 labels, and the model is of another"):
            evaluate(client, replace(number.model_, label=3))


def test_a_model_of_the_other_kind_or_none_is_refused_with_what_takes_it():
    """A fit belongs to `fitting`, and what was trained to `client`; both take models, not files."""
    client, rows, _ = filled(more=EVALUATED, count=500)
    unfitted = LogisticRegression(client, TAG, noise=0.5, map="columns")
    fitted = clone(unfitted).fit(rows)
    before, file = charges(client), cast("Any", "play/model.pt")
    trained = cast("Any", Predictor(nn.Linear(FEATURES, 1), "bce", TAG))
    found = evaluate(client, fitted, rows)
    for ours in (fitted, fitted.model_):
        with pytest.raises(BadArguments, match=r"`maskedlark\.fitting\.evaluation`"):
            evaluation_query(client, ours, rows)
        with pytest.raises(BadArguments, match="recalibrated` take it"):
            found.recalibrated(ours)
    with pytest.raises(BadArguments, match=r"'play/model.pt' is a path: give what `maskedlark.training.load"):
        evaluation_query(client, file, rows)
    for ask in (evaluate, evaluation):
        with pytest.raises(BadArguments, match=r"a Predictor is no linear .*: `client\.evaluation` and"):
            ask(client, trained, rows)
        with pytest.raises(BadArguments, match=r"path: give what `maskedlark\.fitting\.load` returns"):
            ask(client, file, rows)
        with pytest.raises(NotFittedError):
            ask(client, unfitted, rows)
        with pytest.raises(NotFittedError):
            ask(client, CellLabels(client, TAG), rows)
    with pytest.raises(BadArguments, match="a Predictor is no linear"):
        recalibrated(trained, found)
    assert charges(client) == before + 1


def test_what_cannot_be_evaluated_is_refused_before_anything_is_asked():
    client, rows, _ = filled("poisson", more=EVALUATED)
    model = PoissonRegressor(client, TAG, noise=0.5).fit(rows)
    with pytest.raises(BadArguments, match="no Poisson model"):
        evaluate(client, model)
    names = [f"column {place}" for place in range(FEATURES)]
    encoder = Encoder.fit(dict(zip(names, rows.T, strict=True)), dict.fromkeys(names, Scaled(0, 255)))
    other, rows, _ = filled(more=EVALUATED, model=f'encoder = "{"00" * 32}"')
    fitted = LogisticRegression(other, TAG, noise=0.5).fit(rows).model_
    object.__setattr__(fitted, "encoder", encoder)
    with pytest.raises(BadArguments, match="declared with the encoder"):
        evaluate(other, fitted)
