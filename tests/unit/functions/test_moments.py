"""Moments: what a replaced label moves, at most and in fact, and what is refused before the charge."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from maskedlark.core import field
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import TrainingRecords
from maskedlark.errors import BadArguments, DecodeError, FieldOverflow, MaskedLarkError
from maskedlark.exact.clip import Norm
from maskedlark.exact.losses import BinaryCrossEntropy, SoftmaxCrossEntropy, SquaredError
from maskedlark.exact.moments import Representation
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.quantise import Quantised
from maskedlark.functions import model, weights
from maskedlark.functions.function import AnyFunction
from maskedlark.functions.moments import MAX_NUMBERS, Moments, MomentsQuery
from maskedlark.ledger.errors import RequestIdReused
from maskedlark.parameters.document import NoMechanism
from maskedlark.randomness import FixedRandomness
from maskedlark.release.messages import MAX_REQUEST, Request
from maskedlark.web import problem
from tests.twins import exact as twin
from tests.unit.exact.cases import twin_network
from tests.unit.exact.models import dense
from tests.unit.parameters import cases
from tests.unit.release import stepping
from tests.unit.release.stepping import network, quantised

LABELS = [
    {"kind": "binary"},
    {"kind": "categorical", "value": "purchase", "classes": 3},
    {"kind": "integers", "value": "purchase", "low": -2, "high": 3},
]
LOSSES = (BinaryCrossEntropy(), SoftmaxCrossEntropy(3), SquaredError())
MODELS = [
    {"tag": "clicks", "columns": [{"kind": "bytes", "count": 4}], "labels": LABELS, "gradient_bound": 1.0}
]


def document(kind="gaussian", **changes):
    own = cases.settings()["mechanisms"] | {"moments": {"kind": kind, "noise_floor": 0.5}}
    given = {"models": MODELS, "mechanisms": own, "fake_rate": 0.0, "decoys": []}
    return stepping.document(**(given | changes))


def unfitted(made, sent=None):
    """Weights whose last layer is 0."""
    sent = sent or quantised(made)
    values, last = sent.values.copy(), made.layers[-1].linear
    values[len(values) - last.outputs * (last.inputs + (last.bias is not None)) :] = 0
    return replace(sent, values=values)


def linear(features, *losses, bias=True):
    """One layer, and its weights."""
    outputs = sum(loss.outputs for loss in losses)
    made = Network((Layer(Linear("w0", "b0" if bias else None, features, outputs)),), losses)
    return made, Quantised(np.zeros(made.size, np.int16), (0,) * len(made.parameters), ())


MADE = network(losses=LOSSES)
LINEAR = linear(4, *LOSSES)
DOCUMENT = document()


def arguments(made=MADE, sent=None, **changes):
    given = {
        "tag": "clicks",
        "model": model.describe(made, fraction=16).model_dump(mode="json"),
        "weights": weights.to_text(sent or unfitted(made)),
        "clip": 1.5,
    }
    return json.loads(json.dumps(given | changes))


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_the_sum_is_the_twins(kind):
    """Several labels; every one of them over all records, and any of them alone."""
    declared = document(kind)
    truth = stepping.truth(declared, "clicks", 30, b"records")
    (table,) = Moments().ask(declared, arguments()).share([truth], 1)
    net = twin_network(MADE, unfitted(MADE))
    bound = {"r": 1.5, "norm": "l1" if kind == "laplace" else "l2", "fraction": 16}
    shown = [np.broadcast_to(each, (30, each.shape[1])) for each in truth.candidates]
    records = [
        {
            "features": truth.features[row].tolist(),
            "candidates": [each[row].tolist() for each in shown],
            "masks": [truth.masks(label)[row].tolist() for label in range(3)],
        }
        for row in range(30)
    ]
    assert (table.rows, table.records.tolist()) == ([()], [30])
    wanted = [twin.moments(net, bound, records, label) for label in range(3)]
    assert [share[0].tolist() for share in table.shares] == wanted
    for labels in ([1], [0, 2]):
        (some,) = Moments().ask(declared, arguments(labels=labels)).share([truth], 1)
        assert [share[0].tolist() for share in some.shares] == [wanted[label] for label in labels]


def test_datasets_add_up():
    asked, truth = Moments().ask(DOCUMENT, arguments()), stepping.truth(DOCUMENT, "clicks", 60, b"records")
    (whole,) = asked.share([truth], 1)
    parts = [
        TrainingRecords(truth.ids[a:b], truth.features[a:b], truth.candidates, truth.shares[a:b])
        for a, b in ((0, 25), (25, 60), (60, 60))
    ]
    (split,) = asked.share(parts, 1)
    for one, other in zip(whole.shares, split.shares, strict=True):
        assert one.tolist() == other.tolist()


def moved(asked, declared, features, before, after):
    """By how much each column moves as one record's labels change; None is a fake."""
    core, found = declared.declared_models["clicks"], []
    for values in (before, after):
        columns = [np.array([each]) for each in (values or (0, 0, 0))]
        shown, masks = core.mask(columns, np.array([values is not None]), FixedRandomness(b""))
        one = TrainingRecords(np.zeros((1, 16), np.uint8), features, tuple(shown), masks)
        found.append([field.to_signed(share).ravel() for share in asked.share([one], 1)[0].shares])
    return [after - before for before, after in zip(*found, strict=True)]


