"""Every query is a sum over shards: the same to the bit however its records are cut, and wherever it runs."""

import pickle
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskedlark.core.records import AggregateRecords, Coded, Records
from maskedlark.exact.losses import BinaryCrossEntropy, SoftmaxCrossEntropy
from maskedlark.functions import cells as cells_function
from maskedlark.functions import grouping, groups, model, weights
from maskedlark.functions.cells import Cells
from maskedlark.functions.function import Partial, Query, Table
from maskedlark.functions.gradient import Gradient
from maskedlark.functions.moments import Moments
from maskedlark.functions.sums import Sums
from tests.unit.functions.grouped import DOCUMENT, VALUES, filters, groupings, held, records
from tests.unit.parameters import cases
from tests.unit.release import stepping
from tests.unit.release.stepping import body, network, quantised

SIZE = 40
LABELS = [{"kind": "binary"}, {"kind": "categorical", "value": "purchase", "classes": 3}]
LOSSES = (BinaryCrossEntropy(), SoftmaxCrossEntropy(3))
MODEL = {"tag": "clicks", "columns": [{"kind": "bytes", "count": 4}], "labels": LABELS, "gradient_bound": 1.0}
TRAINED = stepping.document(
    models=[MODEL],
    mechanisms=cases.settings()["mechanisms"] | {"moments": {"kind": "gaussian", "noise_floor": 0.5}},
    fake_rate=0.0,
    decoys=[],
)
BUCKETS = {"kind": "buckets", "output": 0, "edges": [-0.5, 0.0, 0.5]}
TABLES: list[dict[str, object]] = [
    {"cells": BUCKETS},
    {"cells": BUCKETS, "ones": True},
    {"label": 1, "cells": {"kind": "largest", "first": 1, "count": 3}},
    {"label": 1, "cells": {"kind": "hash", "features": [0, 3], "count": 6}},
]
cuts = st.lists(st.integers(0, SIZE), max_size=5).map(sorted)
"""Where shards end; those between equal ends are empty."""


def same(one: Sequence[Table], other: Sequence[Table]) -> None:
    for a, b in zip(one, other, strict=True):
        assert list(a.rows) == list(b.rows)
        assert a.records.tolist() == b.records.tolist()
        for share, twin in zip(a.shares, b.shares, strict=True):
            assert (share.dtype, share.shape) == (twin.dtype, twin.shape)
            assert share.tolist() == twin.tolist()


def through_workers(query: Query, shards: Sequence[Records], ends: Sequence[int]) -> list[Partial]:
    """What workers send: each unpickles the query, adds up what its shards add, and pickles it."""
    sent, partials = pickle.dumps(query), []
    for start, stop in pairwise([0, *ends, len(shards)]):
        own: Query = pickle.loads(sent)
        if start < stop:
            added = own.combined([own.over(each) for each in shards[start:stop]])
            partials.append(pickle.loads(pickle.dumps(added)))
    return partials


def coded(rows: AggregateRecords, entries: dict[str, tuple[str | int, ...]]) -> AggregateRecords:
    """The same records with other dictionaries, which have entries that do not occur here."""
    keys = {}
    for name, own in rows.keys.items():
        places = np.array([entries[name].index(entry) for entry in own.entries], np.int32)
        keys[name] = Coded(places[own.codes] if len(own.codes) else own.codes, entries[name])
    return AggregateRecords(rows.ids, keys, rows.shares)


@settings(max_examples=300, deadline=None)
@given(
    rows=records,
    ends=st.lists(st.integers(0, 30), max_size=5).map(sorted),
    workers=st.lists(st.integers(0, 3), max_size=2).map(sorted),
    where=filters,
    by=groupings,
    values=st.lists(st.sampled_from(VALUES), min_size=1, unique=True),
    k=st.integers(0, 4),
    dense=st.sampled_from([1, 4, 1 << 20]),
    block=st.sampled_from([1, 3, 1 << 20]),
    shared=st.booleans(),
)
def test_sums_by_group(rows, ends, workers, where, by, values, k, dense, block, shared):
    query = Sums().ask(DOCUMENT, {"values": values, "by": by, "where": where})
    whole = query.share([held(rows)], k)
    cut = [held(rows[start:stop]) for start, stop in pairwise([0, *ends, 30])]
    if shared:
        entries = {name: each.entries for name, each in held(rows).keys.items()}
        cut = [coded(each, entries) for each in cut]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "DENSE", dense)
        patch.setattr(grouping, "BLOCK", block)
        same(query.share(cut, k), whole)
        ends = [min(end, len(cut)) for end in workers]
        same(query.tables(through_workers(query, cut, ends), k), whole)
        same(query.tables([query.over(each) for each in cut[::-1]], k), whole)


def described(made):
    return {"tag": "clicks", "model": model.describe(made, fraction=16).model_dump(mode="json")}


def check(query: Query, ends: Sequence[int], k: int) -> None:
    truth = stepping.truth(TRAINED, "clicks", SIZE, b"records")
    cut = [truth.select_rows(slice(*pair)) for pair in pairwise([0, *ends, SIZE])]
    whole = query.share([truth], k)
    same(query.share(cut, k), whole)
    same(query.tables(through_workers(query, cut, [1]), k), whole)
    assert len(pickle.dumps(query)) < 20_000, "neither tensors nor records travel with it"


@settings(max_examples=25, deadline=None)
@given(ends=cuts, k=st.integers(1, 12), part=st.booleans(), block=st.sampled_from([3, 1 << 16]))
def test_labels_by_cell(ends, k, part, block):
    made = network(losses=LOSSES)
    asked = {"tables": [each for each in TABLES if not (part and "ones" in each)]}
    hidden = {"part": "held_out", "held_out": 0.25} if part else {}
    sent = weights.to_text(quantised(made))
    query = Cells().ask(TRAINED, described(made) | {"weights": sent} | asked | hidden)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells_function, "_BLOCK", block)
        check(query, ends, k)


@settings(max_examples=25, deadline=None)
@given(ends=cuts)
def test_moments_of_labels(ends):
    made = network(losses=LOSSES)
    values, last = quantised(made).values.copy(), made.layers[-1].linear
    values[len(values) - last.outputs * (last.inputs + 1) :] = 0
    sent = weights.to_text(replace(quantised(made), values=values))
    check(Moments().ask(TRAINED, described(made) | {"weights": sent, "clip": 1.5}), ends, 1)


@settings(max_examples=25, deadline=None)
@given(ends=cuts, dropout=st.sampled_from([None, 128]))
def test_a_step_of_training(ends, dropout):
    """Dropout too: what it drops follows from the shared secret and the report's id, not from the place."""
    made = network(losses=LOSSES, dropout=dropout)
    steps = Gradient().begin(TRAINED, "clicks", model.describe(made).model_dump(mode="json"))
    check(steps.at(body(made, b"weights"), b"s" * 32), ends, 1)
