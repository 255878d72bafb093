from dataclasses import replace

import numpy as np
import pytest

from maskedlark.adserver.errors import UploadRefused
from maskedlark.adserver.uploads import ReportLayouts
from maskedlark.core import field, sharing
from maskedlark.core.candidates import Pair
from maskedlark.core.declared import Bytes, Model
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.errors import DecodeError, NotDeclared, Refused, UnsupportedVersion, WrongLength, WrongType
from maskedlark.wire import batch, columns, report
from maskedlark.wire.acceptance import Terms, Verdicts
from maskedlark.wire.batch import Envelope
from maskedlark.wire.decrypt import decrypt_parts
from maskedlark.wire.errors import DuplicateKey, FromTheFuture, OutOfRange, PastLifetime, Truncated
from maskedlark.wire.hpke import OVERHEAD
from maskedlark.wire.report import HEAD_BYTES, Prefix
from tests.unit.wire.cases import (
    HOUR,
    KEYS,
    MEASURE,
    MODEL,
    RNG,
    TERMS,
    envelope,
    layout,
    opener,
    to_measure,
    to_train,
    trained,
)


@pytest.mark.parametrize(
    "declared",
    [
        (MODEL,),
        (Model("t" * 64, (Bytes(1000),), (LabelSpace.binary(), LabelSpace.integers(0, 9))),),
        (Model("p", (Bytes(1),), (LabelSpace.integers(-35_000, 30_000),), Pair()),),
        (MODEL, Model("other", (Bytes(200),)), Model("third", (Bytes(1),))),
    ],
)
@pytest.mark.parametrize("helpers", [2, 3, 5])
def test_every_report_of_a_document_has_the_same_size(declared, helpers):
    under = layout(*declared, helpers=helpers)
    made = [each for place in range(len(declared)) for each in to_train(under, [0, 1], place)]
    assert {len(each) for each in made} == {under.size}
    sizes = [under.part_size(place) - HEAD_BYTES for place in range(helpers)]
    assert under.size == len(under.prefix) + HEAD_BYTES + sum(sizes)
    assert sizes == [16 + payload.size + OVERHEAD for payload in under.payloads]


def test_every_report_of_a_measure_has_the_same_size():
    under = layout(MEASURE)
    cities: list[str | int] = ["", "é" * 32, "x", -(2**63) + 1]
    made = to_measure(under, [0, 1, -1, 2**63 - 1], cities, [0, 9, 1, 0])
    assert {len(each) for each in made} == {under.size}
    opened = [opener(under, 1).open(part.tobytes())[1] for part in under.parts(made, 1)]
    assert [each.keys for each in opened] == list(zip([0, 1, -1, 2**63 - 1], cities, strict=True))


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("helpers", [2, 3, 5])
def test_all_helpers_together_hold_the_secret_and_any_fewer_nothing(helpers, checked):
    under = layout(helpers=helpers, checked=checked)
    made = to_train(under, [5, -300])
    opened = [
        decrypt_parts(opener(under, place), under.parts(made, place).tobytes()) for place in range(helpers)
    ]
    records = [trained(each, "tag") for each in opened]
    masks = field.to_signed(sharing.combine([each.shares for each in records]))
    candidates = records[0].candidates[0]
    assert all((each.candidates[0] == candidates).all() for each in records)
    assert masks.sum(axis=1).tolist() == [1, 1]
    assert (masks * candidates).sum(axis=1).tolist() == [5, -300]
    without = sharing.combine([each.shares for each in records[1:]])
    assert (np.minimum(without, field.P - without) > 1 << 20).all()


def test_helpers_see_the_same_columns_and_different_secrets():
    under = layout()
    [made] = to_train(under, [5])
    (first, mine), (second, yours) = (
        opener(under, place).open(under.parts([made], place).tobytes()) for place in (0, 1)
    )
    assert first == second == under.head(made)
    assert (mine.model, mine.columns, mine.candidates) == (yours.model, yours.columns, yours.candidates)
    assert mine.secret != yours.secret
    assert mine.secret.hex() not in repr(mine)


def test_reports_of_the_same_record_share_nothing_but_their_prefix_and_keys():
    under = layout()
    one, two = to_train(under, [5]) + to_train(under, [5])
    assert one[: len(under.prefix)] == two[: len(under.prefix)] == under.prefix
    first, second = under.head(one), under.head(two)
    assert first.id != second.id
    assert first.column_hash != second.column_hash
    for place in (0, 1):
        mine, yours = (under.parts([each], place).tobytes()[HEAD_BYTES + 16 :] for each in (one, two))
        assert sum(a == b for a, b in zip(mine, yours, strict=True)) < len(mine) // 8


def test_a_prefix_comes_back():
    for purpose in Purpose:
        prefix = Prefix(purpose, b"d" * 32, "ads.example")
        assert report.decode_prefix(prefix.encode() + b"more") == prefix
        assert report.prefix_size(prefix.encode() + b"more") == len(prefix.encode())
    assert Prefix(Purpose.TRAIN, b"d" * 32, "a").encode() == b"\2\2" + b"d" * 32 + b"\1a"


