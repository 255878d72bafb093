"""Check messages of helpers: whoever alters, swaps or replays them, the verdict is of honest numbers."""

from dataclasses import replace

import numpy as np
import pytest

from maskedlark.core import validity
from maskedlark.core.field import P
from maskedlark.errors import MaskedLarkError
from maskedlark.randomness import FixedRandomness
from maskedlark.release import check_messages
from maskedlark.release.errors import BadChecks
from maskedlark.web import problem
from maskedlark.wire.checks import Checks, SignedChecks
from tests.unit.ledger.ledgers import NOW, Signs
from tests.unit.parameters import cases

NAMED = [
    {"name": f"helper-{i}", "identity": key.verifying.public.hex()} for i, key in enumerate(cases.HELPER_KEYS)
]
THREE = cases.make(checks="bits", helpers=NAMED)
KEY_DIGEST = b"k" * 32
COUNT = 40


def published(seed=b"numbers", helpers=3, invalid=()):
    """What every helper publishes of the same reports: of some, numbers that prove nothing."""
    rng = FixedRandomness(seed)
    ids = np.frombuffer(rng.bytes(16 * COUNT), np.uint8).reshape(COUNT, 16)
    shares = [np.stack([rng.below(P, COUNT) for _ in range(2)], axis=1) for _ in range(helpers)]
    f = [sum(int(each[row, 0]) for each in shares) for row in range(COUNT)]
    g = [number * (number - 1) + (row in invalid) for row, number in enumerate(f)]
    others = [sum(int(each[row, 1]) for each in shares[1:]) for row in range(COUNT)]
    shares[0][:, 1] = [(own - rest) % P for own, rest in zip(g, others, strict=True)]
    return [
        Checks(place, NOW, THREE.origin, THREE.digest, KEY_DIGEST, ids, own)
        for place, own in enumerate(shares)
    ]


def signed(checks, place=None):
    return check_messages.sign(checks, Signs(checks.place if place is None else place).current(NOW))


def verified(message, place=1, document=THREE, key_digest=KEY_DIGEST):
    return check_messages.verify(message, document, place, key_digest)


def refused(message, match, **where):
    with pytest.raises(BadChecks, match=match) as caught:
        verified(message, **where)
    assert problem.of(caught.value).status == 403


def test_all_helpers_find_the_same_whatever_their_order():
    all_of_them = published(invalid=[3, 17])
    order = np.random.default_rng(1).permutation(COUNT)
    mixed = replace(all_of_them[1], ids=all_of_them[1].ids[order], numbers=all_of_them[1].numbers[order])
    for own in range(3):
        others = [mixed if each.place == 1 != own else each for each in all_of_them if each.place != own]
        verdict = check_messages.verdict(all_of_them[own], others)
        assert np.flatnonzero(verdict.invalid).tolist() == [3, 17]
        assert np.flatnonzero(~verdict.valid).tolist() == [3, 17]


def test_what_a_helper_has_no_numbers_of_is_neither_valid_nor_not():
    first, second, third = published(invalid=[3])
    second = replace(second, ids=second.ids[5:], numbers=second.numbers[5:])
    third = replace(third, ids=third.ids[:-4], numbers=third.numbers[:-4])
    verdict = check_messages.verdict(first, [second, third])
    assert np.flatnonzero(verdict.valid).tolist() == list(range(5, COUNT - 4))
    assert not verdict.invalid.any()
    nothing = replace(third, ids=third.ids[:0], numbers=third.numbers[:0])
    verdict = check_messages.verdict(first, [second, nothing])
    assert not (verdict.valid | verdict.invalid).any()


@pytest.mark.parametrize("column", [0, 1])
def test_a_helper_that_adds_one_to_a_number_makes_that_report_fail(column):
    first, second, third = published()
    second.numbers[7, column] = (second.numbers[7, column] + 1) % P
    verdict = check_messages.verdict(first, [verified(signed(second)), third])
    assert np.flatnonzero(verdict.invalid).tolist() == [7]


def test_numbers_of_other_reports_do_not_stand_for_these():
    first, second, third = published()
    moved = replace(second, numbers=np.roll(second.numbers, 1, axis=0))
    assert not check_messages.verdict(first, [moved, third]).valid.any()
    another = replace(published(b"other reports")[1], ids=second.ids)
    assert not check_messages.verdict(first, [another, third]).valid.any()


def test_a_signed_message_is_verified_by_all():
    message = signed(published()[1])
    found = verified(message)
    assert np.array_equal(found.numbers, published()[1].numbers)
    assert np.array_equal(verified(message, key_digest=None).ids, found.ids), "the ad server knows no key"


def test_every_byte_counts():
    message = signed(published()[1])
    for place in range(5, len(message), 37):
        changed = bytearray(message)
        changed[place] ^= 1
        with pytest.raises(MaskedLarkError) as caught:
            verified(bytes(changed))
        assert problem.of(caught.value).status in (400, 403)


def test_the_ad_server_cannot_alter_a_number():
    checks = published()[1]
    message = SignedChecks.decode(signed(checks))
    checks.numbers[0, 0] = 0
    refused(replace(message, body=checks.encode()).encode(), "not signed by helper-1")


def test_a_message_counts_for_the_place_of_its_helper_alone():
    refused(signed(published()[2]), "not signed by helper-1")
    refused(signed(published()[2], place=1), "another document, or another place")


@pytest.mark.parametrize(
    "change", [{"origin": "other.example"}, {"parameters": b"q" * 32}, {"place": 2}], ids=str
)
def test_a_message_of_another_document_or_place_is_refused(change):
    refused(signed(replace(published()[1], **change), place=1), "another document, or another place")


def test_two_helpers_with_two_keys_notice_it():
    refused(signed(replace(published()[1], key_digest=b"m" * 32)), "another key .* new document")


@pytest.mark.parametrize("time", [NOW - 1001, NOW + 31_536_000])
def test_a_key_outside_its_time_signs_no_message(time):
    refused(signed(replace(published()[1], time=time)), "outside its time")


def test_a_receipt_or_a_seed_is_no_check_message():
    checks, (key, certificate) = published()[1], Signs(1).current(NOW)
    for label in ("maskedlark v2 receipt", "maskedlark v2 shared seed", "maskedlark v2 check key"):
        body = checks.encode()
        signature = key.sign(label, body)
        message = SignedChecks(body, signature, certificate.certificate, bytes.fromhex(certificate.signature))
        refused(message.encode(), "not signed by helper-1")


def test_the_verdict_is_that_of_the_mathematics():
    checks = published(invalid=[0, 39])
    assert np.array_equal(
        check_messages.verdict(checks[0], checks[1:]).valid, validity.valid([each.numbers for each in checks])
    )
