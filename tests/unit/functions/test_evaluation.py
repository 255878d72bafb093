"""Evaluation: histograms against a twin that scores one record at a time, and what is refused beforehand."""

import base64
import json

import numpy as np
import pytest
from maskedlark.functions.evaluation import MAX_CELLS, Evaluation

from maskedlark.core import field
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import TrainingRecords
from maskedlark.errors import BadArguments, DecodeError, MaskedLarkError
from maskedlark.exact.losses import BinaryCrossEntropy, SoftmaxCrossEntropy, SquaredError
from maskedlark.functions import model
from maskedlark.functions.function import Part
from maskedlark.randomness import FixedRandomness
from maskedlark.web import problem
from tests.unit.release import stepping
from tests.unit.release.stepping import body, network, quantised

LABELS = [
    {"kind": "binary"},
    {"kind": "categorical", "value": "purchase", "classes": 3},
    {"kind": "integers", "value": "purchase", "low": -2, "high": 2},
]
LOSSES = (BinaryCrossEntropy(), SoftmaxCrossEntropy(3), SquaredError())
MADE = network(losses=LOSSES)
SCALES = [{"buckets": 4}, {"buckets": 3}, {"buckets": 8, "low": -2, "high": 2}]
MODELS = [
    {"tag": "clicks", "columns": [{"kind": "bytes", "count": 4}], "labels": LABELS, "gradient_bound": 1.0}
]
DOCUMENT = stepping.document(models=MODELS, fake_rate=0.0, decoys=[])


def arguments(**changes):
    given = {
        "tag": "clicks",
        "model": model.describe(MADE).model_dump(mode="json"),
        "weights": base64.b64encode(body(MADE)).decode(),
        "scales": SCALES,
    }
    return json.loads(json.dumps(given | changes))


def scores(features):
    """Outputs of the quantised network for one row, in plain floats, with 8-bit activations."""
    sent, values = quantised(MADE), iter(np.split(quantised(MADE).values / 64.0, [12, 15, 30]))
    w0, b0, w1, b1 = values
    hidden = w0.reshape(3, 4) @ (features / 256) + b0
    hidden = np.floor(np.clip(hidden, 0, None) * 2 ** sent.activations[0] + 0.5) / 2 ** sent.activations[0]
    return w1.reshape(5, 3) @ hidden + b1


def test_histograms_are_the_twins():
    asked = Evaluation().ask(DOCUMENT, arguments())
    truth = stepping.truth(DOCUMENT, "clicks", 200, b"records")
    (table,) = asked.share([truth], 1)
    spaces = DOCUMENT.declared_models["clicks"].labels
    wanted = [np.zeros((4, 2), int), np.zeros((3, 3), int), np.zeros((8, 5), int)]
    first = [0, 2, 5]
    for row in range(200):
        found = scores(truth.features[row].astype(float))
        buckets = [
            min(3, int(4 / (1 + np.exp(-found[0])))),
            int(np.argmax(found[1:4])),
            int(np.clip((found[4] + 2) * 2, 0, 7)),
        ]
        for label, space in enumerate(spaces):
            wanted[label][buckets[label]] += truth.shares[row, first[label] : first[label] + len(space)]
    assert table.rows == [()]
    assert table.records.tolist() == [200]
    for share, histogram in zip(table.shares, wanted, strict=True):
        # The engine's sigmoid and rounding may put a score that lies on an edge next door.
        assert np.abs(share[0] - histogram.ravel()).sum() <= 4
        assert share.sum() == histogram.sum()


def test_datasets_and_shares_add_up():
    asked = Evaluation().ask(DOCUMENT, arguments())
    truth = stepping.truth(DOCUMENT, "clicks", 60, b"records")
    (whole,) = asked.share([truth], 1)
    halves = [
        TrainingRecords(truth.ids[a:b], truth.features[a:b], truth.candidates, truth.shares[a:b])
        for a, b in ((0, 25), (25, 60), (60, 60))
    ]
    (split,) = asked.share(halves, 1)
    for one, other in zip(whole.shares, split.shares, strict=True):
        assert one.tolist() == other.tolist()
    assert all(0 <= int(share.min()) <= int(share.max()) < field.P for share in whole.shares)


