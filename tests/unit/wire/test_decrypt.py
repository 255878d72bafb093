import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pytest

from maskedlark.core import field, sharing
from maskedlark.core.candidates import Pair
from maskedlark.core.declared import Bytes, Measure, Model, Value
from maskedlark.core.labels import LabelSpace
from maskedlark.core.records import AggregateRecords, TrainingRecords
from maskedlark.errors import FromTheFuture, OtherOrigin, OtherParameters, PastLifetime
from maskedlark.randomness import SystemRandomness
from maskedlark.wire import batch, payload, payload_form, report
from maskedlark.wire.acceptance import DatasetOpener, Terms, Verdicts
from maskedlark.wire.batch import Envelope
from maskedlark.wire.decrypt import Opened, decrypt_parts
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.layout import Layout, inverted, span
from maskedlark.wire.report import Opener, PublicPart, Recipient

RNG = SystemRandomness()
HOUR = 480_000
KEYS = [OpeningKey.generate(RNG) for _ in range(2)]
OLD = OpeningKey.generate(RNG)
TERMS = Terms("ads.example", b"d" * 32, 24 * 3600, HOUR * 3600)
MEASURE = Measure(("campaign", "city"), (Value("euros", 0, 9),))
MODEL = Model("tag", (Bytes(3),), (LabelSpace.integers(-300, 300),))
OTHER = Model("other tag", (Bytes(5),))
PAIR = Model("pair", (Bytes(2),), (LabelSpace.integers(-2, 3),), Pair())


def make(declared, encoded, secrets, size=None, keys=KEYS, terms=TERMS, hour=HOUR):
    recipients = tuple(Recipient(f"h{i}", key.sealing) for i, key in enumerate(keys))
    envelope = Envelope(
        terms.origin, declared.purpose, terms.parameters, recipients, size or payload.size([declared])
    )
    return batch.seal(envelope, encoded, secrets, [hour] * len(encoded), RNG)


def parts(reports, place):
    return [report.decode(data).part(place) for data in reports]


def to_train(model, labels, **more):
    features = np.arange(model.features * len(labels), dtype=np.uint8).reshape(-1, model.features)
    shown, secrets = model.mask([labels], np.ones(len(labels), np.bool_), RNG)
    return make(model, batch.train_columns(model.tag, features, shown), secrets, **more)


def to_measure(campaigns, cities, euros, **more):
    secrets = MEASURE.lift([euros], np.ones(len(euros), np.bool_))
    return make(MEASURE, batch.aggregate_columns(MEASURE, [campaigns, cities], len(euros)), secrets, **more)


def opener(place, declared, size=None, kind=DatasetOpener, **more):
    keys = {each.key_id: each for each in (KEYS[place], OLD)}
    return kind(f"h{place}", place, keys, declared, size or payload.size([declared]), TERMS, **more)


def trained(opened: Opened, tag: str) -> TrainingRecords:
    assert not isinstance(opened.records, AggregateRecords)
    return opened.records[tag]


@dataclass(frozen=True)
class Impatient(DatasetOpener):
    """Has no strict decoder: what it accepts was read by its form."""

    def address(self, part):
        raise AssertionError("a good part was not recognised by its form")

    def read(self, padded, column_hash):
        raise AssertionError("a good payload was not recognised by its form")


@pytest.mark.parametrize("place", [0, 1])
def test_good_parts_are_read_by_their_form_alone(place):
    made = parts(to_train(MODEL, [0, 5, -300] * 3), place)
    assert decrypt_parts(opener(place, MODEL, kind=Impatient), made).verdicts.accepted.all()
    cities = ["Rome", "", "a much longer name", "x" * 64, 23, 24, 255, 256, -70_000]
    made = parts(to_measure(list(range(9)), cities, [1] * 9), place)
    assert decrypt_parts(opener(place, MEASURE, kind=Impatient), made).verdicts.accepted.all()


