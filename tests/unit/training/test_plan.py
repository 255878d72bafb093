import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from maskedlark import fitting
from maskedlark.adserver.report_store import ChunkStart, Selection
from maskedlark.adserver.spending import BudgetState
from maskedlark.core.batches import room
from maskedlark.core.purpose import Purpose
from maskedlark.dp.session_charge import SessionCharge, adserver_epsilon, coalition_epsilon
from maskedlark.errors import BadArguments, NoiseTooSmall
from maskedlark.features import Encoder, Scaled
from maskedlark.ledger.budget import SESSIONS, BudgetEntry, EpsilonPair
from maskedlark.ledger.errors import AccountClosed, BudgetExhausted, DeltaExhausted
from maskedlark.ledger.wording import at_most, both
from maskedlark.release.errors import OtherPurpose, TooFewRecords, TooManyRecords
from maskedlark.training import plan as plans
from maskedlark.training.checkpoint import kept
from maskedlark.training.errors import OtherRun, OverCeiling
from maskedlark.training.plan import PrivacyTarget, drawn, expected_batch
from maskedlark.training.predictor import Predictor
from tests.unit.training.cases import FEATURES, TAG, document, evaluate, home, model, run, table


def test_noise_follows_from_epsilon_against_the_ad_server():
    found = plans.session_charge(
        document(), TAG, drawn(rate=0.02), 500, PrivacyTarget(epsilon=3.0, delta=1e-5), 10_000
    )
    assert found is not None
    assert 0.99 * 3.0 < adserver_epsilon(found) <= 3.0 < coalition_epsilon(found)


def test_noise_follows_from_epsilon_against_a_coalition():
    plan = run(home(document()), model(), epsilon=3.0, against="coalition", batches=2).plan()
    assert 0.99 * 3.0 < plan.coalition_epsilon <= 3.0
    assert plan.epsilon == plan.coalition_epsilon


def test_epsilon_follows_from_noise():
    plan = run(home(document()), model(), sampling_rate=0.5).plan()
    assert plan.noise == 0.5
    assert plan.session_charge is not None
    assert (plan.epsilon, plan.coalition_epsilon) == (
        adserver_epsilon(plan.session_charge),
        coalition_epsilon(plan.session_charge),
    )
    for text in (
        f"ε = {plan.epsilon:.4g} against the ad server",
        f"{plan.coalition_epsilon:.4g} against it with all",
        "150 of 300",
    ):
        assert text in str(plan)
    assert plan.figures()["epsilon"] == plan.epsilon


@pytest.mark.parametrize(
    ("batches", "fits"),
    [
        ({"sampling_rate": 0.5}, {"sampling_rate": 0.333}),
        ({"sampling_rate": 0.5, "held_out": 0.2}, {"sampling_rate": 0.416}),
        ({"batches": 2}, {"batches": 3}),
        ({"sampling": "whole"}, {"sampling_rate": 0.333}),
    ],
)
def test_a_plan_refuses_batches_of_more_than_a_release_may_have_and_says_which_fit(batches, fits):
    """300 records in all. Helpers refuse the same, but only when the session is opened."""
    few = home(document(max_records=100))
    ((name, value),) = fits.items()
    with pytest.raises(TooManyRecords, match=rf"smaller batches.*; {name} = {value} would fit$"):
        run(few, model(), **batches).plan()
    held_out = {each: batches[each] for each in batches if each == "held_out"}
    run(few, model(), **fits, **held_out).plan()


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, 2.0])
def test_a_delta_that_cannot_be_meant_is_said_to_be_the_mistake(delta):
    with pytest.raises(BadArguments, match=rf"delta={delta}: with gaussian noise it is over 0"):
        run(home(document()), model(), sampling="whole", noise=None, epsilon=1.0, delta=delta).plan()


