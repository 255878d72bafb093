import json

import numpy as np
import pytest
from sklearn.metrics import log_loss

from maskedlark.errors import BadArguments
from maskedlark.fitting import LogisticRegression, compare, evaluate
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
        assert (found.difference_errors[found.best] < found.errors.max() * 2).all()
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
