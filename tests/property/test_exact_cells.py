"""Cells equal their slow twin, and their tables too, whatever the network, partition, space and policy."""

from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maskedlark.core import field
from maskedlark.core.labels import LabelSpace
from maskedlark.core.records import TrainingRecords
from maskedlark.exact import cells as exact
from maskedlark.exact import digits
from maskedlark.exact.cells import Buckets, Hashed, Largest, Partition
from maskedlark.exact.errors import TooWide
from maskedlark.exact.gradient import Records
from maskedlark.exact.layout import forward_layout
from maskedlark.exact.network import Network
from maskedlark.exact.quantise import Quantised
from maskedlark.functions.cells import CellsQuery, CellTable
from maskedlark.functions.function import Part, Table
from tests.twins import exact as twin
from tests.unit.exact.cases import (
    add,
    helpers_of,
    label_space,
    networks,
    twin_network,
    twin_records,
    weights_of,
)

CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def quiet(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, suppress_health_check=CHECKS)


@dataclass(frozen=True)
class Case:
    network: Network
    weights: Quantised
    helpers: tuple[Records, ...]
    tables: tuple[CellTable, ...]


@st.composite
def partitions(draw: st.DrawFn, network: Network, hit: list[float]) -> Partition:
    """Of any kind. `hit`: outputs of some record, to put edges on."""
    outputs = network.layers[-1].linear.outputs
    kind = draw(st.sampled_from(["largest", "buckets", "hash"]))
    if kind == "largest":
        first = draw(st.integers(0, outputs - 1))
        return Largest(first, draw(st.integers(1, outputs - first)))
    if kind == "buckets":
        near = [np.nextafter(each, side) for each in hit for side in (-np.inf, np.inf)]
        edges = st.sampled_from([*hit, *map(float, near)]) | st.floats(-1e3, 1e3)
        chosen = draw(st.lists(edges, max_size=6, unique_by=lambda each: each + 0.0))
        return Buckets(draw(st.integers(0, outputs - 1)), tuple(sorted(chosen)))
    places = st.lists(st.integers(0, network.features - 1), min_size=1, unique=True)
    return Hashed(tuple(sorted(draw(places))), draw(st.integers(1, 9)))


@st.composite
def asked(draw: st.DrawFn, bits: int = 8) -> Case:
    network = draw(networks(depth=3, width=6))
    weights, helpers = draw(weights_of(network, bits)), draw(helpers_of(network, most=9))
    spaces = [label_space(loss, np.random.default_rng(0)) for loss in network.losses]
    hit = [0.0]
    if len(helpers[0]):
        net = twin_network(network, weights)
        sums = twin.forward(net, helpers[0].features[0].tolist(), None, b"")[2]
        hit += [each * 2.0 ** -twin.forms(net)[-1]["e"] for each in sums]
    tables = []
    for _ in range(draw(st.integers(1, 3))):
        label = draw(st.integers(0, len(spaces) - 1))
        ones = spaces[label] == LabelSpace.binary() and draw(st.booleans())
        tables.append(CellTable(label, spaces[label], draw(partitions(network, hit)), ones))
    # The labels are those of the losses; cells do not need any.
    bare = Network(network.layers, ()) if draw(st.booleans()) else network
    return Case(bare, weights, helpers, tuple(tables))


def plain(partition: Partition) -> dict[str, Any]:
    kind = {Largest: "largest", Buckets: "buckets", Hashed: "hash"}[type(partition)]
    return {"kind": kind, **vars(partition)}


def stored(own: Records, rows: slice = slice(None)) -> TrainingRecords:
    """As a helper stores them."""
    ids = np.zeros((len(own), 16), np.uint8)
    shown = tuple(each[rows] for each in own.candidates)
    return TrainingRecords(ids[rows], own.features[rows], shown, own.masks[rows])


def in_runs(rows: list[list[int]], run: list[int]) -> list[int]:
    return [sum(each) % field.P for each in zip(*(rows[cell] for cell in run), strict=True)]