def test_a_plan_refuses_fewer_records_than_k():
    with pytest.raises(TooFewRecords, match="fewer than k = 301"):
        run(home(document(k=301)), model(), sampling="whole").plan()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"noise": 1.0, "epsilon": 2.0}, "give the noise, or the epsilon"),
        ({"noise": None}, "give the noise, or the epsilon"),
        ({"epsilon": 2.0, "against": "me"}, "against 'me'"),
        ({"epsilon": 1e-12, "batches": 2}, "no noise makes 6 steps cost only ε = 1e-12"),
        ({"epsilon": 0.0}, "finite number over 0"),
        ({"epsilon": float("inf")}, "finite number over 0"),
        ({"noise": float("nan")}, "finite number over 0"),
        ({"batches": 3, "sampling_rate": 0.1}, "say how batches are made"),
        ({"sampling": "some"}, "there are 'whole' and 'chosen'"),
        ({"sampling_rate": 1.5}, "over 0, and 1 at most"),
        ({"batches": 0}, "an epoch has 1 or more"),
        ({"held_out": 1.0}, "less than 1"),
        ({"steps": 0}, "a run has 1 to"),
        ({"bits": 9}, "8 or 16"),
        ({"checkpoint_every": 0}, "after 1 step or more"),
        ({"delta": 0.0, "batches": 2}, "delta"),
        ({"steps": 1.5}, "steps=1.5: it is a whole number"),
        ({"batches": 2.0}, "batches=2.0: it is a whole number"),
        ({"checkpoint_every": "10"}, "checkpoint_every='10': it is a whole number"),
        ({"sampling_rate": "0.2"}, "sampling_rate=0.2: a rate is over 0"),
        ({"sample": pd.DataFrame({"age": [1]})}, r"sample=encoder\.encode\(people\)"),
        ({"sample": [[0] * FEATURES]}, r"sample=encoder\.encode\(people\)"),
        ({"sample": np.zeros((3, FEATURES))}, r"sample=encoder\.encode\(people\)"),
        ({"folder": __file__}, "is a file: name a folder"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(options, said):
    with pytest.raises(BadArguments, match=said) as caught:
        run(home(document()), model(), **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("net", "options", "said"),
    [
        (LogisticRegression(), {}, r"is a LogisticRegression: .*torch.nn.Module.*training\.read_onnx"),
        ("model.onnx", {}, r"is a str: .*torch.nn.Module.*training\.read_onnx"),
        (
            torch.compile(nn.Linear(FEATURES, 1), backend="eager"),
            {},
            "give the module itself, not what torch.compile returns",
        ),
        (model().requires_grad_(False), {}, r"every parameter of the model is fixed"),
        (model(3), {"loss": "softmax"}, r"3 here, and visits declares binary labels of 0 … 1: .* 2 outputs"),
    ],
)
def test_a_model_that_cannot_be_meant_is_refused_before_anything_is_charged(net, options, said):
    helpers = home(document())
    with pytest.raises(BadArguments, match=said):
        run(helpers, net, **options)
    if "softmax" in options.values():
        with pytest.raises(BadArguments, match=said):
            evaluate(helpers, net, **{"tag": TAG, "loss": "bce", **options})


def test_a_model_of_fitting_and_an_onnx_file_are_told_who_takes_them():
    helpers = home(document())
    with pytest.raises(
        BadArguments, match=r"a LogisticRegression is no run.*maskedlark\.fitting\.evaluation"
    ):
        evaluate(helpers, fitting.LogisticRegression(helpers, TAG))
    with pytest.raises(BadArguments, match=r"'model.onnx' is a path: .*`maskedlark\.training\.read_onnx`"):
        evaluate(helpers, "model.onnx", tag=TAG, loss="bce")


def test_a_softmax_of_two_is_for_a_binary_label():
    assert run(home(document()), model(2), loss="softmax").plan().records == 300


def test_a_dataset_to_aggregate_is_refused_by_the_client_itself(monkeypatch):
    helpers = home(document())
    selection = Selection(Purpose.AGGREGATE, helpers.document.digest, 5, 6)
    helpers._datasets.add("measured", selection, [ChunkStart(5, b"", 1)])
    helpers._datasets.freeze("measured", bytes(32), 1)
    monkeypatch.setattr(type(helpers.helpers[0]), "counts", None)  # No helper is asked.
    said = "measured is of reports to aggregate, .* to train: there is visits"
    with pytest.raises(OtherPurpose, match=said):
        run(helpers, model(), datasets=["measured"])
    with pytest.raises(OtherPurpose, match=said):
        evaluate(helpers, model(), loss="bce", tag=TAG, datasets=["visits", "measured"])
    with pytest.raises(OtherPurpose, match=said):
        fitting.LogisticRegression(helpers, TAG, epsilon=1.0, datasets=["measured"]).plan(table()[0])
    with pytest.raises(OtherPurpose, match=r"visits is of reports to train, .*: there is measured"):
        helpers.query(["count"], datasets="visits")


def test_whole_numbers_may_be_numpys():
    assert run(home(document()), model(), steps=np.int64(3), batches=np.int32(2)).plan().steps == 3


def test_both_ceilings_of_the_document_are_kept():
    plan = run(home(document()), model(), sampling_rate=0.5).plan()
    between = (plan.epsilon + plan.coalition_epsilon) / 2

    def refused(adserver, coalition):
        ceilings = {
            "adserver": {"epsilon": adserver, "delta": 1e-3},
            "coalition": {"epsilon": coalition, "delta": 1e-3},
        }
        with pytest.raises(BadArguments) as caught:
            run(home(document(training=ceilings)), model(), sampling_rate=0.5)
        return str(caught.value)

    figures = f"this costs ε = {both(plan.epsilon, plan.coalition_epsilon)}; what training may cost against"
    assert f"{figures} the ad server is {plan.epsilon - 0.1:g} in all" in refused(plan.epsilon - 0.1, 9000)
    said = refused(between, between)
    assert f"{figures} the ad server with all helpers but one is {between:g} in all" in said
    assert f"ask for epsilon={at_most(between)}, against='coalition'" in said


def test_less_noise_than_the_floor_is_refused_and_never_calibrated_to():
    floor = {
        "sums": {"kind": "laplace", "noise_floor": 1.0},
        "gradient": {"kind": "gaussian", "noise_floor": 3.0},
        "cells": {"kind": "gaussian", "noise_floor": 3.0},
    }
    with pytest.raises(NoiseTooSmall, match="below the declared 3"):
        run(home(document(mechanisms=floor)), model(), noise=2.9)
    plan = run(home(document(mechanisms=floor)), model(), epsilon=50.0, batches=2).plan()
    assert plan.noise == 3.0
    assert plan.epsilon < 50.0
    said = "noise is at its declared floor: no larger ε is possible"
    assert said in str(plan)
    assert said not in str(run(home(document(mechanisms=floor)), model(), epsilon=1.0, batches=2).plan())


def test_a_partition_is_charged_by_epochs_and_expected_batches_leave_out_what_is_held_out():
    epochs = run(home(document()), model(), batches=3, steps=6, noise=5.0).plan()
    assert epochs.session_charge is not None
    assert (epochs.session_charge.steps, epochs.session_charge.rate, epochs.batch) == (2, 1.0, 100)
    assert "each once in 3 steps" in str(epochs)
    assert expected_batch(drawn(rate=0.5, held_out=0.2), 300) == pytest.approx(120)
    assert expected_batch(drawn(kind="whole", held_out=0.2), 300) == pytest.approx(240)
    assert expected_batch(drawn(rate=1e-9), 300) == 1


def test_delta_leaves_room_for_other_sessions_unless_it_is_given():
    found = plans.session_charge(document(), TAG, drawn(batches=2), 6, PrivacyTarget(noise=1.0), 300)
    assert found is not None
    assert found.delta == pytest.approx(1e-3 / 3 / 2 / SESSIONS)


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        (1.0, "off; recalibrate (`maskedlark evaluate --recalibrate`), or "),
        (3.0, ""),
        (10.0, "for less noise"),
    ],
)
def test_a_plan_says_how_its_bound_suits_the_rows(bound, said):
    models = [
        {
            "tag": TAG,
            "columns": [{"kind": "bytes", "count": 6}],
            "labels": [{"kind": "binary"}],
            "gradient_bound": bound,
        }
    ]
    at = home(document(models=models))
    layer = nn.Linear(6, 1)
    rows = np.full((9, 6), 255, np.uint8)
    plan = run(at, layer, noise=5.0, sample=rows).plan()
    assert plan.typical == plan.figures()["typical_gradient"] == 2.6
    (line,) = [each for each in str(plan).splitlines() if each.startswith("ψ")]
    assert line.startswith(f"ψ = {bound:g}; at these weights, half of the rows can have gradients of 2.6")
    assert ("declare gradient_bound = 2.6" in line) is bool(said)
    assert said in line
    assert "ψ" not in str(run(at, layer, noise=5.0).plan())
    # Of numbers and classes nothing is recalibrated: it was advised, charged, and refused.
    (line,) = [
        each
        for each in str(run(at, layer, noise=5.0, sample=rows, loss="mse").plan()).splitlines()
        if each.startswith("ψ")
    ]
    assert "recalibrate" not in line