CHANGES = [
    ((0, 0, -2), (1, 2, 3)),
    ((1, 1, 3), (0, 2, -2)),
    ((1, 2, 3), None),
    (None, (0, 0, -2)),
    ((1, 0, 0), (1, 1, 2)),
]


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_replaced_label_moves_a_column_by_no_more_than_its_sensitivity_and_by_that(kind, bias):
    declared, (made, sent) = document(kind), linear(4, *LOSSES, bias=bias)
    asked = Moments().ask(declared, arguments(made, sent, clip=0.25))
    rng, longest = np.random.default_rng(1), np.zeros((3, 2))
    for row in [*rng.integers(0, 256, (20, 4)), [0, 0, 0, 0], [255] * 4, [0, 0, 0, 64]]:
        features = np.array([row], np.uint8)
        for before, after in CHANGES:
            for label, change in enumerate(moved(asked, declared, features, before, after)):
                own = asked.columns[label]
                l1, l2 = int(np.abs(change).sum()), math.sqrt(sum(int(x) ** 2 for x in change))
                assert l1 <= own.sensitivity.l1
                assert l2 <= own.sensitivity.l2
                assert np.count_nonzero(change) <= own.sensitivity.touched
                longest[label] = np.maximum(longest[label], (l1, l2))
    for column, (l1, l2) in zip(asked.columns, longest, strict=True):
        # A row as long as R, and labels at both ends: nothing is declared too large for its own norm.
        declared_as, found = column.sensitivity.l2, l2
        if kind == "laplace":
            declared_as, found = column.sensitivity.l1, l1
        assert found >= declared_as * 0.999


@pytest.mark.parametrize(
    ("values", "span", "largest"), [((-2, 3), 5, 3), ((0, 7), 7, 7), ((-9, 1), 10, 9), ((0, 1), 1, 1)]
)
def test_the_number_of_a_fake_is_part_of_the_width(values, span, largest):
    low, high = values
    labels = [{"kind": "integers", "value": "purchase", "low": low, "high": high}]
    made, sent = linear(4, SquaredError())
    found = document(models=[MODELS[0] | {"labels": labels}])
    (column,) = Moments().ask(found, arguments(made, sent, clip=2.0)).columns
    top = 2 << 8 + 16
    assert (column.sensitivity.l2, column.sensitivity.touched) == (top * span, 5)
    assert column.sensitivity.l1 == top * span * 3  # A bound in L2 is one in L1, √5 times as large.
    assert (column.largest, column.width) == (top * largest, 5)


@pytest.mark.parametrize(("values", "span"), [((2, 5), 5), ((-5, -2), 5), ((-1, 3), 4)])
def test_it_would_be_if_a_space_did_not_hold_0(values, span):
    """No document declares such a space; a fake's row is 0 all the same."""
    made, sent = linear(4, SquaredError())
    phi = Representation(made, sent, 2.0)
    spaces: Any = (SimpleNamespace(values=values),)
    (column,) = MomentsQuery("clicks", made, sent, phi, spaces, (0,)).columns
    assert column.sensitivity.l2 == span * 2.0 ** (1 + 8 + 16)


def test_columns_of_one_release():
    made, sent = LINEAR
    for kind, longer in (("gaussian", 3), ("laplace", 1)):
        asked = Moments().ask(document(kind), arguments(made, sent, clip=1.0))
        assert isinstance(asked, MomentsQuery)
        assert asked.representation.norm is (Norm.L2 if kind == "gaussian" else Norm.L1)
        top = 1 << 24
        found = [
            (each.sensitivity.l1, each.sensitivity.l2, each.sensitivity.touched) for each in asked.columns
        ]
        assert found == [
            (top * longer, top, 5),
            (2 * top * longer, top * math.sqrt(2), 10),
            (5 * top * longer, 5 * top, 5),
        ]
        assert [each.width for each in asked.columns] == [5, 15, 5]
    assert (asked.tag, asked.part, asked.schemas[0].by) == ("clicks", None, ())
    assert (Moments.name, Moments.purpose) == ("moments", Purpose.TRAIN)


