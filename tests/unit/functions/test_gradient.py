"""The gradient as a function: its sensitivity covers every replaced label, and its share is linear."""

from math import isqrt, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.core import field, sharing
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import TrainingRecords
from maskedlark.errors import BadArguments, NotDeclared
from maskedlark.exact.clip import Norm
from maskedlark.exact.losses import BinaryCrossEntropy, SoftmaxCrossEntropy, SquaredError
from maskedlark.functions import model
from maskedlark.functions.gradient import Gradient, GradientQuery
from maskedlark.randomness import FixedRandomness
from tests.unit.release import stepping
from tests.unit.release.stepping import body, network

LABELS = {
    "binary": ({"kind": "binary"}, BinaryCrossEntropy()),
    "classes": ({"kind": "categorical", "value": "purchase", "classes": 4}, SoftmaxCrossEntropy(4)),
    "numbers": ({"kind": "integers", "value": "purchase", "low": -3, "high": 3}, SquaredError()),
}


def document(*labels, kind="gaussian"):
    declared = {
        "tag": "clicks",
        "columns": [{"kind": "bytes", "count": 4}],
        "labels": [LABELS[each][0] for each in labels],
    }
    mechanisms = {
        "sums": {"kind": "laplace", "noise_floor": 1.0},
        "gradient": {"kind": kind, "noise_floor": 0.5},
        "cells": {"kind": kind, "noise_floor": 0.5},
    }
    models = [declared | {"gradient_bound": 1.5}]
    return stepping.document(models=models, mechanisms=mechanisms, fake_rate=0.0, decoys=[])


def question(found, made, sent=b"weights", dropout=b"s" * 32):
    described = model.describe(made).model_dump(mode="json")
    asked = Gradient().begin(found, "clicks", described).at(body(made, sent), dropout)
    assert isinstance(asked, GradientQuery)
    return asked


def one(found, features, labels):
    """One record, its masks in the clear."""
    core = found.declared_models["clicks"]
    shown, masks = core.mask(
        [np.array([each]) for each in labels], np.ones(1, np.bool_), FixedRandomness(b"")
    )
    return TrainingRecords(np.zeros((1, 16), np.uint8), features, tuple(shown), masks)


def vector(asked, records):
    (table,) = asked.share([records], 1)
    assert table.records.tolist() == [len(records)]
    return field.to_signed(table.shares[0][0]).astype(object)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize(
    "labels", [("binary",), ("classes",), ("numbers",), ("binary", "classes", "numbers")]
)
@settings(max_examples=12)
@given(st.data())
def test_a_replaced_label_moves_the_sum_by_no_more_than_its_sensitivity(kind, labels, data):
    found = document(*labels, kind=kind)
    made = network(losses=[LABELS[each][1] for each in labels])
    asked = question(found, made, data.draw(st.binary(max_size=4)))
    (column,) = asked.columns
    features = np.array([data.draw(st.lists(st.integers(0, 255), min_size=4, max_size=4))], np.uint8)
    spaces = found.declared_models["clicks"].labels
    drawn = st.tuples(*(st.sampled_from(space.values) for space in spaces))
    before = vector(asked, one(found, features, data.draw(drawn)))
    after = vector(asked, one(found, features, data.draw(drawn)))
    moved = before - after
    # As a fake it would be 0, which is nearer.
    assert max(abs(each) for each in (*before, *after)) <= column.largest
    assert sqrt(sum(each * each for each in moved)) <= column.sensitivity.l2
    assert max(sqrt(sum(each * each for each in row)) for row in (before, after)) <= column.largest_l2
    assert column.allows_amplification
    if kind == "laplace":
        assert sum(abs(each) for each in moved) <= column.sensitivity.l1


def test_the_plan_says_what_noise_has_to_cover():
    for kind, norm in (("gaussian", Norm.L2), ("laplace", Norm.L1)):
        asked = question(document("binary", kind=kind), network())
        (column,) = asked.columns
        assert asked.clipping.norm is norm
        assert asked.clipping.psi == 1.5
        top, size = asked.step.row_top, network().size
        assert (column.width, column.largest, column.sensitivity.touched) == (size, top, size)
        assert column.sensitivity.l2 == 2 * top
        assert column.sensitivity.l1 == 2 * top * (1 if kind == "laplace" else isqrt(size - 1) + 1)


def test_shares_add_up_over_helpers_datasets_and_records():
    found = document("binary")
    truth = stepping.truth(found, "clicks", 50, b"records")
    asked, rng = question(found, network()), FixedRandomness(b"shares")
    (table,) = asked.share([truth], 1)
    parts = [
        TrainingRecords(truth.ids[a:b], truth.features[a:b], truth.candidates, truth.shares[a:b])
        for a, b in ((0, 0), (0, 20), (20, 50))
    ]
    (split,) = asked.share(parts, 1)
    assert split.shares[0].tolist() == table.shares[0].tolist()
    assert split.records.tolist() == [50]
    mask = rng.below(field.P, truth.shares.size).reshape(truth.shares.shape)
    shares = [mask, field.subtract(truth.shares, mask)]
    each = [
        asked.share([TrainingRecords(truth.ids, truth.features, truth.candidates, share)], 1)
        for share in shares
    ]
    assert sharing.combine([tables[0].shares[0] for tables in each]).tolist() == table.shares[0].tolist()


def test_dropout_follows_the_shared_secret_alone():
    found, made = document("binary"), network(dropout=128)
    truth = stepping.truth(found, "clicks", 50, b"records")
    one, again, other = (
        question(found, made, dropout=secret) for secret in (b"1" * 32, b"1" * 32, b"2" * 32)
    )
    assert one.share([truth], 1)[0].shares[0].tolist() == again.share([truth], 1)[0].shares[0].tolist()
    assert one.share([truth], 1)[0].shares[0].tolist() != other.share([truth], 1)[0].shares[0].tolist()
    assert question(found, network()).dropout_seed is None


def test_it_is_asked_of_a_declared_model_with_its_own_network():
    assert (Gradient.name, Gradient.purpose) == ("gradient", Purpose.TRAIN)
    described = model.describe(network()).model_dump(mode="json")
    with pytest.raises(NotDeclared, match="no model"):
        Gradient().begin(document("binary"), "others", described)
    with pytest.raises(BadArguments, match="takes labels"):
        Gradient().begin(document("numbers"), "clicks", described)
    assert question(document("binary"), network()).tag == "clicks"