def test_where_labels_were_randomised_nothing_is_charged():
    models = [
        {
            "tag": TAG,
            "columns": [{"kind": "bytes", "count": 6}],
            "labels": [{"kind": "binary"}],
            "gradient_bound": 1.0,
            "randomised_response": {"epsilon": 1.0},
            "feature_noise": {"epsilon": 1.0, "sensitivity": 1.0},
        }
    ]
    given = document(models=models)
    assert plans.session_charge(given, TAG, drawn(rate=0.5), 6, PrivacyTarget(), 300) is None
    plan = run(home(given), model(), noise=None).plan()
    assert (plan.epsilon, plan.deviation, plan.signal) == (0.0, 0.0, math.inf)
    assert "nothing is charged" in str(plan)


def test_batches_that_may_fall_below_k_amplify_nothing_and_it_is_said():
    few = SessionCharge("gaussian", 1.0, 1.0, 6, 6, 1e-5)
    said = r"batches of 21 records may fall below k = 20\. .* hide nobody: .* cost ε = .*, not 2\. Take "
    target, room = PrivacyTarget(epsilon=2.0), EpsilonPair(4, 40)
    with pytest.raises(BadArguments, match=said + r"sampling_rate = 0\.1\d+ or more"):
        plans._check(few, drawn(rate=0.07), target, document(), 300, room)
    with pytest.raises(BadArguments, match="Take sampling = 'whole'"):
        plans._check(few, drawn(rate=0.9), target, document(), 21, room)


