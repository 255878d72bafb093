"""The fraction and depth of a run follow from its batch: what was opened is never refused by the field."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from maskedlark.dp import mechanisms
from maskedlark.errors import FieldOverflow
from maskedlark.exact.clip import Clip
from maskedlark.exact.errors import OutOfField
from maskedlark.exact.layout import step_layout
from maskedlark.exact.quantise import Quantised, finest, stand_in
from maskedlark.functions.gradient import GradientQuery
from maskedlark.release.checks import check_range
from maskedlark.training import network as networks
from maskedlark.training import precision
from tests.unit.training import cases
from tests.unit.training.cases import FEATURES, TAG

X, Y = cases.table()


def document(psi=1.0, features=FEATURES, labels=None, **changes):
    declared = {
        "tag": TAG,
        "columns": [{"kind": "bytes", "count": features}],
        "labels": [labels or {"kind": "binary"}],
        "gradient_bound": psi,
    }
    return cases.document(models=[declared], **changes)


def dense(*sizes):
    torch.manual_seed(0)
    layers = [nn.Linear(*each) for each in pairwise(sizes)]
    between = [each for layer in layers for each in (layer, nn.ReLU())]
    return nn.Sequential(*between[:-1])


def traced(model, loss="bce"):
    return networks.network(model, networks.losses(loss, model), model[0].in_features)


def scaled(model, by):
    """The same with weights so many times as large."""
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(by)
    return model


WIDE = dense(100, 128, 64, 1)
MANY = 100_000


def chosen(model=WIDE, records=MANY, psi=1.0, noise=0.5, loss="bce", **given):
    """The clip of a run over so many records a step."""
    network = traced(model, loss)
    asked = {"bits": 8, "fraction": None, "depth": None, **given}
    return precision.choose(document(psi), TAG, network, noise=noise, records=records, **asked)


def test_the_network_that_was_refused_is_planned_to_fit():
    network = traced(WIDE)
    step = step_layout(
        network, networks.quantised(network, WIDE, stand_in((1,) * network.features), 8), Clip(1.0)
    )
    with pytest.raises(OutOfField, match="could leave the field by 2 bits"):
        step.check_range(MANY)
    assert chosen() == Clip(1.0, fraction=19)
    step_layout(
        network, networks.quantised(network, WIDE, stand_in((1,) * network.features), 8), chosen()
    ).check_range(MANY)


def test_where_the_field_has_room_nothing_is_lost():
    assert chosen(records=10_000) == Clip(1.0)


def test_the_fraction_falls_with_the_batch_the_bound_and_the_noise():
    assert [chosen(records=10**n).fraction for n in range(4, 9)] == [20, 19, 16, 12, 9]
    assert [chosen(psi=4.0**n).fraction for n in range(4)] == [19, 17, 15, 13]
    assert [chosen(noise=10.0**n).fraction for n in range(2, 6)] == [19, 19, 17, 14]
    # Above 2^11, ψ alone limits it: clipped errors have 31 bits.
    assert chosen(records=1, psi=2.0**15, model=dense(4, 1)).fraction == 15


def test_a_fraction_that_is_given_stays_or_is_refused_with_the_one_that_fits():
    assert chosen(fraction=12).fraction == 12
    with pytest.raises(OutOfField, match=r"fraction=20: sums of up to 100000 records.* take 19 or less"):
        chosen(fraction=20)
    assert chosen(fraction=19) == chosen()


def test_what_fits_at_no_fraction_is_refused_before_anything_is_charged():
    home = cases.in_memory(document(1e6), TAG, X, [Y])
    with pytest.raises(OutOfField, match="however coarse they are: take smaller batches or less noise"):
        cases.run(home, cases.model(), noise=1e7)
    assert not any(each.ledger.receipts("ads.example", 1) for each in home.helpers)


def test_a_deep_softmax_takes_layers_in_the_clear_before_it_becomes_coarse():
    deep = dense(6, 5, 5, 5, 3)
    assert chosen(deep, 10, loss="softmax", psi=0.01) == Clip(0.01, fraction=20)
    assert chosen(deep, 4000, loss="softmax", psi=0.01) == Clip(0.01, fraction=16)
    assert chosen(deep, 10_000, loss="softmax", psi=0.01) == Clip(0.01, fraction=20, depth=1)
    assert chosen(deep, 30_000_000, loss="softmax") == Clip(1.0, fraction=17, depth=2)
    assert chosen(deep, 30_000_000, loss="softmax", fraction=18) == Clip(1.0, fraction=18, depth=3)
    # A depth that is given stays.
    assert chosen(deep, 10_000, loss="softmax", depth=0) == Clip(1.0, fraction=8)
    with pytest.raises(OutOfField, match="leave depth out"):
        chosen(deep, 10**8, loss="softmax", depth=0)
    # Other losses always run back in the clear.
    assert chosen(dense(6, 5, 5, 5, 1), 10**8).depth == 0


def steps_at(training, *weights):
    """Answers of one step at weights of each of these sizes."""
    sizes = iter(weights)
    for step in training:
        scaled(training.model, next(sizes))
        step.backward()


@pytest.mark.parametrize("loss", ["bce", "softmax"])
def test_a_session_that_was_opened_is_answered_whatever_the_weights_become(loss):
    kind = {"kind": "binary"} if loss == "bce" else {"kind": "categorical", "value": "purchase", "classes": 3}
    home = cases.in_memory(document(1000.0, labels=kind), TAG, X, [Y])
    # So large at first that the step would fit with more bits than it does when they have shrunk.
    net = scaled(dense(FEATURES, 5, 5, 1 if loss == "bce" else 3), 10)
    training = cases.run(home, net, loss=loss, sampling="whole", steps=5, noise=5000.0, depth=0)
    clip, network = training.clip, training.network
    assert clip.fraction < 20
    at_first = step_layout(network, training.quantised(), clip).exponent
    assert at_first < step_layout(network, finest(network), clip).exponent
    steps_at(training, 1.0, 2.0, 1e-3, 1e-6, 0.0)
    # One bit more, and the last step would have been refused: nothing more was given away.
    finer = Clip(1000.0, fraction=clip.fraction + 1)
    (column,) = GradientQuery(TAG, network, training.quantised(), finer).columns
    with pytest.raises(FieldOverflow):
        check_range(home.document, "gradient", column, 5000.0, len(X))


def test_a_poisson_batch_needs_the_field_for_its_own_records_alone():
    home = cases.in_memory(document(1000.0), TAG, X, [Y])
    whole = cases.run(home, dense(FEATURES, 5, 5, 1), sampling="whole")
    some = cases.run(home, dense(FEATURES, 5, 5, 1), sampling_rate=0.1)
    parts = cases.run(home, dense(FEATURES, 5, 5, 1), batches=8)
    assert (whole.clip.fraction, some.clip.fraction, parts.clip.fraction) == (17, 19, 20)
    most = [each.plan().precision.most for each in (whole, some, parts)]
    assert most == [300, 86, 38]
    for each in (some, parts):
        for step in each:
            step.backward()


def test_a_plan_says_what_is_lost_in_words_and_in_figures():
    home = cases.in_memory(document(1000.0), TAG, X, [Y])
    plan = cases.run(home, dense(FEATURES, 5, 5, 1), sampling="whole", sample=X).plan()
    figures = plan.figures()
    assert (figures["fraction"], figures["depth"], figures["batch_at_most"]) == (17, 0, 300)
    (line,) = [each for each in str(plan).splitlines() if each.startswith("errors have")]
    lost, noise = figures["truncation"], plan.deviation * math.sqrt(plan.size) / 1000
    assert 0 < lost < 1e-7
    assert "17 binary digits after the point, not 20, so that sums of up to 300 records fit the field" in line
    assert f"the gradient of these rows is off by at most {lost:.2g} ψ" in line
    assert f"noise of a step's mean gradient is about {noise:.2g} ψ long" in line
    usual = cases.run(cases.home(cases.document()), cases.model(), sampling="whole").plan()
    assert usual.figures()["fraction"] == 20
    assert "digits after the point" not in str(usual)


def test_a_loss_that_can_be_seen_gets_advice_and_layers_in_the_clear_are_said():
    coarse = precision.Precision(Clip(1.0, fraction=4, depth=2), 10**9, 0.4, False)
    clear, line = coarse.lines(0.0)
    assert clear == "errors pass 2 layers in the clear, which takes longer but loses nothing"
    assert "made-up rows is off by at most 0.4 ψ. Smaller batches" in line
    assert "noise" not in line


def test_noise_in_units_of_the_sensitivity_does_not_depend_on_the_fraction():
    """The ad server chooses the fraction, so it must not buy a smaller share of noise."""
    network = traced(cases.model())
    weights = networks.quantised(network, cases.model(), stand_in((1,) * FEATURES), 8)
    for fraction in range(1, 31):
        for psi in (1.0, 0.3):
            query = GradientQuery(TAG, network, weights, Clip(psi, fraction=fraction))
            (column,) = query.columns
            real = 2.0**-query.step.exponent
            # At least twice ψ, in reals, at any fraction: never below what a replaced label can move.
            assert column.sensitivity.l2 * real >= 2 * psi
            assert mechanisms.deviation("gaussian", 0.5, column.sensitivity) >= 0.5 * column.sensitivity.l2
            if fraction >= 8:
                assert column.sensitivity.l2 * real == pytest.approx(2 * psi, rel=1e-3)


def test_no_weights_have_larger_exponents_than_zeros():
    model = dense(FEATURES, 5, 5, 1)
    network = traced(model)
    for by in (1e-9, 1e-3, 1.0, 20.0):
        sent = networks.quantised(network, scaled(dense(FEATURES, 5, 5, 1), by), stand_in((1,) * FEATURES), 8)
        assert _not_above(sent, finest(network))
    assert finest(network, 16).exponents[2] == 18


def _not_above(sent: Quantised, top: Quantised) -> bool:
    exponents = np.array([*sent.exponents, *sent.activations])
    # A bias's exponent enters no gradient, but follows from those that do.
    return bool((exponents <= np.array([*top.exponents, *top.activations])).all())