def test_keys_are_coded_in_the_order_in_which_they_come():
    cities = ["Rome", 7, "7", "Rome", "Oslo", 7]
    made = to_measure([1, 1, 2, 2, 1, 3], cities, [9, 8, 7, 6, 5, 4])
    opened = [decrypt_parts(opener(place, MEASURE), parts(made, place)) for place in (0, 1)]
    for each in opened:
        assert isinstance(each.records, AggregateRecords)
        assert each.records.keys["city"].entries == ("Rome", 7, "7", "Oslo")
        assert each.records.keys["city"].codes.tolist() == [0, 1, 2, 0, 3, 1]
        assert each.records.keys["campaign"].entries == (1, 2, 3)
        assert each.records.keys["campaign"].codes.dtype == np.int32
        assert each.ids.tolist() == opened[0].ids.tolist() == each.records.ids.tolist()
        assert each.hours.tolist() == [HOUR] * 6
        assert each.places == {}
    total = sharing.combine([cast(AggregateRecords, each.records).shares for each in opened])
    assert field.to_signed(total).tolist() == [[1, euros] for euros in (9, 8, 7, 6, 5, 4)]


def test_records_of_several_models_come_apart_and_keep_their_places():
    models = {model.tag: model for model in (MODEL, OTHER, PAIR)}
    size = payload.size([*models.values()])
    first, second = to_train(MODEL, [1, 2], size=size), to_train(PAIR, [0, 3, -2], size=size)
    made = [second[0], first[0], second[1], first[1], second[2]]
    opened = [decrypt_parts(opener(place, models, size), parts(made, place)) for place in (0, 1)]
    for each in opened:
        assert isinstance(each.records, dict)
        assert list(each.records) == ["tag", "pair"]
        assert each.places["tag"].tolist() == [1, 3]
        assert each.places["pair"].tolist() == [0, 2, 4]
        assert trained(each, "tag").features.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert [shown.shape for shown in trained(each, "tag").candidates] == [(1, 601)]
        assert [shown.shape for shown in trained(each, "pair").candidates] == [(3, 2)]
        assert (trained(each, "pair").ids == each.ids[[0, 2, 4]]).all()
    masks = sharing.combine([trained(each, "pair").shares for each in opened])
    pairs = trained(opened[0], "pair")
    assert isinstance(pairs, TrainingRecords)
    assert (masks * pairs.candidates[0]).sum(axis=1).tolist() == [0, 3, -2]


def test_a_bad_report_spoils_no_other_and_each_has_its_verdict():
    good = parts(to_train(MODEL, [1, 2, 3]), 0)
    [foreign] = parts(to_train(MODEL, [4]), 1)
    [other_size] = parts(to_train(MODEL, [1], size=payload.size([MODEL]) + 32), 0)
    [other_tag] = parts(to_train(replace(MODEL, tag="gat"), [1]), 0)
    [old] = parts(to_train(MODEL, [1], hour=HOUR - 25), 0)
    broken = bytes([*good[0][:-1], good[0][-1] ^ 1])
    sent = [good[0], broken, foreign, good[1], b"", other_size, other_tag, old, good[2]]
    opened = decrypt_parts(opener(0, MODEL), sent)
    names = ["CannotOpen", "WrongHelper", None, "Truncated", "WrongLength", "NotAsDeclared", "PastLifetime"]
    assert [opened.verdicts[i] for i in range(9)] == [None, *names, None]
    assert opened.verdicts.accepted.tolist() == [each is None for each in [None, *names, None]]
    assert opened.verdicts.refused == {name: 1 for name in names if name}
    assert [each.tobytes() for each in opened.ids] == [opener(0, MODEL).open(part)[0].id for part in good]
    assert opened.places["tag"].tolist() == [0, 1, 2]
    assert str(trained(opened, "tag").shares[0, 0]) not in repr(opened) + repr(opened.verdicts)


def test_parts_sealed_to_an_older_key_of_ours_open_too():
    made = [*to_train(MODEL, [1]), *to_train(MODEL, [2], keys=[OLD, KEYS[1]])]
    assert decrypt_parts(opener(0, MODEL, kind=Impatient), parts(made, 0)).verdicts.accepted.all()


