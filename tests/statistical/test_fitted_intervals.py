"""Intervals of coefficients cover what clear labels would give, as often as they say.

Seeds are fixed. The share of covered coefficients is compared with 95 % by its standard error over draws: off
by 4 of them with a chance of 6e-5 per case, plus 1 % for what a straight line misses of the solution. Real
labels are rounded at random as browsers do; the clear ones are not.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from maskedlark.dp import mechanisms
from maskedlark.fitting import LinearRegression, LogisticRegression, PoissonRegressor, fit, maps, prior
from maskedlark.fitting.glm import SOFTMAX
from maskedlark.fitting.moments_request import real_rows
from maskedlark.functions.moments import Moments
from maskedlark.randomness import FixedRandomness
from tests.unit.fitting import cases

DRAWS, MANY = 50, 400
NAMES = tuple("abcde")
ESTIMATORS = {
    "logistic": LogisticRegression,
    "softmax": LogisticRegression,
    "least squares": LinearRegression,
    "poisson": PoissonRegressor,
}


def clear_moments(question, features, truth):
    phi, clips = real_rows(question.phi, features)
    targets = np.eye(3)[truth] if question.family is SOFTMAX else np.asarray(truth, float)[:, None]
    return (targets * clips[:, None]).T @ phi


def drawn(question, noise, shape, seed):
    """The noise of all helpers, as they draw it."""
    (column,) = Moments().ask(question.document, question.arguments).columns
    places = range(len(question.document.helpers))
    seeds = [bytes([seed % 256, place + 16 * (seed // 256)]) * 16 for place in places]
    law = question.mechanism.kind, noise, column.sensitivity
    total = np.sum([mechanisms.draw(*law, each, column.width) for each in seeds], axis=0)
    return total.reshape(shape) * question.phi.unit


def check(found):
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found) - 0.95) < 4 * error + 0.01, (np.mean(found), error)


def covered(model, clear):
    truth = np.concatenate([clear.coefficients, clear.intercept[:, None]], axis=1)
    found = model.intervals()
    return ((found[..., 0] <= truth) & (truth <= found[..., 1])).mean()


@pytest.mark.parametrize(
    ("label", "kind", "noise", "helpers"),
    [
        ("logistic", "gaussian", 2.0, 2),
        ("logistic", "laplace", 1.0, 3),
        pytest.param("softmax", "gaussian", 2.0, 2, marks=pytest.mark.long),
        ("least squares", "gaussian", 2.0, 3),
        ("poisson", "laplace", 0.3, 2),
    ],
)
def test_coefficients_of_clear_labels_are_covered(monkeypatch, label, kind, noise, helpers):
    way, features, truth = cases.filled(label, kind=kind, helpers=helpers)
    with way:
        model = ESTIMATORS[label](way, cases.TAG, noise=noise, map="columns")
        check(shares(monkeypatch, model, features, truth, DRAWS))


@pytest.mark.parametrize(
    ("label", "low", "buckets", "middle"),
    [("least squares", -10, 2, -5), ("poisson", 0, 1, 5), ("least squares", 0, 3, 5)],
)
def test_rounding_at_random_to_coarse_buckets_is_covered(monkeypatch, label, low, buckets, middle):
    """Labels near the middle of a bucket, where rounding is off by as much as intervals take it to be."""
    coarse = f'{{kind = "reals", value = "spent", low = {low}, high = 10, buckets = {buckets}}}'
    monkeypatch.setitem(cases.LABELS, label, coarse)
    features = cases.rows()
    truth = middle + 0.4 * (cases.scores(features) + 1)
    with cases.workflow(label) as way:
        way.make_training_dataset("first", cases.TAG, features, [truth], decoded=True)
        model = ESTIMATORS[label](way, cases.TAG, noise=0.05, map="columns")
        check(shares(monkeypatch, model, features, truth, DRAWS))


@pytest.mark.long
@pytest.mark.parametrize(
    ("label", "kind", "noise", "map_", "count"),
    [
        ("logistic", "gaussian", 2.0, "columns", 3000),
        ("logistic", "gaussian", 2.0, "buckets", 3000),
        ("softmax", "laplace", 0.5, "buckets", 3000),
        ("logistic", "gaussian", 4.0, "columns", fit.ENOUGH + 5000),
    ],
)
def test_they_are_covered_in_many_draws(monkeypatch, label, kind, noise, map_, count):
    """Maps of many units, and so many rows that only some of them tell curvatures."""
    way, features, truth = cases.filled(label, kind=kind, count=count)
    with way:
        model = ESTIMATORS[label](way, cases.TAG, noise=noise, map=map_)
        check(shares(monkeypatch, model, features, truth, MANY))


def shares(monkeypatch, model, features, truth, draws):
    """Of every draw, which part of the coefficients is covered."""
    question, noise = model._request(features), model.noise
    moments, deviation = clear_moments(question, features, truth), question.deviation(noise)
    space, rng = question.labels[question.settings.label].space(), FixedRandomness(b"browsers")
    chosen, found = prior.ridge, []
    for seed in range(draws):
        sent = truth if space.buckets is None else space.quantise(truth, rng)
        noisy = clear_moments(question, features, sent) + drawn(question, noise, moments.shape, seed)
        kept: list[Any] = []
        monkeypatch.setattr(prior, "ridge", lambda *given, kept=kept: kept.append(chosen(*given)) or kept[0])
        made = fit.fit(question, noisy, deviation, None)
        # The same settings on clear labels: the ridge is one of them.
        monkeypatch.setattr(prior, "ridge", lambda *_, kept=kept: kept[0])
        found.append(covered(made, fit.fit(question, moments, deviation, None)))
    return found


FAKES = """
fake_rate = 0.3
decoys = [{keys = {}}, {tag = "visits", columns = "0000000000"}]
"""


@pytest.mark.parametrize(("own", "theirs"), [(4000, 3000), (3000, 4000), (3000, 3000)])
def test_rows_that_one_side_lacks_and_fakes_are_corrected_for_and_covered(own, theirs):
    rng = np.random.default_rng(own)
    with cases.workflow(more=FAKES) as way:
        features = cases.rows(4000)
        way.make_training_dataset("first", cases.TAG, features, [cases.labels(features)], decoded=True)
        map_ = maps.fit(features, NAMES, "columns")
        model = LogisticRegression(way, cases.TAG, noise=1.0, map=map_, clip=2.0, ridge=5.0)
        asked = model._request(features)
        assert asked.fake_rate == 0.3
        assert asked.real_records == pytest.approx(4000, rel=0.05)
        deviation, inside, off = asked.deviation(1.0), [], []
        for seed in range(DRAWS):
            everyone = cases.rows(4000, seed=seed + 1)
            truth = cases.labels(everyone, seed=seed)
            # The side with more rows has all of the other's.
            order = rng.permutation(4000)
            mine, held = everyone[order[:own]], order[:theirs]
            records = theirs + rng.binomial(theirs, 0.3)
            here = replace(asked, rows=mine, records=records)
            moments = clear_moments(here, everyone[held], truth[held])
            noisy = moments + drawn(here, 1.0, moments.shape, seed)
            made = fit.fit(here, noisy, deviation, 5.0)
            there = replace(asked, rows=everyone[held], records=theirs * 1.3)
            clear = fit.fit(there, moments, deviation, 5.0)
            inside.append(covered(made, clear))
            off.append(made.predict_proba(mine)[:, 1].mean() - truth.mean())
    check(inside)
    # Without the correction, a third more or fewer records would move every probability by as much.
    assert abs(np.mean(off)) < 0.01
