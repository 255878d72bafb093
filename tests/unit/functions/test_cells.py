"""Cells: tables against a twin that looks at one record at a time, sensitivities, and what is refused."""

import base64
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from maskedlark.core import field
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import TrainingRecords
from maskedlark.errors import BadArguments, DecodeError, MaskedLarkError, WrongType
from maskedlark.exact.losses import BinaryCrossEntropy, SoftmaxCrossEntropy, SquaredError
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.quantise import Quantised
from maskedlark.functions import model, weights
from maskedlark.functions.cells import MAX_NUMBERS, Cells, CellsArguments, DescribedHash, DescribedTable
from maskedlark.functions.function import Group, Part
from maskedlark.randomness import FixedRandomness
from maskedlark.release.messages import MAX_REQUEST, Request
from maskedlark.web import problem
from tests.twins import exact as twin
from tests.unit.exact.cases import twin_network
from tests.unit.release import stepping
from tests.unit.release.stepping import body, network, quantised

LABELS = [
    {"kind": "binary"},
    {"kind": "categorical", "value": "purchase", "classes": 3},
    {"kind": "integers", "value": "purchase", "low": -2, "high": 2},
]
LOSSES = (BinaryCrossEntropy(), SoftmaxCrossEntropy(3), SquaredError())
MADE = network(losses=LOSSES)
BUCKETS = {"kind": "buckets", "output": 0, "edges": [-0.5, 0.0, 0.5]}
LARGEST = {"kind": "largest", "first": 1, "count": 3}
HASH = {"kind": "hash", "features": [0, 3], "count": 6}
TABLES: list[dict[str, Any]] = [
    {"cells": BUCKETS},
    {"cells": BUCKETS, "ones": True},
    {"label": 1, "cells": LARGEST},
    {"label": 2, "cells": HASH},
]
MODELS = [
    {"tag": "clicks", "columns": [{"kind": "bytes", "count": 4}], "labels": LABELS, "gradient_bound": 1.0}
]
DOCUMENT = stepping.document(models=MODELS, fake_rate=0.0, decoys=[])


def arguments(**changes):
    given = {
        "tag": "clicks",
        "model": model.describe(MADE).model_dump(mode="json"),
        "weights": base64.b64encode(body(MADE)).decode(),
        "tables": TABLES,
    }
    return json.loads(json.dumps(given | changes))


def ask(**changes):
    return Cells().ask(DOCUMENT, arguments(**changes))


def part(*tables):
    return {"part": "held_out", "held_out": 0.25, "tables": list(tables)}


def twins(truth, table):
    """The table, and how many records each cell has."""
    own = table.get("label", 0)
    space = DOCUMENT.declared_models["clicks"].labels[own]
    shown = np.broadcast_to(truth.candidates[own], truth.masks(own).shape)
    records = [
        {
            "features": row,
            "candidates": {own: shown[n].tolist()},
            "masks": {own: truth.masks(own)[n].tolist()},
        }
        for n, row in enumerate(truth.features.tolist())
    ]
    net = twin_network(MADE, quantised(MADE))
    return twin.cells(net, table["cells"], records, own, list(space.values), table.get("ones", False))


@pytest.mark.parametrize("k", [1, 20, 51, 1000])
def test_tables_are_the_twins_without_cells_below_k_and_buckets_in_runs_that_hold_it(k):
    truth = stepping.truth(DOCUMENT, "clicks", 200, b"records")
    for asked, table in zip(TABLES, ask().share([truth], k), strict=True):
        expected, sizes = twins(truth, asked)
        kept = [[cell] for cell, size in enumerate(sizes) if size >= k]
        if asked["cells"]["kind"] == "buckets":
            kept = twin.runs(sizes, k)
        assert sum(sizes) == 200
        assert list(table.rows) == [(run[0],) for run in kept]
        assert table.records.tolist() == [sum(sizes[cell] for cell in run) for run in kept]
        sums = [
            [sum(each) % field.P for each in zip(*(expected[cell] for cell in run), strict=True)]
            for run in kept
        ]
        assert table.shares[0].tolist() == sums


def test_over_a_part_every_cell_is_there_whatever_it_holds():
    truth = stepping.truth(DOCUMENT, "clicks", 30, b"records")
    asked = [each for each in TABLES if "ones" not in each]
    asked.append({"cells": {"kind": "hash", "features": [0], "count": 500}})
    for k in (1, 1000):
        found = ask(**part(*asked)).share([truth], k)
        for each, table in zip(asked, found, strict=True):
            expected, _ = twins(truth, each)
            assert (list(table.rows), table.records.tolist()) == ([()], [30])
            assert table.shares[0].tolist() == [[each for row in expected for each in row]]


def test_datasets_and_shares_add_up():
    asked = ask()
    truth = stepping.truth(DOCUMENT, "clicks", 60, b"records")
    whole = asked.share([truth], 1)
    halves = [
        TrainingRecords(truth.ids[a:b], truth.features[a:b], truth.candidates, truth.shares[a:b])
        for a, b in ((0, 25), (25, 60), (60, 60))
    ]
    for one, other in zip(whole, asked.share(halves, 1), strict=True):
        assert list(one.rows) == list(other.rows)
        assert one.records.tolist() == other.records.tolist()
        assert one.shares[0].tolist() == other.shares[0].tolist()
        assert 0 <= int(one.shares[0].min()) <= int(one.shares[0].max()) < field.P


