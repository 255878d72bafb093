"""Cells on real releases: k, what is charged and what is not, and the form of an answer."""

import base64
import json

import numpy as np
import pytest

from maskedlark.adserver.combining import combine
from maskedlark.errors import MaskedLarkError
from maskedlark.exact.cells import Buckets, Largest, cells
from maskedlark.exact.network import Layer, Linear, Network
from maskedlark.exact.quantise import Quantised
from maskedlark.functions import model, weights
from maskedlark.functions.cells import Cells, DescribedTable
from maskedlark.release.checks import check_answer, max_bytes
from maskedlark.release.errors import AnswerTooLarge
from maskedlark.release.messages import Request, decode_answer
from maskedlark.web import problem
from tests.unit.release import stepping
from tests.unit.release.stepping import ORIGIN, K, Rig

WHOLE = Network((Layer(Linear("w0", None, 4, 1)),), ())
SENT = Quantised(np.array([256, 1, 0, 0], np.int16), (8,), (), 16)
"""The first two bytes as one number, over 2^16: hardly two records have the same."""
SPARSE = {"cells": {"kind": "hash", "features": [0, 1], "count": 900}}
HALF = {"part": "held_out", "held_out": 0.5}
QUIET = {name: {"kind": "laplace", "noise_floor": 1e-3} for name in ("sums", "cells")}
HUGE = {"epsilon": 1e6, "delta": 1e-3}


@pytest.fixture(params=[2, 3])
def rig(tmp_path, request):
    document = stepping.document(
        request.param, mechanisms=QUIET, budget=HUGE, training={"adserver": HUGE, "coalition": HUGE}
    )
    made = Rig(tmp_path, document, (150, 90), {"cells": Cells()})
    yield made
    made.close()


def question(rig, number=1, noise=1e-3, **changes):
    given = {
        "tag": "clicks",
        "model": model.describe(WHOLE).model_dump(mode="json"),
        "weights": base64.b64encode(weights.encode(SENT)).decode(),
        "tables": [{"cells": {"kind": "buckets", "edges": [0.5]}}],
    }
    datasets = tuple(digest.hex() for digest in rig.digests)
    return Request(
        id=f"{number:032x}", datasets=datasets, function="cells", arguments=given | changes, noise=noise
    )


def answer(rig, request):
    """As the ad server reads it: every table dense, and its rows."""
    body = request.encode()
    answers = {
        f"helper-{place}": decode_answer(pipeline.answer(ORIGIN, body, Request.decode(body)).encode())
        for place, pipeline in enumerate(rig.pipelines)
    }
    schemas = Cells().ask(rig.document, request.arguments).schemas
    asked = [DescribedTable.model_validate_json(json.dumps(each)) for each in request.arguments["tables"]]
    tables = combine(schemas, answers)
    return [(list(t.rows), a.dense(t.rows, t.columns[0])) for a, t in zip(asked, tables, strict=True)]


def everybody(rig):
    """All features, and the true counts of the labels 0 and 1 of each record: 0 and 0 of a fake."""
    held = [each["clicks"] for each in rig.truth]
    return np.concatenate([each.features for each in held]), np.concatenate([each.shares for each in held])


def edges_of(rig, *sizes):
    """Edges with so many records below each, one after the other."""
    features, _ = everybody(rig)
    numbers = np.sort(features[:, 0] * 256.0 + features[:, 1]) / 2**16
    edges = [float(numbers[end]) for end in np.cumsum(sizes)]
    found = np.bincount(cells(WHOLE, SENT, features, [Buckets(0, tuple(edges))])[0])
    assert found[: len(sizes)].tolist() == list(sizes), "no two records on an edge"
    return edges


def receipts(rig):
    return [len(ledger.receipts(ORIGIN)) for ledger, _, _ in rig.ledgers]


