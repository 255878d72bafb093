import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from maskedlark.core import field, sharing
from maskedlark.core.candidates import Pair
from maskedlark.core.declared import Bytes, Model
from maskedlark.core.labels import LabelSpace
from maskedlark.core.records import AggregateRecords
from maskedlark.wire.decrypt import Opened, decrypt_parts, hours_of, ids_of
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.report import HEAD_BYTES, Opener
from tests.unit.wire.cases import (
    HOUR,
    KEYS,
    MEASURE,
    RNG,
    layout,
    opener,
    to_measure,
    to_train,
    trained,
)

MODEL = Model("tag", (Bytes(3),), (LabelSpace.integers(-300, 300),))
OTHER = Model("other tag", (Bytes(5),))
PAIR = Model("pair", (Bytes(2),), (LabelSpace.integers(-2, 3),), Pair())


def test_keys_are_coded_in_the_order_in_which_they_come():
    under, cities = layout(MEASURE), ["Rome", 7, "7", "Rome", "Oslo", 7]
    made = to_measure(under, [1, 1, 2, 2, 1, 3], cities, [9, 8, 7, 6, 5, 4])
    opened = [decrypt_parts(opener(under, place), under.parts(made, place).tobytes()) for place in (0, 1)]
    for each in opened:
        assert isinstance(each.records, AggregateRecords)
        assert each.records.keys["city"].entries == ("Rome", 7, "7", "Oslo")
        assert each.records.keys["city"].codes.tolist() == [0, 1, 2, 0, 3, 1]
        assert each.records.keys["campaign"].entries == (1, 2, 3)
        assert each.records.keys["campaign"].codes.dtype == np.int32
        assert (each.heads == under.heads(made)).all()
        assert (ids_of(each.heads) == each.records.ids).all()
        assert hours_of(each.heads).tolist() == [HOUR] * 6
        assert each.places == {}
    total = sharing.combine([cast(AggregateRecords, each.records).shares for each in opened])
    assert field.to_signed(total).tolist() == [[1, euros] for euros in (9, 8, 7, 6, 5, 4)]


def test_records_of_several_models_come_apart_and_keep_their_places():
    under = layout(MODEL, OTHER, PAIR)
    first, second = to_train(under, [1, 2]), to_train(under, [0, 3, -2], place=2)
    made = [second[0], first[0], second[1], first[1], second[2]]
    opened = [decrypt_parts(opener(under, place), under.parts(made, place).tobytes()) for place in (0, 1)]
    for each in opened:
        assert isinstance(each.records, dict)
        assert list(each.records) == ["tag", "pair"]
        assert each.places["tag"].tolist() == [1, 3]
        assert each.places["pair"].tolist() == [0, 2, 4]
        assert trained(each, "tag").features.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert [shown.shape for shown in trained(each, "tag").candidates] == [(1, 601)]
        assert [shown.shape for shown in trained(each, "pair").candidates] == [(3, 2)]
        assert (trained(each, "pair").ids == ids_of(each.heads)[[0, 2, 4]]).all()
    masks = sharing.combine([trained(each, "pair").shares for each in opened])
    pairs = trained(opened[0], "pair")
    assert (masks * pairs.candidates[0]).sum(axis=1).tolist() == [0, 3, -2]


def test_a_bad_part_spoils_no_other_and_each_has_its_verdict():
    under = layout(MODEL)
    made = to_train(under, [1, 2, 3])
    good = [each.tobytes() for each in under.parts(made, 0)]
    foreign = good[0][:HEAD_BYTES] + KEYS[3].key_id + good[0][HEAD_BYTES + 16 :]
    elsewhere = replace(under, origin="other.example")
    [other_origin] = elsewhere.parts(to_train(elsewhere, [1]), 0)
    longer = layout(MODEL, replace(MODEL, tag="more"))  # as a document that declares one more model
    [other_model] = longer.parts(to_train(longer, [1], place=1), 0)
    [old] = under.parts(to_train(under, [1], hour=HOUR - 25), 0)
    broken = bytes([*good[0][:-1], good[0][-1] ^ 1])
    sent = [good[0], broken, foreign, good[1], other_origin.tobytes(), other_model.tobytes(), old.tobytes()]
    opened = decrypt_parts(opener(under, 0), b"".join([*sent, good[2]]))
    names = ["CannotOpen", "WrongHelper", None, "CannotOpen", "NotAsDeclared", "PastLifetime"]
    assert [opened.verdicts[i] for i in range(8)] == [None, *names, None]
    assert opened.verdicts.accepted.tolist() == [each is None for each in [None, *names, None]]
    assert opened.verdicts.refused == {
        "CannotOpen": 2,
        "WrongHelper": 1,
        "NotAsDeclared": 1,
        "PastLifetime": 1,
    }
    assert (opened.heads == under.heads(made)).all()
    assert opened.places["tag"].tolist() == [0, 1, 2]
    assert str(trained(opened, "tag").shares[0, 0]) not in repr(opened) + repr(opened.verdicts)


def test_parts_sealed_to_an_older_key_of_ours_open_too():
    under, new = layout(MODEL), OpeningKey.generate(RNG)
    mine = replace(opener(under, 0), keys={new.key_id: new, KEYS[0].key_id: KEYS[0]})
    parts = under.parts(to_train(under, [1, 2]), 0).tobytes()
    assert decrypt_parts(mine, parts).verdicts.accepted.all()
    assert decrypt_parts(replace(mine, keys={new.key_id: new}), parts).verdicts.refused == {"WrongHelper": 2}


@pytest.mark.parametrize("declared", [(MEASURE,), (MODEL,), (MODEL, PAIR)])
def test_nothing_opens_to_nothing(declared):
    opened = decrypt_parts(opener(layout(*declared), 0), b"")
    assert opened.heads.shape == (0, HEAD_BYTES)
    assert len(opened.verdicts.accepted) == 0
    assert not opened.verdicts.refused
    assert opened.records == {} if declared[0] is not MEASURE else len(opened.records) == 0


def verdicts_elsewhere(opener: Opener, parts: bytes) -> Opened:
    return decrypt_parts(opener, parts)


def test_an_opener_travels_to_another_process():
    under = layout(PAIR)
    parts, mine = under.parts(to_train(under, [1, 2, 0]), 1).tobytes(), opener(under, 1)
    here = decrypt_parts(mine, parts)
    assert pickle.loads(pickle.dumps(mine)).keys.keys() == mine.keys.keys()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        there = pool.submit(verdicts_elsewhere, mine, parts).result(timeout=60)
    assert there.verdicts.accepted.all()
    assert (trained(there, "pair").shares == trained(here, "pair").shares).all()
