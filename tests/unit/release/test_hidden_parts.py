"""Answers over records that the ad server does not know: the rules of a step hold."""

import base64
import json
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from maskedlark.core import batches, field, sharing
from maskedlark.errors import BadArguments, FieldOverflow, MaskedLarkError
from maskedlark.functions import model
from maskedlark.functions.cells import CellsQuery
from maskedlark.functions.function import TableSchema
from maskedlark.helper import explanation
from maskedlark.release.errors import TooFewRecords, TooManyRecords
from maskedlark.release.messages import Request
from maskedlark.release.under_way import UnderWay
from tests.unit.release import stepping
from tests.unit.release.stepping import ORIGIN, Rig, body, network

TABLE = {"cells": {"kind": "buckets", "edges": [-0.5, 0.0, 0.5]}}
SENT = base64.b64encode(body(network())).decode()


class Asked:
    """All helpers' pipelines for cells."""

    def __init__(self, rig):
        self.rig = rig
        self.restart()

    def restart(self):
        self.pipelines = [self.rig.start(place) for place in self.rig.places]

    def request(self, number, **arguments):
        given = {
            "tag": "clicks",
            "model": model.describe(network()).model_dump(mode="json"),
            "weights": SENT,
            "tables": [TABLE],
        }
        return Request(
            id=f"{number:032x}",
            datasets=tuple(digest.hex() for digest in self.rig.digests),
            function="cells",
            arguments=given | arguments,
            noise=1e-3 if self.rig.document.mechanisms["cells"].noise_floor <= 1e-3 else 1.0,
        )

    def answers(self, request):
        return [pipeline.answer(ORIGIN, request.encode(), request) for pipeline in self.pipelines]

    def explained(self, request, place=0):
        found = self.pipelines[place].explain(ORIGIN, request)
        return json.loads(explanation.of(found).encode())


@pytest.fixture
def asked(tmp_path):
    quiet = {
        "gradient": {"kind": "gaussian", "noise_floor": 1e-3},
        "cells": {"kind": "gaussian", "noise_floor": 1e-3},
        "sums": {"kind": "laplace", "noise_floor": 1.0},
    }
    huge = {"epsilon": 1e6, "delta": 1e-3}
    document = stepping.document(
        mechanisms=quiet, budget=huge, training={"adserver": huge, "coalition": huge}
    )
    rig = Rig(tmp_path, document, (150, 90))
    yield Asked(rig)
    rig.close()


@pytest.fixture
def worked(monkeypatch):
    return stepping.worked(monkeypatch, CellsQuery)


def out(rig, share):
    return [
        batches.held_out(rig.seeds[digest], "clicks", share, len(truth["clicks"]))
        for digest, truth in zip(rig.digests, rig.truth, strict=True)
    ]


def real(rig, which):
    """How many of these records are no fakes: what a histogram adds up to."""
    return sum(int(truth["clicks"].shares[rows].sum()) for truth, rows in zip(rig.truth, which, strict=True))


@pytest.mark.parametrize("which", ["held_out", "training"])
def test_the_sum_is_of_the_part_and_of_nobody_else(asked, which):
    request = asked.request(1, part=which, held_out=0.25)
    shares = [each.tables[0].columns[0] for each in asked.answers(request)]
    total = int(field.to_signed(sharing.combine(shares)).sum())
    held = out(asked.rig, 0.25)
    assert total == real(asked.rig, held if which == "held_out" else [~each for each in held])


@pytest.mark.parametrize("which", ["held_out", "training"])
def test_no_number_of_such_records_is_told(asked, worked, which):
    request = asked.request(1, part=which, held_out=0.25)
    share = 0.25 if which == "held_out" else 0.75
    assert asked.explained(request)["records"] == int(240 * share) != sum(map(np.sum, out(asked.rig, 0.25)))
    asked.answers(request)
    assert worked == [batches.room(share, 150), batches.room(share, 90)] * 2


def test_such_an_answer_is_kept_and_not_computed_again(asked, worked):
    request = asked.request(1, part="held_out", held_out=0.25)
    before = [each.encode() for each in asked.answers(request)]
    for _ in range(3):
        asked.restart()
        assert [each.encode() for each in asked.answers(request)] == before
    assert len(worked) == 4
    # Lost in a crash, it is made again as it was.
    for path in asked.rig.folder.glob("*/answers/*"):
        path.unlink()
    assert [each.encode() for each in asked.answers(request)] == before
    assert len(worked) == 8


@pytest.mark.parametrize("part", [{}, {"part": "held_out", "held_out": 0.25}])
def test_how_far_it_is_is_counted_by_shards_whoever_is_asked_about(asked, monkeypatch, part):
    told: list[object] = []

    def counted(_, what, pieces):
        told.append((what, pieces))
        return nullcontext(told.append)

    monkeypatch.setattr(UnderWay, "counted", counted)
    asked.answers(asked.request(1, **part))
    assert told == [("query", 2), 2] * 2


def test_an_answer_over_everybody_is_computed_again(asked, worked):
    request = asked.request(1)
    before = [each.encode() for each in asked.answers(request)]
    assert [each.encode() for each in asked.answers(request)] == before
    assert len(worked) == 8
    assert not list(asked.rig.folder.glob("*/answers/*"))


def test_below_k_it_is_noise_alone_in_the_same_form(asked, monkeypatch):
    """k is judged by what everybody knows: that a part has fewer shows in nothing."""
    request = asked.request(1, part="held_out", held_out=0.1)
    monkeypatch.setattr(
        "maskedlark.core.batches.held_out", lambda seed, tag, share, size: np.arange(size) < 5
    )
    answers = asked.answers(request)
    total = field.to_signed(sharing.combine([each.tables[0].columns[0] for each in answers]))
    assert total.shape == (1, 8)
    assert np.abs(total).max() <= 1, "noise of scale 0.001 rounds to nothing"
    assert asked.explained(asked.request(2, part="held_out", held_out=0.1))["records"] == 24


