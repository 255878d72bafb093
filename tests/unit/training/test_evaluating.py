"""Evaluations by real pipelines: every loss, every part, exact counts under the noise of all helpers."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

from maskedlark.core import batches
from maskedlark.errors import BadArguments
from maskedlark.exact.errors import ModelDoesNotFit
from maskedlark.training.metrics import Binary, Classes, Values
from maskedlark.training.predictor import Predictor
from tests.unit.release import stepping
from tests.unit.training.cases import evaluate
from tests.unit.training.evaluators import Evaluator

LABELS = {
    "bce": {"kind": "binary"},
    "softmax": {"kind": "categorical", "value": "purchase", "classes": 3},
    "mse": {"kind": "integers", "value": "purchase", "low": -2, "high": 2},
}
SIGMAS = 6.0
"""One false alarm in 10^8 for each comparison, were the seeds fresh; they are fixed."""


def client(folder, *losses, helpers=2, floor=0.5, **changes):
    models = [
        {
            "tag": "clicks",
            "columns": [{"kind": "bytes", "count": 4}],
            "labels": [LABELS[loss] for loss in losses],
            "gradient_bound": 1.0,
        }
    ]
    mechanisms = {
        "sums": {"kind": "laplace", "noise_floor": 1.0},
        "gradient": {"kind": "gaussian", "noise_floor": floor},
        "cells": {"kind": "gaussian", "noise_floor": floor},
    }
    document = stepping.document(
        helpers, models=models, decoys=[], fake_rate=0.0, mechanisms=mechanisms, **changes
    )
    return Evaluator(folder, document, (400, 200))


def linear(outputs, seed=0):
    torch.manual_seed(seed)
    layer = nn.Linear(4, outputs)
    with torch.no_grad():
        layer.weight *= 4
    return nn.Sequential(layer)


def near(measure, truth):
    assert measure.within(truth, SIGMAS), f"{measure}, and the truth is {truth}"


@pytest.mark.parametrize("helpers", [2, 3])
def test_a_binary_label(tmp_path, helpers):
    asked = client(tmp_path, "bce", helpers=helpers)
    model = linear(1)
    found = evaluate(asked, model, loss="bce", tag="clicks")
    (label,) = found.labels
    assert isinstance(label, Binary)
    features, (truth,) = asked.truth("clicks")
    scores = Predictor(model, "bce", "clicks").predict(features)
    near(label.auc, float(roc_auc_score(truth, scores)))
    near(label.accuracy, float(((scores >= 0.5) == truth).mean()))
    near(label.log_loss, float(-np.log(np.where(truth, scores, 1 - scores)).mean()))
    near(label.records, len(truth))
    for middle, measure in label.calibration():
        place = int(np.searchsorted(label.edges, middle)) - 1
        inside = (label.edges[place] <= scores) & (scores < label.edges[place + 1])
        near(measure, float(truth[inside].mean()))
    # The noise of all helpers: 0.5 times √2, and what rounding adds, of each.
    assert label.deviation == pytest.approx(math.sqrt(helpers * (0.5 + 1 / 12)), rel=0.1)
    exact = np.zeros_like(label.counts)
    np.add.at(exact, (np.searchsorted(label.edges[1:-1], scores, side="right"), truth), 1)
    assert np.abs(label.counts - exact).max() < SIGMAS * label.deviation + 3
    assert label.deviation / 2 < (label.counts - exact).std() < 2 * label.deviation
    assert str(found).startswith("AUC")
    asked.close()


def test_over_all_records_buckets_below_k_join_their_neighbours_and_over_a_part_they_do_not(tmp_path):
    """The same buckets of probability in both: edges are logits."""
    huge = {"epsilon": 1e6, "delta": 1e-3}
    room = {"budget": huge, "training": {"adserver": huge, "coalition": huge}}
    asked, model = client(tmp_path, "bce", floor=5e-3, **room), linear(1)
    saved = Predictor(model, "bce", "clicks")
    (whole,) = evaluate(asked, saved, buckets=50).labels
    # Everybody is in the part: the share that is out is not 0, but small.
    (part,) = evaluate(asked, saved, buckets=50, part="training", held_out=1e-12).labels
    assert isinstance(whole, Binary)
    assert isinstance(part, Binary)
    held = np.concatenate([each["clicks"].features for each in asked.rig.truth])
    scores = saved.predict(held)
    sizes = np.bincount(np.minimum((scores * 50).astype(int), 49), minlength=50)
    features, (truth,) = asked.truth("clicks")
    exact = np.zeros((50, 2))
    places = np.minimum((saved.predict(features) * 50).astype(int), 49)
    np.add.at(exact, (places, truth), 1)
    assert 0 < (sizes < stepping.K).sum() < 50
    # Weights of 16 bits put one score on the other side of its edge.
    assert np.abs(part.counts - exact).sum() <= 2
    first = np.searchsorted(part.edges, whole.edges[:-1] - 1e-9)
    assert len(first) < 50
    assert (whole.counts == np.add.reduceat(part.counts, first, axis=0)).all()
    assert (np.add.reduceat(sizes, first) >= stepping.K - 1).all()
    assert (whole.edges[0], whole.edges[-1], len(part.edges)) == (0, 1, 51)
    asked.close()


def test_with_rows_only_ones_are_asked_for_by_quantiles_of_their_scores(tmp_path):
    asked, model = client(tmp_path, "bce"), linear(1)
    features, (truth,) = asked.truth("clicks")
    saved = Predictor(model, "bce", "clicks")
    (label,) = evaluate(asked, saved, features, noise=0.5).labels
    assert isinstance(label, Binary)
    scores = saved.predict(features)
    near(label.auc, float(roc_auc_score(truth, scores)))
    near(label.accuracy, float(((scores >= 0.5) == truth).mean()))
    near(label.log_loss, float(-np.log(np.where(truth, scores, 1 - scores)).mean()))
    near(label.base_rate, float(truth.mean()))
    assert label.records.value == pytest.approx(len(truth))
    assert label.records.error == 0
    place = np.searchsorted(label.edges[1:-1], scores, side="right")
    # Every bucket holds about as many rows, and what is no one is a zero. Noise of 0.5 and rounding, √2 less.
    assert label.counts.sum(axis=1).min() >= stepping.K
    assert np.abs(label.counts[:, 1] - np.bincount(place, truth)).max() < SIGMAS * label.deviation + 3
    assert label.deviation == pytest.approx(math.sqrt(2 * (0.25 + 1 / 12)), rel=0.15)
    blind = evaluate(asked, saved, noise=0.5).labels[0]
    assert isinstance(blind, Binary)
    assert label.auc.half_width < 0.5 * blind.auc.half_width
    asked.close()


def test_over_a_part_both_labels_are_counted_by_the_same_quantiles(tmp_path):
    asked, model = client(tmp_path, "bce"), linear(1)
    features, _ = asked.truth("clicks")
    saved = Predictor(model, "bce", "clicks")
    options = {"part": "training", "held_out": 1e-12, "noise": 0.5}
    (part,) = evaluate(asked, saved, features, buckets=8, **options).labels
    (whole,) = evaluate(asked, saved, features, buckets=8, noise=0.5).labels
    assert isinstance(part, Binary)
    assert isinstance(whole, Binary)
    assert (part.total_error, whole.total_error) == (None, 0.0)
    assert part.edges == pytest.approx(whole.edges)
    assert np.abs(part.counts - whole.counts).max() < 2 * SIGMAS * part.deviation + 3
    asked.close()


def test_with_rows_values_are_cut_by_quantiles_too(tmp_path):
    asked, model = client(tmp_path, "mse"), linear(1)
    features, (truth,) = asked.truth("clicks")
    (label,) = evaluate(asked, model, features, loss="mse", tag="clicks", buckets=10).labels
    assert isinstance(label, Values)
    scores = Predictor(model, "mse", "clicks").predict(features)
    near(label.bias, float((scores - truth).mean()))
    near(label.squared_error, float(((scores - truth) ** 2).mean()))
    assert label.counts.sum(axis=1) == pytest.approx(len(truth) / 10, rel=0.3)
    asked.close()


def test_classes(tmp_path):
    asked, model = client(tmp_path, "softmax"), linear(3)
    (label,) = evaluate(asked, model, loss="softmax", tag="clicks").labels
    assert isinstance(label, Classes)
    features, (truth,) = asked.truth("clicks")
    scores = Predictor(model, "softmax", "clicks").predict(features)
    near(label.accuracy, float((scores.argmax(axis=1) == truth).mean()))
    asked.close()


def test_values(tmp_path):
    asked, model = client(tmp_path, "mse"), linear(1)
    (label,) = evaluate(asked, model, loss="mse", tag="clicks", buckets=40).labels
    assert isinstance(label, Values)
    features, (truth,) = asked.truth("clicks")
    # What lies outside of the scale counts at its ends.
    scores = Predictor(model, "mse", "clicks").predict(features).clip(-2, 2)
    near(label.squared_error, float(((scores - truth) ** 2).mean()))
    near(label.bias, float((scores - truth).mean()))
    asked.close()


def test_several_labels(tmp_path):
    asked, model = client(tmp_path, "bce", "mse"), linear(2)
    found = evaluate(asked, model, loss=["bce", "mse"], tag="clicks")
    one, other = found.labels
    assert isinstance(one, Binary)
    assert isinstance(other, Values)
    assert str(found).splitlines()[1].startswith("label 1: squared error")
    features, (clicked, spent) = asked.truth("clicks")
    with torch.inference_mode():
        outputs = model(torch.from_numpy(features).float() / 256).numpy()
    near(one.auc, float(roc_auc_score(clicked, outputs[:, 0])))
    near(other.bias, float((outputs[:, 1].clip(-2, 2) - spent).mean()))
    asked.close()


def test_parts_are_those_of_the_run(tmp_path):
    asked, model = client(tmp_path, "bce"), linear(1)
    saved = Predictor(model, "bce", "clicks")

    def records(**asking):
        (label,) = evaluate(asked, saved, **asking).labels
        assert isinstance(label, Binary)
        return label.records

    out = sum(
        (
            batches.held_out(asked.rig.seeds[digest], "clicks", 0.3, len(truth["clicks"]))
            & truth["clicks"].shares.any(axis=1)
        ).sum()
        for digest, truth in zip(asked.rig.digests, asked.rig.truth, strict=True)
    )
    near(records(part="held_out", held_out=0.3), int(out))
    near(records(), len(asked.truth("clicks")[0]))
    near(records(part="training", held_out=0.3), len(asked.truth("clicks")[0]) - int(out))
    asked.close()


def test_what_is_not_said_is_asked_for_before_anything_is_charged(tmp_path):
    asked, model = client(tmp_path, "bce"), linear(1)
    with pytest.raises(BadArguments, match="give loss and tag"):
        evaluate(asked, model)
    for few in (0, 1):
        with pytest.raises(BadArguments, match=f"buckets={few}: .* give 2 or more"):
            evaluate(asked, Predictor(model, "bce", "clicks"), buckets=few)
    with pytest.raises(BadArguments, match="goes with held_out"):
        evaluate(asked, Predictor(model, "bce", "clicks"), part="held_out")
    with pytest.raises(ModelDoesNotFit):
        evaluate(asked, linear(1), loss=["bce", "bce"], tag="clicks")
    with pytest.raises(BadArguments, match="1 labels"):
        evaluate(asked, linear(2), loss=["bce", "bce"], tag="clicks")
    assert asked.rig.ledgers[0][0].receipts(stepping.ORIGIN)[2:] == []
    asked.close()