def test_the_rate_that_is_advised_fits_and_no_lower_one():
    def charge(rate):
        target = PrivacyTarget(epsilon=1.0, delta=1e-5)
        return plans.session_charge(document(), TAG, drawn(rate=rate), 6, target, 1000)

    with pytest.raises(BadArguments, match="sampling_rate") as caught:
        charge(0.02)
    (advised,) = re.findall(r"sampling_rate = (\S+) or more", str(caught.value))
    assert charge(float(advised)).rate == float(advised)
    with pytest.raises(BadArguments, match="may fall below k"):
        charge(float(advised) - 0.003)


def test_another_encoder_than_is_declared_is_refused_before_anything_is_asked(monkeypatch):
    ages = {f"age of {person}": [*range(20, 60)] for person in range(FEATURES)}
    first, second = (Encoder.fit(ages, dict.fromkeys(ages, Scaled(0, top))) for top in (90, 100))
    models = [{**document().models[0].model_dump(mode="json"), "encoder": first.digest.hex()}]
    declared = home(document(models=models))
    assert run(declared, model(), encoder=first).encoder == first
    assert run(declared, model()).encoder is None
    assert run(home(document()), model(), encoder=second).encoder == second
    monkeypatch.setattr(type(declared), "free_slots", lambda *_: pytest.fail("a helper was asked"))
    with pytest.raises(BadArguments, match="declared with the encoder"):
        run(declared, model(), encoder=second)
    with pytest.raises(BadArguments, match="declared with the encoder"):
        evaluate(declared, Predictor(model(), "bce", TAG, second))


def test_a_plan_of_which_nothing_will_come_says_so():
    """At ε = 0.0001 noise is longer than all gradients together could be; at a usual one it is not."""
    hopeless, usual = (
        run(home(document()), model(), noise=noise, sampling="whole").plan() for noise in (2000.0, 1.0)
    )
    assert str(hopeless).splitlines()[-1] == plans.HOPELESS
    assert plans.HOPELESS not in str(usual)
    assert (hopeless.figures()["hopeless"], usual.figures()["hopeless"]) == (True, False)


def test_a_plan_guesses_no_time():
    plan = run(home(document()), model(), sampling="whole").plan()
    assert "seconds" not in plan.figures()
    assert " s," not in str(plan)


def limited():
    """Helpers under a document where training may cost 4, and 40 against a coalition."""
    both = {"adserver": {"epsilon": 4.0, "delta": 1e-3}, "coalition": {"epsilon": 40.0, "delta": 1e-3}}
    return home(document(training=both))


def session(helpers, **options):
    """One that is opened, and stays so."""
    made = run(helpers, model(), **{"sampling": "whole", "steps": 4, **options})
    made.receipts = made.sums.open()
    return made


def number(said, name):
    """The figure that an error advises."""
    return float(re.findall(rf"{name} = ([0-9.e-]+)", said)[-1])


@pytest.mark.parametrize("steps", [4, 40])
def test_a_plan_refuses_what_helpers_would_with_the_epsilon_that_fits(steps):
    helpers, most = limited(), 4.0
    session(helpers, epsilon=most * 0.75, delta=None)
    with pytest.raises(BudgetExhausted, match="is left of what training may cost against") as caught:
        run(helpers, model(), epsilon=most / 2, delta=None, sampling="whole", steps=steps)
    fits = number(str(caught.value), "epsilon")
    assert most / 5 < fits <= most / 4
    assert session(helpers, epsilon=fits, delta=None, steps=steps).receipts