@pytest.mark.parametrize("which", ["held_out", "training"])
def test_two_draws_of_a_part_show_in_nothing_but_the_numbers(tmp_path, monkeypatch, which):
    """Fewer than k are held out, or nearly all: explanations, forms of answers, errors and receipts agree."""
    draws = (
        lambda seed, tag, share, size: np.arange(size) < 5,
        lambda seed, tag, share, size: np.arange(size) < size - 5,
    )
    found = []
    for number, draw in enumerate(draws):
        monkeypatch.setattr("maskedlark.core.batches.held_out", draw)
        (folder := tmp_path / str(number)).mkdir()
        found.append(shown(folder, which))
    assert found[0] == found[1]
    assert len(found[0]["errors"]) == 8


def shown(folder, which):
    """All that the ad server gets of both helpers, but for the shares themselves."""
    rig = Rig(folder, stepping.document(), (150, 90))
    asked, errors = Asked(rig), []
    request = asked.request(1, part=which, held_out=0.5)
    explained = [asked.explained(request, place) for place in rig.places]
    answers = asked.answers(request)
    wrong = (
        asked.request(2, part="held_out", held_out=0.01),
        asked.request(3, part=which, held_out=0.5, tables=[TABLE | {"ones": True}]),
        asked.request(4, part=which, held_out=0.5).model_copy(update={"noise": 1e-3}),
        asked.request(1, part=which, held_out=0.4),
    )
    for pipeline in asked.pipelines:
        for each in wrong:
            with pytest.raises(MaskedLarkError) as error:
                pipeline.answer(ORIGIN, each.encode(), each)
            errors.append(f"{type(error.value).__name__}: {error.value}")
    forms = [(each.tables[0].columns[0].shape, len(each.encode())) for each in answers]
    receipts = [
        [each.claimed().model_dump(mode="json") for each in ledger.receipts(ORIGIN)]
        for ledger, _, _ in rig.ledgers
    ]
    rig.close()
    return {"explained": explained, "forms": forms, "errors": errors, "receipts": receipts}


def test_a_part_that_is_below_k_by_its_share_is_refused(asked):
    request = asked.request(1, part="held_out", held_out=0.08)
    for pipeline in asked.pipelines:
        with pytest.raises(TooFewRecords):
            pipeline.answer(ORIGIN, request.encode(), request)


def test_the_victims_part_cannot_be_told_by_explaining_with_and_without_it(tmp_path):
    """Whether a record is held out was the difference of two explanations: over [D1, D2] and over [D2]."""
    found = set()
    for number in range(8):
        folder = tmp_path / str(number)
        folder.mkdir()
        rig = Rig(folder, stepping.document(), (20, 400))
        rig.seeds[rig.digests[0]] = bytes([number]) * 32
        both = Asked(rig)
        whole = both.explained(both.request(1, part="held_out", held_out=0.25))["records"]
        rig.digests, rig.held = rig.digests[1:], [held[1:] for held in rig.held]
        found.add(whole - both.explained(both.request(2, part="held_out", held_out=0.25))["records"])
        rig.close()
    assert found == {5}


def test_of_too_many_records_a_part_that_fits_is_answered(tmp_path):
    """240 records in two datasets, at most 150 in a release: by the public share, whoever is in the part."""
    rig = Rig(tmp_path, stepping.document(max_records=150), (150, 90))
    asked = Asked(rig)
    for number, more in enumerate([{}, {"part": "training", "held_out": 0.25}]):
        with pytest.raises(TooManyRecords, match="over a part"):
            asked.answers(asked.request(number, **more))
    answers = asked.answers(asked.request(2, part="held_out", held_out=0.25))
    assert [each.tables[0].columns[0].shape for each in answers] == [(1, 8)] * 2
    rig.close()


def test_the_field_has_to_hold_the_most_that_a_part_may_have_not_everybody(asked, monkeypatch):
    """That is public: the same with every draw of the part."""
    most, (schema,) = batches.room(0.25, 240), asked_query(asked).schemas
    request = asked.request(1, part="held_out", held_out=0.25)
    for records, fits in ((most, True), (most - 1, False)):
        wide = replace(schema.columns[0], largest=field.HALF // records - (1 << 40))
        monkeypatch.setattr(CellsQuery, "schemas", (TableSchema((), (wide,)),))
        if fits:
            asked.pipelines[0].check(ORIGIN, request)
            continue
        with pytest.raises(FieldOverflow):
            asked.pipelines[0].check(ORIGIN, request)


def test_groups_of_a_hidden_part_are_refused_before_anything_is_charged(asked, monkeypatch):
    """Which groups are there would tell who is in it, also where an operator's own function returns them."""
    schemas = asked_query(asked).schemas
    grouped = tuple(TableSchema(("city",), each.columns) for each in schemas)
    monkeypatch.setattr(CellsQuery, "schemas", grouped)
    request = asked.request(1, part="held_out", held_out=0.25)
    before = [len(ledger.receipts(ORIGIN)) for ledger, _, _ in asked.rig.ledgers]
    for pipeline in asked.pipelines:
        with pytest.raises(BadArguments, match="no groups"):
            pipeline.answer(ORIGIN, request.encode(), request)
    assert [len(ledger.receipts(ORIGIN)) for ledger, _, _ in asked.rig.ledgers] == before


def asked_query(asked):
    return asked.pipelines[0].check(ORIGIN, asked.request(2, part="held_out", held_out=0.25)).query