def test_k_counts_the_union_of_datasets():
    """As groups of sums: two datasets of k / 2 records in a cell are k records."""
    truth = stepping.truth(DOCUMENT, "clicks", 10, b"records")
    same = replace(truth, features=np.repeat(truth.features[:1], 10, axis=0))
    asked = ask(tables=[{"cells": HASH}])
    assert [len(table.rows) for table in asked.share([same, same], 20)] == [1]
    assert [len(table.rows) for table in asked.share([same, same], 21)] == [0]


SECRETS = [(0, 0, -2), (1, 2, 2), None]
"""Labels of one record, or a fake."""


def of_one_record(asked, secret):
    truth, declared = (
        stepping.truth(DOCUMENT, "clicks", 1, b"one record"),
        DOCUMENT.declared_models["clicks"],
    )
    columns = [np.array([each]) for each in secret or (0, 0, 0)]
    _, masks = declared.mask(columns, np.array([secret is not None]), FixedRandomness(b""))
    return asked.share([TrainingRecords(truth.ids, truth.features, truth.candidates, masks)], 1)


@pytest.mark.parametrize("changes", [{}, part(*(each for each in TABLES if "ones" not in each))])
def test_a_replaced_label_attains_the_sensitivity_and_a_fake_does_not_exceed_it(changes):
    asked = ask(**changes)
    before, after, fake = (of_one_record(asked, secret) for secret in SECRETS)
    for column, *tables in zip(asked.columns, before, after, fake, strict=True):
        assert tables[0].rows == tables[1].rows == tables[2].rows, "features alone say which cell"
        one, other, nothing = (table.shares[0].ravel() for table in tables)
        moved = one - other
        sensitivity = column.sensitivity
        assert np.abs(moved).sum() == sensitivity.l1
        assert np.sqrt((moved**2).sum()) == sensitivity.l2
        assert np.count_nonzero(moved) == sensitivity.touched
        for real in (one, other):
            assert np.abs(real - nothing).sum() <= sensitivity.l1
            assert np.sqrt(((real - nothing) ** 2).sum()) <= sensitivity.l2
            assert np.abs(real).max() <= column.largest == 1
    ones = [each.get("ones", False) for each in changes.get("tables", TABLES)]
    laws = [(each.sensitivity.l1, each.sensitivity.l2, each.sensitivity.touched) for each in asked.columns]
    assert laws == [(1, 1.0, 1) if each else (2, math.sqrt(2), 2) for each in ones]


def test_the_plan_has_a_table_for_every_one_that_is_asked():
    asked = ask()
    assert [schema.by for schema in asked.schemas] == [("cell",)] * 4
    assert [schema.most_rows for schema in asked.schemas] == [4, 4, 3, 6]
    assert [column.width for column in asked.columns] == [2, 1, 3, 5]
    assert (asked.tag, asked.part) == ("clicks", None)
    assert (Cells.name, Cells.purpose) == ("cells", Purpose.TRAIN)


@pytest.mark.parametrize("which", ["held_out", "training"])
def test_a_part_is_asked_with_its_share_and_has_no_groups(which):
    asked = ask(part=which, held_out=0.25, tables=[TABLES[0], *TABLES[2:]])
    assert asked.part == Part(which, 0.25)
    assert [schema.by for schema in asked.schemas] == [()] * 3
    assert [column.width for column in asked.columns] == [8, 9, 30]


def test_a_hash_needs_no_model_and_a_model_no_losses():
    assert ask(tables=[{"cells": HASH}], model=None, weights="").network is None
    bare = model.describe(MADE).model_dump(mode="json") | {"losses": []}
    assert ask(model=bare).network.losses == ()


SENT = arguments()["weights"]
BARE = {"model": None, "weights": ""}


def table(**changes):
    return {"tables": [{"cells": BUCKETS, **changes}]}