def test_a_plan_with_noise_refuses_with_the_steps_that_fit():
    helpers = limited()
    session(helpers, epsilon=3.0, delta=None)
    with pytest.raises(BudgetExhausted) as caught:
        run(helpers, model(), noise=20.0, delta=None, sampling="whole", steps=100)
    steps = int(number(str(caught.value), "steps"))
    assert 1 <= steps < 100
    with pytest.raises(BudgetExhausted):
        run(helpers, model(), noise=20.0, delta=None, sampling="whole", steps=steps + 1)
    assert session(helpers, noise=20.0, delta=None, steps=steps).receipts


def test_a_plan_refuses_a_delta_that_is_not_left_and_its_advice_works():
    helpers, options = home(document()), {"noise": 40.0, "sampling": "whole"}
    with pytest.raises(DeltaExhausted, match=r"has δ = 0\.1; .* is left of the δ that sessions") as caught:
        run(helpers, model(), delta=0.1, **options)
    session(helpers, delta=number(str(caught.value), "delta"), **options)
    with pytest.raises(DeltaExhausted) as caught:
        run(helpers, model(), delta=1e-5, **options)
    left = caught.value.facts()["left_delta"]
    assert 0 <= left < 1e-6, "three digits of it were taken"
    if left:
        session(helpers, delta=number(str(caught.value), "delta"), **options)


def test_where_no_delta_is_left_no_smaller_one_is_advised():
    said = str(DeltaExhausted(0.0, 1e-9))
    assert "no session fits any more, with any delta" in said
    assert "Fits and evaluations take none of it" in said


def test_over_a_ceiling_the_figure_is_what_is_left_of_it():
    helpers, most = limited(), 4.0
    session(helpers, epsilon=most * 0.75, delta=None)
    with pytest.raises(OverCeiling) as caught:
        run(helpers, model(), epsilon=most * 2, delta=None, sampling="whole")
    epsilon = float(re.findall(r"epsilon=([0-9.]+), against='adserver'", str(caught.value))[0])
    assert session(helpers, epsilon=epsilon, delta=None).receipts


def test_a_run_that_is_charged_is_not_checked_again(tmp_path):
    helpers, most = limited(), 4.0
    options = {"epsilon": most * 0.75, "delta": None, "sampling": "whole", "folder": tmp_path}
    first = run(helpers, model(), **options)
    next(iter(first)).backward()
    again = run(helpers, model(), **options)
    assert [each.number for each in again] == [*range(len(again))]


def test_a_folder_in_which_nothing_was_begun_takes_other_settings(tmp_path):
    helpers = home(document())
    refused = run(helpers, model(), sampling="whole", folder=tmp_path).run
    assert refused is not None
    with refused.begun():
        pass
    assert kept(tmp_path) is not None
    training = run(helpers, model(), sampling="whole", folder=tmp_path, noise=3.0)
    next(iter(training)).backward()
    assert kept(tmp_path) == training.sums.body
    with pytest.raises(OtherRun, match="another run was begun"), refused.begun():
        pytest.fail("it holds another run")
    with pytest.raises(OtherRun, match="with other settings"):
        run(helpers, model(), sampling="whole", folder=tmp_path)


def test_a_helper_that_lost_receipts_plans_nothing():
    helpers = home(document())
    state = helpers.budget(helpers.document)
    lost = BudgetState(state.document, tuple(replace(each, lost=True) for each in state.helpers))
    entry = BudgetEntry(TAG, (b"d" * 32,), SessionCharge("gaussian", 40.0, 1.0, 1, 1, 1e-6), b"one")
    assert state.fits(entry)
    assert not lost.fits(entry)
    with pytest.raises(AccountClosed, match="Publish a new version"):
        lost.check(entry)


@pytest.mark.parametrize(
    ("sampling", "rows"),
    [
        ({"sampling_rate": 0.1}, 10 * room(0.1, 30)),
        ({"batches": 5}, 10 * room(0.2, 30)),
        ({"sampling_rate": 0.9}, 300),
        ({"sampling": "whole"}, 300),
    ],
)
def test_a_plan_says_what_a_step_reads_with_the_rows_that_hide_the_batch(sampling, rows):
    plan = replace(run(home(document()), model(), **sampling).plan(), shards=10, stored_bytes=30_000)
    assert plan.rows_per_step == plan.figures()["rows_per_step"] == rows
    assert f"reads about {rows / 10:.1f} kB of all" in str(plan)
    assert f"{rows} rows with those that hide the batch" in str(plan)