def test_a_cell_of_k_records_is_there_and_one_of_fewer_is_absent(rig):
    """Outputs i·x - (e_1 + … + e_i): the largest is the number of edges that x reaches."""
    edges = edges_of(rig, K - 1, K, K + 1, K - 1)
    units = np.round(np.cumsum([0.0, *edges]) * 2**16).astype(int)
    network = Network((Layer(Linear("w0", "b0", 4, 5)),), ())
    weight = np.outer(np.arange(5), [256, 1, 0, 0])
    sent = Quantised(np.concatenate([weight.ravel(), -units // 16]).astype(np.int16), (8, 12), (), 16)
    features, truth = everybody(rig)
    (places,) = cells(network, sent, features, [Largest(0, 5)])
    sizes = np.bincount(places, minlength=5)
    assert {*np.sign(sizes - K)} == {-1, 0, 1}, "there are some of fewer than k, of k, and of more"
    given = {"model": model.describe(network).model_dump(mode="json"), "weights": weights.to_text(sent)}
    tables = [{"cells": {"kind": "largest", "count": 5}, "ones": ones} for ones in (False, True)]
    (rows, counts), (same, ones) = answer(rig, question(rig, tables=tables, **given))
    assert rows == same == [(int(cell),) for cell in np.flatnonzero(sizes >= K)]
    for cell in range(5):
        wanted = truth[places == cell].sum(axis=0) if (cell,) in rows else np.zeros(2)
        assert counts[cell].tolist() == wanted.tolist()
        assert ones[cell].tolist() == wanted[1:].tolist()
    assert counts.sum() < sizes[sizes >= K].sum(), "fakes count 0, and are among the k"


def test_buckets_of_fewer_than_k_records_are_counted_with_their_neighbours(rig):
    edges = edges_of(rig, K - 1, K, K + 1, K - 1, 1, len(everybody(rig)[0]) - 4 * K - 1)
    (rows, counts), (same, ones) = answer(
        rig,
        question(
            rig,
            tables=[{"cells": {"kind": "buckets", "edges": edges}, "ones": ones} for ones in (False, True)],
        ),
    )
    assert rows == same == [(0,), (2,), (3,), (5,)]
    features, truth = everybody(rig)
    (places,) = cells(WHOLE, SENT, features, [Buckets(0, tuple(edges))])
    for row, run in ((0, (0, 1)), (2, (2,)), (3, (3, 4)), (5, (5, 6))):
        wanted = truth[np.isin(places, run)].sum(axis=0)
        assert counts[row].tolist() == wanted.tolist()
        assert ones[row].tolist() == wanted[1:].tolist()
    assert counts.sum() == truth.sum(), "nobody is lost"


def test_an_answer_without_any_cell_is_read_as_zeros(rig):
    (table,) = answer(
        rig, question(rig, tables=[{"cells": {"kind": "hash", "features": [0, 1], "count": 900}}])
    )
    assert table[0] == []
    assert table[1].tolist() == [[0, 0]] * 900


def test_over_a_part_empty_cells_are_there_with_noise_of_their_own(rig):
    request = question(rig, noise=4.0, tables=[SPARSE], part="training", held_out=0.25)
    ((rows, counts),) = answer(rig, request)
    assert rows == [()]
    assert counts.shape == (900, 2)
    # Laplace noise of scale 4 times 2 of every helper; nearly all cells are empty.
    assert 0.8 < counts.std() / np.sqrt(len(rig.pipelines) * 2 * 8**2) < 1.25
    explained = rig.pipelines[0].explain(ORIGIN, question(rig, 2, noise=4.0, **dict(request.arguments)))
    assert explained.query.records == int(240 * 0.75)


def test_tables_are_charged_each(rig):
    table = {"cells": {"kind": "buckets", "edges": [0.5]}}
    request = question(rig, tables=[table, table | {"ones": True}, table])
    for pipeline in rig.pipelines:
        signed = pipeline.answer(ORIGIN, request.encode(), request).receipt.claimed()
        assert signed.charge.columns == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"tables": [{"cells": {"kind": "buckets", "edges": [1.0, 0.0]}}]},
        {"tables": [{"cells": {"kind": "hash", "features": [0], "count": 40_000}}]},
        {"tables": [{"cells": {"kind": "largest", "count": 2}}]},
        {"tables": [{"cells": {"kind": "hash", "features": [7], "count": 3}}]},
        {"tables": [{"label": 1, "cells": {"kind": "hash", "features": [0], "count": 3}}]},
        {
            "tables": [{"cells": {"kind": "buckets", "edges": []}, "ones": True}],
            "part": "held_out",
            "held_out": 0.5,
        },
        {"weights": base64.b64encode(b"no weights").decode()},
        {"model": {"features": 5, "layers": [{"outputs": 1}]}},
        {"tag": "basket"},
    ],
)
def test_what_is_refused_costs_nothing(rig, changes):
    request, before = question(rig, **changes), receipts(rig)
    for pipeline in rig.pipelines:
        with pytest.raises(MaskedLarkError) as caught:
            pipeline.answer(ORIGIN, request.encode(), request)
        assert problem.of(caught.value).status in (400, 422)
    assert receipts(rig) == before


@pytest.mark.parametrize("edge", ["NaN", "Infinity", "1e999"])
def test_edges_that_json_does_not_have_do_not_get_that_far(rig, edge):
    body = question(rig).encode().replace(b"0.5", edge.encode())
    with pytest.raises(MaskedLarkError) as caught:
        rig.pipelines[0].answer(ORIGIN, body, Request.decode(body))
    assert problem.of(caught.value).status in (400, 422)


def test_an_answer_has_no_more_rows_than_cells_and_one_without_keys():
    """Or few cells of many records, and wide rows of a hidden part, would be refused for nothing."""
    document = stepping.document(k=1)
    table = {"cells": {"kind": "hash", "features": [0], "count": 1000}}
    asked = Cells().ask(document, {"tag": "clicks", "tables": [table]})
    check_answer(asked, 10**9)
    assert max_bytes(asked, 10**9) == max_bytes(asked, 1000) == 1000 * max_bytes(asked, 1)
    hidden = Cells().ask(document, {"tag": "clicks", "tables": [table], "part": "held_out", "held_out": 0.5})
    assert max_bytes(hidden, 10**9) == max_bytes(hidden, 1) == 1000 * 2 * 8 + 9
    many = {"tag": "clicks", "tables": [{"cells": table["cells"] | {"count": 32_768}}] * 32}
    with pytest.raises(AnswerTooLarge):
        check_answer(Cells().ask(document, many), 10**9)
