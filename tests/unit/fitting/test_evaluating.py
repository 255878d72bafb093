import numpy as np
import pytest

from maskedlark.errors import BadArguments
from maskedlark.features import Encoder, Scaled
from maskedlark.fitting import LinearRegression, LogisticRegression, PoissonRegressor, evaluate, load
from tests.unit.fitting.cases import FEATURES, TAG, filled

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


def test_classes_and_numbers():
    model, rows, labels, found = evaluated(LogisticRegression, "softmax")
    assert abs(found.accuracy.value - np.mean(model.predict(rows) == labels)) < 0.01
    model, rows, labels, found = evaluated(LinearRegression, "least squares")
    error = found.squared_error
    assert abs(error.value - np.mean((model.predict(rows) - labels) ** 2)) < error.coarse + 0.2


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