@pytest.mark.parametrize("declared", [MEASURE, MODEL, {}, {"pair": PAIR}])
def test_nothing_opens_to_nothing(declared):
    opened = decrypt_parts(opener(0, declared, size=96), [])
    assert opened.ids.shape == (0, 16)
    assert len(opened.verdicts.accepted) == 0
    assert not opened.verdicts.refused
    assert opened.records == {} if declared is not MEASURE else len(opened.records) == 0


def test_where_no_model_is_declared_every_tag_is_unknown():
    made = parts(to_train(MODEL, [1]), 1)
    assert decrypt_parts(opener(1, {}, payload.size([MODEL])), made).verdicts.refused == {"NotAsDeclared": 1}


def test_an_opener_of_no_dataset_takes_any_origin_and_document():
    terms = Terms("other.example", b"e" * 32, 0, 0)
    made = [*to_train(MODEL, [1]), *to_train(MODEL, [2], terms=terms)]
    lenient = Opener("h0", 0, {KEYS[0].key_id: KEYS[0]}, MODEL, payload.size([MODEL]))
    assert decrypt_parts(lenient, parts(made, 0)).verdicts.accepted.all()
    assert decrypt_parts(opener(0, MODEL), parts(made, 0)).verdicts.refused == {"OtherOrigin": 1}


def public(hour=HOUR, origin="ads.example", parameters=b"d" * 32):
    return PublicPart(bytes(16), hour, origin, MODEL.purpose, parameters, bytes(32))


def test_terms_are_held_to_the_second_and_to_the_hour():
    # A report of hour h lives until h + 1 hours and its lifetime have passed, and comes some time before.
    assert 0 < TERMS.min_life_s <= TERMS.lifetime_s // 4
    end = (HOUR - 24) * 3600 + 3600 + TERMS.lifetime_s - TERMS.min_life_s
    replace(TERMS, now=end - 1).check(public(HOUR - 24))
    with pytest.raises(PastLifetime):
        replace(TERMS, now=end).check(public(HOUR - 24))
    TERMS.check(public(HOUR + 48))
    with pytest.raises(FromTheFuture):
        TERMS.check(public(HOUR + 49))
    with pytest.raises(OtherOrigin):
        TERMS.check(public(origin="ads.example.org"))
    with pytest.raises(OtherParameters):
        TERMS.check(public(parameters=b"e" * 32))


def verdicts_elsewhere(opener: Opener, parts: list[bytes]) -> Opened:
    return decrypt_parts(opener, parts)


def test_an_opener_travels_to_another_process_and_leaves_what_it_remembers():
    made, mine = parts(to_train(PAIR, [1, 2, 0]), 1), opener(1, PAIR)
    here = decrypt_parts(mine, made)
    again = pickle.loads(pickle.dumps(mine))
    assert again.keys.keys() == mine.keys.keys()
    assert set(vars(again)) == {"helper", "place", "keys", "declared", "size", "terms"}
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        there = pool.submit(verdicts_elsewhere, mine, made).result(timeout=60)
    assert there.verdicts.accepted.all()
    assert (trained(there, "pair").shares == trained(here, "pair").shares).all()


def test_a_payload_that_claims_four_gigabytes_takes_none():
    assert payload_form.measured(MEASURE, 0, 2**32 - 1, 96) is None
    assert payload_form.trained(MODEL, 0, 96) is None


def test_a_layout_tells_every_byte_that_may_not_change():
    message = bytes(range(10))
    layout = Layout.of(message, [span(message, message[:3] + inverted(message[3:6]) + message[6:])])
    rows = np.tile(np.frombuffer(message, np.uint8), (11, 1))
    rows[range(10), range(10)] ^= 1
    assert layout.matches(rows).tolist() == [False] * 3 + [True] * 3 + [False] * 4 + [True]
    assert span(message, message) == slice(0, 0)


def test_the_verdict_of_a_part_is_its_error_by_name():
    verdicts = Verdicts(3)
    verdicts.refuse(2, PastLifetime("old"))
    verdicts.refuse(0, OtherOrigin("other"))
    assert [verdicts[part] for part in range(3)] == ["OtherOrigin", None, "PastLifetime"]
    assert verdicts.accepted.tolist() == [False, True, False]
    assert verdicts.refused == {"PastLifetime": 1, "OtherOrigin": 1}