def test_rounding_up_a_clip_that_is_no_integer_of_the_field():
    made, sent = linear(4, *LOSSES)
    asked = Moments().ask(document("laplace"), arguments(made, sent, clip=0.3))
    assert asked.columns[0].sensitivity.l1 == math.ceil(0.3 * 2**24) > 0.3 * 2**24


def other_model(**changes):
    return model.describe(MADE, fraction=16).model_dump(mode="json") | changes


WIDE, OTHER = network(5, LOSSES), network()
REFUSED: dict[str, dict[str, Any]] = {
    "another tag": {"tag": "others"},
    "no tag": {"tag": ""},
    "an unknown key": {"extra": 1},
    "other features": {
        "model": model.describe(WIDE).model_dump(mode="json"),
        "weights": weights.to_text(unfitted(WIDE)),
    },
    "fewer losses": {
        "model": model.describe(OTHER).model_dump(mode="json"),
        "weights": weights.to_text(unfitted(OTHER)),
    },
    "losses for other labels": {"model": other_model(losses=[{"kind": "bce"}] * 5)},
    "no losses": {"model": other_model(losses=[])},
    "the whole model's weights": {"weights": weights.to_text(quantised(MADE))},
    "not base64": {"weights": "not base64!"},
    "not even ASCII": {"weights": "ÄÖÜ"},
    "cut off": {"weights": arguments()["weights"][:-4]},
    "no weights": {"weights": ""},
    "a number for weights": {"weights": 7},
    "no clip": {"clip": 0.0},
    "a negative clip": {"clip": -1.0},
    "a clip that is no number": {"clip": "1"},
    "a clip beyond all": {"clip": 1e10},
    "a clip below the unit": {"clip": 2.0**-23},
    "a clip beyond exact numbers": {"clip": 1e9, "model": other_model(fraction=21)},
    "a fraction beyond exact numbers": {"model": other_model(fraction=22)},
    "no labels": {"labels": []},
    "a label that is not there": {"labels": [3]},
    "a label before the first": {"labels": [-1]},
    "a label twice": {"labels": [0, 0]},
    "labels in another order": {"labels": [1, 0]},
    "a truth for a label": {"labels": [True]},
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_arguments_are_refused(case):
    with pytest.raises(MaskedLarkError) as caught:
        Moments().ask(DOCUMENT, arguments(**REFUSED[case]))
    assert problem.of(caught.value).status in (400, 422)


@pytest.mark.parametrize("clip", ["NaN", "Infinity", "-Infinity"])
def test_a_clip_that_json_has_no_word_for_is_refused(clip):
    with pytest.raises(BadArguments):
        Moments().ask(DOCUMENT, arguments() | {"clip": float(clip)})


def test_the_last_layer_is_fitted_and_not_sent():
    for place in (-1, MADE.size - 4 * 5):
        sent = unfitted(MADE)
        sent.values[place] = 1
        with pytest.raises(BadArguments, match="send its weights as zeros"):
            Moments().ask(DOCUMENT, arguments(sent=sent))


def test_weights_of_another_form_are_refused():
    with pytest.raises(DecodeError):
        Moments().ask(DOCUMENT, arguments(sent=unfitted(network())))


def test_categories_are_refused():
    columns = [{"kind": "bytes", "count": 4}, {"kind": "category", "size": 9}]
    found = document(models=[MODELS[0] | {"columns": columns}])
    with pytest.raises(BadArguments, match="categories"):
        Moments().ask(found, arguments())


def test_noise_is_declared_by_the_document():
    with pytest.raises(NoMechanism, match="moments"):
        Moments().ask(document(mechanisms=cases.settings()["mechanisms"]), arguments())


def large(features, classes):
    labels = [{"kind": "categorical", "value": "purchase", "classes": classes}]
    columns = [{"kind": "bytes", "count": features}]
    found = document(models=[MODELS[0] | {"labels": labels, "columns": columns}])
    made, sent = linear(features, SoftmaxCrossEntropy(classes))
    return found, arguments(made, sent)


def test_an_answer_of_4096_inputs_and_10_classes_fits():
    found, given = large(4096, 10)
    asked = Moments().ask(found, given)
    assert asked.columns[0].width == 4097 * 10 <= MAX_NUMBERS
    sent = Request(id="0" * 32, datasets=("1" * 64,), function="moments", arguments=given, noise=1.0).encode()
    assert Request.decode(sent).arguments == given


def test_a_hidden_layer_of_4096_and_10_classes_fits_a_request():
    found, _ = large(784, 10)
    made = dense((784, 4096, 10), SoftmaxCrossEntropy(10))
    values = np.random.default_rng(0).integers(-127, 128, made.size).astype(np.int16)
    values[-4097 * 10 :] = 0
    given = arguments(made, Quantised(values, (7, 7, 7, 7), (4,)))
    sent = Request(id="0" * 32, datasets=("1" * 64,), function="moments", arguments=given, noise=1.0).encode()
    assert len(sent) < MAX_REQUEST
    asked = Moments().ask(found, Request.decode(sent).arguments)
    assert asked.columns[0].width == 4097 * 10


def test_larger_answers_are_refused_with_what_fits():
    found, given = large(4096, 300)
    with pytest.raises(BadArguments, match="at most 3495 inputs fit, or ask for fewer labels"):
        Moments().ask(found, given)
    found, given = large(3495 - 1, 300)
    assert Moments().ask(found, given).columns[0].width == 3495 * 300


def rig(tmp_path, **changes):
    """Helpers in memory, and a question's arguments."""
    made, sent = LINEAR
    functions: dict[str, AnyFunction] = {"moments": Moments()}
    return stepping.Rig(tmp_path, document(**changes), functions=functions), arguments(made, sent, clip=1.0)


def charges(rig):
    return [len(ledger.receipts(stepping.ORIGIN, 0)) for ledger, _, _ in rig.ledgers]


def test_one_charge_and_the_same_numbers_after_a_restart(tmp_path):
    helpers, given = rig(tmp_path)
    try:
        before = charges(helpers)
        request = Request(
            id="7" * 32,
            datasets=tuple(each.hex() for each in helpers.digests),
            function="moments",
            arguments=given,
            noise=4.0,
        )
        first = [
            pipeline.answer(stepping.ORIGIN, request.encode(), request).encode()
            for pipeline in helpers.pipelines
        ]
        assert charges(helpers) == [each + 1 for each in before]
        again = [
            helpers.start(place).answer(stepping.ORIGIN, request.encode(), request).encode()
            for place in helpers.places
        ]
        assert first == again
        assert charges(helpers) == [each + 1 for each in before]
        other = request.model_copy(update={"noise": 5.0})
        with pytest.raises(RequestIdReused):
            helpers.start(0).answer(stepping.ORIGIN, other.encode(), other)
    finally:
        helpers.close()


def test_a_kill_between_the_charge_and_the_answer_costs_one_charge(tmp_path, monkeypatch):
    helpers, given = rig(tmp_path)

    def dead(*_):
        raise KeyboardInterrupt

    try:
        before = charges(helpers)
        request = Request(
            id="7" * 32,
            datasets=tuple(each.hex() for each in helpers.digests),
            function="moments",
            arguments=given,
            noise=4.0,
        )
        with monkeypatch.context() as patch:
            patch.setattr(MomentsQuery, "share_of", dead)
            for pipeline in helpers.pipelines:
                with pytest.raises(KeyboardInterrupt):
                    pipeline.answer(stepping.ORIGIN, request.encode(), request)
        assert charges(helpers) == [each + 1 for each in before]
        answers = [
            helpers.start(place).answer(stepping.ORIGIN, request.encode(), request)
            for place in helpers.places
        ]
        again = [
            helpers.start(place).answer(stepping.ORIGIN, request.encode(), request)
            for place in helpers.places
        ]
        assert [each.encode() for each in answers] == [each.encode() for each in again]
        assert charges(helpers) == [each + 1 for each in before]
    finally:
        helpers.close()


@pytest.mark.parametrize("change", [{"clip": 1e6}, {"tag": "others"}, {"clip": -1.0}, {"labels": [3]}])
def test_nothing_is_charged_for_what_is_refused(tmp_path, change):
    helpers, given = rig(tmp_path)
    try:
        before = charges(helpers)
        # So much noise on so long rows would leave the field.
        request = Request(
            id="7" * 32,
            datasets=tuple(each.hex() for each in helpers.digests),
            function="moments",
            arguments=given | change,
            noise=1e6,
        )
        with pytest.raises(MaskedLarkError) as caught:
            helpers.pipelines[0].answer(stepping.ORIGIN, request.encode(), request)
        assert ("clip" not in change or change["clip"] < 0) or isinstance(caught.value, FieldOverflow)
        assert charges(helpers) == before
    finally:
        helpers.close()