def buckets(**changes):
    return table(cells=BUCKETS | changes)


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
        {"tables": []},
        {"tables": [TABLES[0]] * 33},
        {"tables": [{"label": 0}]},
        {"tables": [{"cells": {"kind": "tree", "count": 2}}]},
        table(label=3),
        table(label=-1),
        table(label="0"),
        table(extra=1),
        table(label=1, ones=True),
        table(label=2, ones=True),
        table(ones=1),
        part(TABLES[1]),
        buckets(edges=[0.5, 0.0]),
        buckets(edges=[0.5, 0.5]),
        buckets(edges=[0.0, math.nan]),
        buckets(edges=[0.0, math.inf]),
        buckets(edges=[-math.inf, 0.0]),
        buckets(edges=["0"]),
        buckets(edges=[float(n) for n in range(4097)]),
        buckets(output=5),
        buckets(output=-1),
        buckets(count=4),
        table(cells=LARGEST | {"count": 5}),
        table(cells=LARGEST | {"count": 0}),
        table(cells=LARGEST | {"first": 5, "count": 1}),
        table(cells=LARGEST | {"first": -1}),
        table(cells=HASH | {"features": []}),
        table(cells=HASH | {"features": [0, 4]}),
        table(cells=HASH | {"features": [3, 0]}),
        table(cells=HASH | {"features": [1, 1]}),
        table(cells=HASH | {"features": [-1]}),
        table(cells=HASH | {"count": 0}),
        table(cells=HASH | {"count": MAX_NUMBERS + 1}),
        BARE,
        BARE | table(cells=LARGEST),
        BARE | {"weights": SENT} | table(cells=HASH),
        {"weights": ""},
        {"weights": "not base64!"},
        {"weights": "ÄÖÜ"},
        {"weights": SENT[:-4]},
        {"weights": 7},
        {"model": {}},
        # A space of another size, losses that are not the labels', and parts that do not fit together.
        {"model": model.describe(network(5, LOSSES)).model_dump(mode="json")},
        {"model": model.describe(network()).model_dump(mode="json")},
        {"model": {"features": 4, "layers": [{"outputs": 2}, {"outputs": 2}]}},
    ],
)
def test_other_arguments_are_refused(changes):
    with pytest.raises(MaskedLarkError) as caught:
        ask(**changes)
    assert problem.of(caught.value).status in (400, 422)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (table(cells=HASH | {"count": MAX_NUMBERS // 2 + 1}), "32769 cells of 2 labels .* 32768 cells fit"),
        ({"tables": [{"label": 2, "cells": HASH | {"count": 13108}}]}, "at most 13107 cells fit"),
        (table(label=7), "3 labels: 7 is none of their places"),
        (table(label=1, ones=True), "only of a binary label"),
        (part(TABLES[1]), "over a part all labels are counted: leave out ones"),
        (buckets(output=5), "outputs up to 5, and the network has 5 outputs"),
        (table(cells=HASH | {"features": [9]}), "hash some of 0 … 3"),
        (BARE | table(cells=LARGEST), "the network has 0 outputs"),
        ({"model": model.describe(network(5, LOSSES)).model_dump(mode="json")}, "4 features, the network"),
        ({"weights": ""}, "a model goes with its weights"),
    ],
)
def test_a_refusal_says_what_fits(changes, says):
    with pytest.raises(BadArguments, match=says):
        ask(**changes)


def test_a_table_is_bounded():
    for count, label, ones in ((MAX_NUMBERS, 0, True), (MAX_NUMBERS // 2, 0, False), (13107, 2, False)):
        given = {"label": label, "ones": ones, "cells": HASH | {"count": count}}
        assert ask(tables=[given]).schemas[0].most_rows == count


def test_categories_are_refused():
    columns = [{"kind": "bytes", "count": 4}, {"kind": "category", "size": 9}]
    document = stepping.document(models=[MODELS[0] | {"columns": columns}], fake_rate=0.0, decoys=[])
    with pytest.raises(BadArguments, match="byte features so far"):
        Cells().ask(document, arguments(tables=[{"cells": HASH}], **BARE))


def test_weights_of_another_form_are_refused():
    with pytest.raises(DecodeError):
        ask(weights=base64.b64encode(body(network())).decode())


def test_two_thousand_centroids_of_784_bytes_fit_a_question():
    columns = [{"kind": "bytes", "count": 784}]
    document = stepping.document(models=[MODELS[0] | {"columns": columns}], fake_rate=0.0, decoys=[])
    made = Network((Layer(Linear("w0", "b0", 784, 2000)),), ())
    values = FixedRandomness(b"centroids").below(255, made.size).astype(np.int16) - 127
    asked = CellsArguments(
        tag="clicks",
        model=model.describe(made),
        weights=weights.to_text(Quantised(values, (7, 0), ())),
        tables=(DescribedTable.model_validate({"label": 1, "cells": {"kind": "largest", "count": 2000}}),),
    )
    request = Request(
        id="0" * 32,
        datasets=("1" * 64,),
        function="cells",
        arguments=asked.model_dump(mode="json"),
        noise=1.0,
    )
    sent = request.encode()
    assert len(sent) < MAX_REQUEST
    assert Cells().ask(document, Request.decode(sent).arguments).schemas[0].most_rows == 2000


def test_the_ad_server_reads_both_forms():
    asked = DescribedTable(cells=DescribedHash(features=(0,), count=4))
    rows, numbers = [(1,), (3,)], np.array([[5, 6], [7, 8]])
    assert asked.dense(rows, numbers).tolist() == [[0, 0], [5, 6], [0, 0], [7, 8]]
    assert asked.dense([], np.zeros((0, 2), np.int64)).tolist() == [[0, 0]] * 4
    assert asked.dense([()], np.arange(8)[None]).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    others: list[list[Group]] = [[(1,), (4,)], [(-1,), (3,)], [(1,), (1,)], [("1",), (3,)]]
    for strange in others:
        with pytest.raises(WrongType, match="cells that were not asked for"):
            asked.dense(strange, numbers)
