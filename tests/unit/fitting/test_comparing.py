import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import log_loss

from maskedlark.dp import intervals
from maskedlark.errors import BadArguments
from maskedlark.features import Encoder, Scaled
from maskedlark.fitting import (
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    compare,
    comparing,
    evaluate,
)
from maskedlark.fitting.errors import RowsDiffer
from maskedlark.fitting.glm import Rows
from maskedlark.fitting.moments_request import arguments, real_rows
from maskedlark.functions.moments import Moments
from tests.unit.fitting import cases
from tests.unit.fitting.charged import charges


@pytest.mark.parametrize("label", ["logistic", "softmax"])
def test_losses_are_those_of_clear_labels_and_one_charge(label):
    way, features, truth = cases.filled(label)
    with way:
        models = [
            LogisticRegression(way, cases.TAG, noise=0.5, map="columns", ridge=each).fit(features)
            for each in (0.1, 100.0, 10_000.0)
        ]
        found = compare(models, features, noise=0.05)
        assert charges(way) == 2, "one for all fits, one for all comparisons"
        clear = [log_loss(truth, model.predict_proba(features)) for model in models]
        # Rows beyond the clip count less, and scores have 8 bits.
        np.testing.assert_allclose(found.losses, clear, atol=0.02)
        np.testing.assert_allclose(np.diff(found.losses), np.diff(clear), atol=0.01)
        assert found.best == int(np.argmin(clear))
        # Models share most of the noise: a difference is known better than if each had noise of its own.
        apart = np.hypot(found.errors[:, None], found.errors[None])
        assert (found.difference_errors < 0.9 * apart).all()
        assert found.difference_errors[0, 0] == 0
        figures = found.figures()
        assert json.loads(json.dumps(figures)) == figures
        assert "the best" in str(found)
        compare(models, features, noise=0.05)
        assert charges(way) == 2


def test_error_bars_are_those_of_the_noise():
    way, features, _ = cases.filled()
    with way:
        models = [
            LogisticRegression(way, cases.TAG, noise=0.5, map="columns", ridge=each).fit(features)
            for each in (0.1, 1000.0)
        ]
        exact = compare(models, features, noise=0.01)
        off = []
        for step in range(16):
            noisy = compare(models, features, noise=2.0 + step / 1000)
            scale = [noisy.errors[0], noisy.errors[1], noisy.difference_errors[0, 1]]
            both = np.append(noisy.losses, np.diff(noisy.losses)) - np.append(
                exact.losses, np.diff(exact.losses)
            )
            off.append(both / scale)
    # The mean square of 16 standard normal draws is outside with a chance of 1e-4, for each of the three.
    assert ((np.square(off).mean(axis=0) > 0.15) & (np.square(off).mean(axis=0) < 3)).all()


@pytest.mark.parametrize(
    ("label", "estimator"), [("least squares", LinearRegression), ("poisson", PoissonRegressor)]
)
def test_numbers_are_compared_too(label, estimator):
    way, features, truth = cases.filled(label)
    with way:
        models = [
            estimator(way, cases.TAG, noise=0.1, map="columns", ridge=each).fit(features)
            for each in (0.1, 20_000.0)
        ]
        found = compare(models, features, noise=0.05)
    scores = np.stack([model.decision_function(features) for model in models])
    value = scores**2 / 2 if label == "least squares" else np.exp(scores)
    clear = (value - scores * truth).mean(axis=1)
    assert found.best == int(clear.argmin()) == 0
    np.testing.assert_allclose(found.losses, clear, atol=0.05)


FAMILIES = {
    "logistic": LogisticRegression,
    "softmax": LogisticRegression,
    "least squares": LinearRegression,
    "poisson": PoissonRegressor,
}


def answered(phi, moments, noise, column):
    """As helpers answer, with these moments."""
    table = SimpleNamespace(schema=SimpleNamespace(columns=[column]), columns=[[moments.ravel() / phi.unit]])
    return SimpleNamespace(tables=[table], kind="gaussian", noise=noise, helpers=2)