def check_case(case: Case, block: int, k: int) -> None:
    try:
        forward_layout(case.network, case.weights)
        net = twin_network(case.network, case.weights)
        query = CellsQuery("tag", case.network, case.weights, case.tables, None)
        # The first helper works in other blocks than the others, and has two datasets: masks cancel.
        halves = slice(0, len(case.helpers[0]) // 2), slice(len(case.helpers[0]) // 2, None)
        with mock.patch.object(exact, "BLOCK", block):
            shares = [query.share([stored(case.helpers[0], half) for half in halves], k)]
    except TooWide:
        return
    with mock.patch.object(digits, "available", return_value=False):
        shares += [query.share([stored(own)], k) for own in case.helpers[1:]]
    hidden = CellsQuery("tag", case.network, case.weights, case.tables, Part("held_out", 0.5))
    whole = hidden.share([stored(case.helpers[0])], k)
    truth = Records(
        case.helpers[0].features, case.helpers[0].candidates, add([o.masks for o in case.helpers])
    )
    for number, table in enumerate(case.tables):
        given = net, plain(table.partition)
        space = list(table.space.values)
        first, sizes = twin.cells(
            *given, twin_records(case.helpers[0]), label=table.label, space=space, ones=table.ones
        )
        kept = [[cell] for cell, size in enumerate(sizes) if size >= k]
        if isinstance(table.partition, Buckets):
            kept = twin.runs(sizes, k)
        own = [each[number] for each in shares]
        assert all(list(each.rows) == [(run[0],) for run in kept] for each in own)
        assert own[0].records.tolist() == [sum(sizes[cell] for cell in run) for run in kept]
        assert own[0].shares[0].tolist() == [in_runs(first, run) for run in kept]
        expected, _ = twin.cells(*given, twin_records(truth), label=table.label, space=space, ones=table.ones)
        total = field.to_signed(add([each.shares[0] for each in own]))
        assert total.tolist() == [in_runs(expected, run) for run in kept]
        assert (total.sum(axis=1) <= own[0].records).all(), "a fake is in the cell, and counts 0"
        # Over a hidden part: all cells in one row, whatever they hold.
        assert list(whole[number].rows) == [()]
        assert whole[number].shares[0].tolist() == [[each for row in first for each in row]]
        assert whole[number].shares[0].shape == (1, hidden.schemas[number].columns[0].width)


@given(case=asked(), block=st.integers(1, 6), k=st.integers(1, 4))
@quiet(200)
def test_tables_are_the_twins(case: Case, block: int, k: int) -> None:
    check_case(case, block, k)


@given(case=asked(bits=16), block=st.integers(1, 6), k=st.integers(1, 4))
@quiet(60)
def test_so_they_are_with_16_bit_weights(case: Case, block: int, k: int) -> None:
    check_case(case, block, k)


@pytest.mark.long
@given(case=asked(), block=st.integers(1, 6), k=st.integers(1, 4))
@quiet(3000)
def test_tables_are_the_twins_many_times(case: Case, block: int, k: int) -> None:
    check_case(case, block, k)


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.long), 2])
def test_threads_do_not_matter(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        test_tables_are_the_twins()
    finally:
        torch.set_num_threads(before)


@given(case=asked(), data=st.data())
@quiet(150)
def test_a_replaced_label_or_fake_moves_no_more_than_the_sensitivity(case: Case, data: st.DataObject) -> None:
    """In clear masks, of any record: in both norms and in coordinates."""
    query = CellsQuery("tag", case.network, case.weights, case.tables, Part("held_out", 0.5))
    spaces = {table.label: table.space for table in case.tables}
    every = [spaces.get(label, LabelSpace.binary()) for label in range(max(spaces) + 1)]
    shown = tuple(np.array([space.values]) for space in every)
    features = np.array([data.draw(st.lists(st.integers(0, 255), min_size=6, max_size=6))], np.uint8)

    def of_one_record() -> list[Table]:
        """With a label, or a fake's masks, which are all 0."""
        labels = [data.draw(st.integers(-1, len(space) - 1)) for space in every]
        pairs = zip(every, labels, strict=True)
        masks = np.hstack([(np.arange(len(space)) == label) * 1 for space, label in pairs])[None]
        own = TrainingRecords(np.zeros((1, 16), np.uint8), features[:, : case.network.features], shown, masks)
        return query.share([own], 1)

    try:
        before, after = of_one_record(), of_one_record()
    except TooWide:
        return
    for column, one, other in zip(query.columns, before, after, strict=True):
        moved = (one.shares[0] - other.shares[0]).ravel()
        assert np.abs(moved).sum() <= column.sensitivity.l1
        assert np.sqrt((moved**2).sum()) <= column.sensitivity.l2
        assert np.count_nonzero(moved) <= column.sensitivity.touched
        assert one.shares[0].max() <= column.largest