def test_a_replaced_label_moves_two_cells_of_each_histogram():
    asked = Evaluation().ask(DOCUMENT, arguments())
    truth = stepping.truth(DOCUMENT, "clicks", 1, b"one record")
    core = DOCUMENT.declared_models["clicks"]
    drawn = []
    for values in ((0, 0, -2), (1, 2, 2)):
        columns = [np.array([each]) for each in values]
        _, masks = core.mask(columns, np.ones(1, np.bool_), FixedRandomness(b""))
        (table,) = asked.share([TrainingRecords(truth.ids, truth.features, truth.candidates, masks)], 1)
        drawn.append(table.shares)
    for column, before, after in zip(asked.columns, *drawn, strict=True):
        moved = (before - after).ravel()
        assert np.abs(moved).sum() == column.sensitivity.l1 == 2
        assert np.sqrt((moved**2).sum()) == column.sensitivity.l2
        assert np.count_nonzero(moved) == column.sensitivity.touched == 2
        assert column.largest == 1


def test_the_plan_has_a_column_a_label():
    asked = Evaluation().ask(DOCUMENT, arguments())
    assert [column.width for column in asked.columns] == [8, 9, 40]
    assert (asked.tag, asked.part) == ("clicks", None)
    assert (Evaluation.name, Evaluation.purpose) == ("evaluation", Purpose.TRAIN)


@pytest.mark.parametrize("part", ["held_out", "training"])
def test_a_part_is_asked_with_its_share(part):
    assert Evaluation().ask(DOCUMENT, arguments(part=part, held_out=0.25)).part == Part(part, 0.25)


SENT = arguments()["weights"]


@pytest.mark.parametrize(
    "changes",
    [
        {"tag": "others"},
        {"tag": ""},
        {"extra": 1},
        {"part": "held_out"},
        {"part": "training", "held_out": 0.0},
        {"held_out": 0.5},
        {"part": "held_out", "held_out": 1.0},
        {"part": "some", "held_out": 0.5},
        {"scales": SCALES[:2]},
        {"scales": []},
        {"scales": [*SCALES, {"buckets": 4}]},
        {"scales": [{"buckets": 0}, *SCALES[1:]]},
        {"scales": [{"buckets": 4097}, *SCALES[1:]]},
        {"scales": [{"buckets": 4, "low": 1, "high": 1}, *SCALES[1:]]},
        {"weights": ""},
        {"weights": "not base64!"},
        {"weights": "ÄÖÜ"},
        {"weights": SENT[:-4]},
        {"weights": 7},
        {"model": {}},
        {"model": model.describe(network(5, LOSSES)).model_dump(mode="json")},
        {"model": model.describe(network()).model_dump(mode="json")},
    ],
)
def test_other_arguments_are_refused(changes):
    with pytest.raises(MaskedLarkError) as caught:
        Evaluation().ask(DOCUMENT, arguments(**changes))
    assert problem.of(caught.value).status in (400, 422)


@pytest.mark.parametrize(
    "scales",
    [
        # As many buckets as classes, and numbers that the engine holds exactly: before anything is charged.
        [SCALES[0], {"buckets": 4}, SCALES[2]],
        [*SCALES[:2], {"buckets": 4096, "low": -(1 << 30), "high": 1 << 30}],
    ],
)
def test_scales_that_could_not_be_answered_are_refused_when_asked(scales):
    with pytest.raises(MaskedLarkError) as caught:
        Evaluation().ask(DOCUMENT, arguments(scales=scales))
    assert problem.of(caught.value).status == 422


def test_a_histogram_is_bounded():
    labels = [{"kind": "integers", "value": "purchase", "low": 0, "high": 16}]
    found = stepping.document(models=[MODELS[0] | {"labels": labels}], fake_rate=0.0, decoys=[])
    made = network(losses=(SquaredError(),))
    given = arguments(
        model=model.describe(made).model_dump(mode="json"),
        weights=base64.b64encode(body(made)).decode(),
        scales=[{"buckets": MAX_CELLS // 17 + 1, "high": 16}],
    )
    with pytest.raises(BadArguments, match="at most 65536 cells"):
        Evaluation().ask(found, given)
    given["scales"][0]["buckets"] -= 1
    assert Evaluation().ask(found, given).columns[0].width <= MAX_CELLS


def test_weights_of_another_form_are_refused():
    with pytest.raises(DecodeError):
        Evaluation().ask(DOCUMENT, arguments(weights=base64.b64encode(body(network())).decode()))