@pytest.mark.parametrize(
    ("label", "own", "theirs"),
    [
        ("logistic", 2000, 1500),
        ("softmax", 1500, 2000),
        *[
            pytest.param(label, *counts, marks=pytest.mark.long)
            for label in FAMILIES
            for counts in ((2000, 1500), (1500, 2000), (2000, 2000))
        ],
    ],
)
def test_fakes_and_rows_that_one_side_lacks_are_in_the_errors(label, own, theirs):
    """50 draws: the mean square of what is off, in errors, is outside with a chance of 1e-4 per number."""
    way, features, _ = cases.filled(label, count=2000)
    rng, rate, off = np.random.default_rng(own), 0.3, []
    with way:
        models: list[Any] = [
            FAMILIES[label](way, cases.TAG, noise=0.5, map="columns", ridge=each).fit(features)
            for each in (0.1, 500.0)
        ]
        first = np.concatenate([each.model_.scores(features) for each in models], axis=1)
        phi, weight, bias = comparing._extended(models, features, first)
        (column,) = Moments().ask(way.document, arguments(cases.TAG, 0, phi)).columns
    deviation = phi.unit * intervals.standard_error("gaussian", 0.5, column.sensitivity, 2)
    back = np.linalg.pinv(weight)
    linear = np.concatenate([back, -(back @ bias)[:, None]], axis=1).reshape(2, -1, phi.width)

    def compared(rows, real, fakes, moments):
        scores = np.concatenate([each.model_.scores(rows) for each in models], axis=1)
        counted = Rows(*real_rows(phi, rows), real / len(rows))
        family = models[0].model_.family
        made = comparing._Compared(family, phi, counted, scores, linear, fakes)
        return made.by(answered(phi, moments, 0.5, column))

    for seed in range(50):
        everyone = cases.rows(2000, seed=seed + 1)
        truth, order = cases.labels(everyone, label, seed), rng.permutation(2000)
        held = order[:theirs]
        numbers, clips = real_rows(phi, everyone[held])
        targets = np.eye(3)[truth[held]] if label == "softmax" else truth[held, None].astype(float)
        moments = (targets * clips[:, None]).T @ numbers
        records = theirs + rng.binomial(theirs, rate)
        noisy = moments + rng.normal(0, deviation, moments.shape)
        found = compared(everyone[order[:own]], records / (1 + rate), rate, noisy)
        clear = compared(everyone[held], theirs, 0.0, moments)
        errors = [*found.errors, found.difference_errors[0, 1]]
        wrong = found.losses - clear.losses
        off.append([*wrong, wrong[1] - wrong[0]] / np.array(errors))
    square = np.square(off).mean(axis=0)
    assert ((square > 0.4) & (square < 1.85)).all(), square


def test_rounding_at_random_to_coarse_buckets_is_in_the_errors(monkeypatch):
    """Labels near the middle of a bucket, next to no noise, and 30 datasets of the same labels.

    The variance of what is off, in errors, is outside with a chance of 1e-4 per number.
    """
    coarse = cases.LABELS["least squares"].replace("20", "2")
    monkeypatch.setitem(cases.LABELS, "least squares", coarse)
    features, losses = cases.rows(1000), []
    with cases.workflow("least squares") as way:
        for each in range(30):
            truth = 0.4 * cases.scores(features) - 4.6
            way.make_training_dataset(f"{each}", cases.TAG, features, [truth], decoded=True)
        models = [
            LinearRegression(way, cases.TAG, noise=0.05, map="columns", datasets=["0"], ridge=each).fit(
                features
            )
            for each in (0.1, 500.0)
        ]
        for each in range(30):
            found = compare(models, features, noise=0.05, datasets=[f"{each}"])
            losses.append([*found.losses, found.losses[1] - found.losses[0]])
    square = np.var(losses, axis=0, ddof=1) / np.square([*found.errors, found.difference_errors[0, 1]])
    assert ((square > 0.28) & (square < 2.36)).all(), square


def test_rows_that_differ_much_in_number_are_warned_of():
    way, features, truth = cases.filled(
        more='fake_rate = 0.5\ndecoys = [{keys = {}}, {tag = "visits", columns = "ff00ff00ff"}]'
    )
    with way:
        model = LogisticRegression(way, cases.TAG, noise=0.1, map="columns").fit(features)
        whole = compare([model], features, noise=0.1)
        clear = log_loss(truth, model.predict_proba(features))
        assert whole.losses[0] == pytest.approx(clear, abs=4 * whole.errors[0])
        with pytest.warns(RowsDiffer, match="this table lacks about 9"):
            part = compare([model], features[:2000], noise=0.1)
        assert part.errors[0] > whole.errors[0]


def test_another_encoder_than_the_documents_is_refused():
    table = {f"c{i}": list(range(100)) for i in range(5)}
    encoder, other = (Encoder.fit(table, {"c0": Scaled(high=high)}) for high in (99, 50))
    rows = encoder.encode(table)
    with cases.workflow(model=f'encoder = "{encoder.digest.hex()}"') as way:
        way.make_training_dataset("first", cases.TAG, rows, [cases.labels(rows)], decoded=True)
        model = LogisticRegression(way, cases.TAG, noise=1.0, encoder=encoder, map="columns").fit(table)
        model.model_ = replace(model.model_, encoder=other)
        with pytest.raises(BadArguments, match="declared with the encoder"):
            compare([model], table, noise=1.0)
        assert charges(way) == 1


def test_models_of_different_maps_are_refused():
    way, features, _ = cases.filled()
    with way:
        one, other = (
            LogisticRegression(way, cases.TAG, noise=0.5, map=each).fit(features)
            for each in ("columns", "buckets")
        )
        with pytest.raises(BadArguments, match="different maps"):
            compare([one, other], features, noise=1.0)
        with pytest.raises(BadArguments, match="call fit first"):
            compare([LogisticRegression(way, cases.TAG)], features)
        for epsilon in (float("inf"), float("nan"), 0.0):
            with pytest.raises(BadArguments, match="finite number over 0"):
                compare([one], features, epsilon=epsilon)
            with pytest.raises(BadArguments, match="finite number over 0"):
                evaluate(way, one, features, epsilon=epsilon)
        assert charges(way) == 2