def test_a_head_is_found_without_its_document():
    under = layout()
    for data in to_train(under, [1, 5]):
        assert report.decode_head(data) == under.head(data)
        end = len(under.prefix) + HEAD_BYTES
        assert report.decode_head(data[:end]) == under.head(data)
        with pytest.raises(Truncated):
            report.decode_head(data[: end - 1])


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", Truncated),
        (b"\2", Truncated),
        (b"\1\1" + bytes(32) + b"\1a", UnsupportedVersion),
        (b"\2\0" + bytes(32) + b"\1a", OutOfRange),
        (b"\2\3" + bytes(32) + b"\1a", OutOfRange),
        (b"\2\1" + bytes(31), Truncated),
        (b"\2\1" + bytes(32), Truncated),
        (b"\2\1" + bytes(32) + b"\0", WrongLength),
        (b"\2\1" + bytes(32) + b"\2a", Truncated),
        (b"\2\1" + bytes(32) + b"\xff" + b"a" * 255, WrongLength),
        (b"\2\1" + bytes(32) + b"\1\xff", WrongType),
    ],
)
def test_what_is_no_prefix_has_its_own_error(data, error):
    report.prefix_size(data)
    with pytest.raises(error) as raised:
        report.decode_prefix(data)
    assert type(raised.value) is error


def test_a_report_of_another_size_or_with_one_key_twice_is_refused():
    under = layout()
    [made] = to_train(under, [5])
    for data in (made[:-1], made + b"\0", b""):
        with pytest.raises(WrongLength, match="all have"):
            under.head(data)
    first = len(under.prefix) + HEAD_BYTES
    second = first + under.part_size(0) - HEAD_BYTES
    with pytest.raises(DuplicateKey, match="two shares"):
        under.head(made[:second] + made[first : first + 16] + made[second + 16 :])


def test_two_helpers_with_one_key_or_name_are_refused():
    under, (key, other) = layout(), (each.sealing for each in KEYS[:2])
    for changed, keys in ((under, (key, key)), (replace(under, helpers=("a", "a")), (key, other))):
        with pytest.raises(NotDeclared, match="two shares"):
            Envelope(changed, keys)
    with pytest.raises(NotDeclared, match="1 keys for 2 helpers"):
        Envelope(under, (key,))


def test_columns_secrets_and_hours_must_be_as_many():
    shown = np.zeros((1, columns.width(MODEL)), np.uint8)
    with pytest.raises(NotDeclared, match="differ in number"):
        batch.seal(envelope(layout()), 0, shown, np.zeros((2, 4), np.int64), [0], RNG)


def test_everything_public_is_bound():
    under, key_id = layout(), KEYS[0].key_id
    others = [
        (replace(under, origin="bds.example"), 0, key_id),
        (replace(under, parameters=b"e" * 32), 0, key_id),
        (replace(under, helpers=("h0", "h0")), 1, key_id),
        (replace(under, helpers=("h9", "h1")), 0, key_id),
        (replace(under, declared=(MEASURE,)), 0, key_id),
        (under, 0, KEYS[1].key_id),
        (under, 0, key_id),
    ]
    assert len({under.info(place, key) for under, place, key in others}) == len(others)
    assert under.info(0, key_id).endswith(under.prefix)


@pytest.mark.parametrize("declared", [MODEL, MEASURE])
@pytest.mark.parametrize("helpers", [2, 3])
def test_some_party_refuses_every_report_with_a_flipped_bit(declared, helpers):
    """The ad server looks at prefix, size and key ids; each helper opens its own part of the same report."""
    under = layout(declared, helpers=helpers)
    made = to_train(under, [5]) if declared is MODEL else to_measure(under, [1], ["Rome"], [9])
    [good] = made
    layouts = ReportLayouts(under.origin, list)
    layouts._by_prefix = {under.prefix: under}
    openers = [opener(under, place) for place in range(helpers)]

    def refusals(data: bytes) -> list[str]:
        try:
            found = layouts.find(data)
            if found is None:
                return ["later"]
            found.head(data)
        except (DecodeError, UploadRefused) as error:
            return [type(error).__name__]
        names = []
        for place, each in enumerate(openers):
            try:
                each.open(found.parts([data], place).tobytes())
            except (DecodeError, Refused) as error:
                names.append(type(error).__name__)
        return names

    assert refusals(good) == []
    for bit in range(8 * len(good)):
        changed = bytearray(good)
        changed[bit // 8] ^= 1 << bit % 8
        errors = refusals(bytes(changed))
        assert errors, f"bit {bit} can be flipped"
        if len(under.prefix) <= bit // 8 < len(under.prefix) + HEAD_BYTES:
            assert len(errors) == helpers, "the head is bound for every helper"


def test_terms_are_held_to_the_second_and_to_the_hour():
    # A report of hour h lives until h + 1 hours and its lifetime have passed, and comes some time before.
    end = (HOUR - 24) * 3600 + 3600 + TERMS.lifetime_s - TERMS.lifetime_s // 4
    replace(TERMS, now=end - 1).check(HOUR - 24)
    with pytest.raises(PastLifetime):
        replace(TERMS, now=end).check(HOUR - 24)
    TERMS.check(HOUR + 48)
    with pytest.raises(FromTheFuture):
        TERMS.check(HOUR + 49)
    month = Terms(30 * 86_400, HOUR * 3600)
    month.check(HOUR - 29 * 24)
    with pytest.raises(PastLifetime):
        month.check(HOUR - 29 * 24 - 1)


def test_the_verdict_of_a_part_is_its_error_by_name():
    verdicts = Verdicts(4)
    verdicts.refuse(2, PastLifetime)
    kept = verdicts.keep(np.array([0, 1]), np.array([False, True]), FromTheFuture)
    assert kept.tolist() == [1]
    assert [verdicts[part] for part in range(4)] == ["FromTheFuture", None, "PastLifetime", None]
    assert verdicts.accepted.tolist() == [False, True, False, True]
    assert verdicts.refused == {"PastLifetime": 1, "FromTheFuture": 1}
