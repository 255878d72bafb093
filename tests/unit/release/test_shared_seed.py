"""The seed that helpers share: it opens for whom it is, and every tampering is refused."""

import json

import pytest

from maskedlark.ledger.receipt import Certificate, certify
from maskedlark.randomness import FixedRandomness
from maskedlark.release import shared_seed
from maskedlark.release.errors import BadSeed
from maskedlark.release.shared_seed import SeedMessage, SignedSeed
from maskedlark.web import problem
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.signatures import SigningKey
from tests.unit.ledger.ledgers import NOW, Signs
from tests.unit.parameters import cases

SEED, DATASET, ELSEWHERE = b"s" * 32, b"d" * 32, b"e" * 32
NAMED = [
    {"name": f"helper-{i}", "identity": key.verifying.public.hex()} for i, key in enumerate(cases.HELPER_KEYS)
]
TWO, THREE = cases.make(), cases.make(helpers=NAMED)
KEYS = {f"helper-{i}": OpeningKey.generate(FixedRandomness(b"opening %d" % i)) for i in range(3)}
FIRST = Signs(0)


def made(document=THREE, dataset=DATASET, seed=SEED, signer=None, now=NOW, recipients=None):
    names = [each.name for each in document.helpers]
    sealing = {name: KEYS[name].sealing for name in recipients or names}
    return shared_seed.make(seed, document, dataset, sealing, signer or FIRST.current(now), now)


def opened(data, document=THREE, dataset=DATASET, helper="helper-1", keys=None):
    own = keys or {KEYS[helper].key_id: KEYS[helper]}
    return shared_seed.unseal(data, document, dataset, helper, own)


def signed_again(message, signs=FIRST):
    """A message that the first helper did sign, whatever stands in it."""
    body = message if isinstance(message, bytes) else message.encode()
    signature = signs.key.sign(shared_seed.LABEL, body).hex()
    return SignedSeed(message=body.decode(), signature=signature, certificate=signs.certificate).encode()


def said(data):
    return SeedMessage.model_validate_json(SignedSeed.model_validate_json(data).message)


@pytest.mark.parametrize("document", [TWO, THREE])
def test_every_helper_opens_the_seed(document):
    data = made(document).encode()
    for helper in document.helpers:
        assert opened(data, document, helper=helper.name) == SEED


def test_the_seed_is_not_in_the_message():
    assert SEED.hex() not in made().encode().decode()
    one, other = made().encode(), made(seed=b"t" * 32).encode()
    assert len(one) == len(other)


def test_an_old_opening_key_still_opens_beside_new_ones():
    new = OpeningKey.generate(FixedRandomness(b"rotated"))
    keys = {each.key_id: each for each in (new, KEYS["helper-1"])}
    assert opened(made().encode(), keys=keys) == SEED


def refused(data, match, **where):
    with pytest.raises(BadSeed, match=match) as caught:
        opened(data, **where)
    # What is refused crosses HTTP as a problem that its sender can act on, not as a mistake of ours.
    assert problem.of(caught.value).status == 403
    assert SEED.hex() not in str(caught.value)


def test_the_seed_of_another_dataset_is_refused():
    refused(made(dataset=ELSEWHERE).encode(), "another dataset")


def test_the_seed_of_another_document_is_refused():
    refused(made(cases.make(helpers=NAMED, k=51)).encode(), "another dataset")


def test_the_seed_of_another_origin_is_refused():
    refused(made(cases.make(helpers=NAMED, origin="other.example")).encode(), "another dataset")


def test_another_helpers_part_does_not_open():
    message = said(made().encode())
    parts = {**message.sealed, "helper-1": message.sealed["helper-2"], "helper-2": message.sealed["helper-1"]}
    refused(signed_again(message.model_copy(update={"sealed": parts})), "key that is gone")
    both = {key.key_id: key for key in KEYS.values()}
    refused(signed_again(message.model_copy(update={"sealed": parts})), "does not open", keys=both)


def test_a_part_of_another_dataset_does_not_open_under_this_ones_name():
    message = said(made(dataset=ELSEWHERE).encode())
    refused(signed_again(message.model_copy(update={"dataset": DATASET.hex()})), "does not open")


@pytest.mark.parametrize("names", [["helper-0", "helper-1"], ["helper-1", "helper-2"]])
def test_a_seed_that_is_not_for_exactly_all_helpers_is_refused(names):
    refused(made(recipients=names).encode(), "not for all helpers")


def test_a_seed_for_one_helper_more_is_refused():
    refused(made(recipients=[*KEYS]).encode(), "another dataset", document=TWO)
    message = said(made(TWO).encode())
    more = message.model_copy(update={"sealed": {**message.sealed, "helper-2": message.sealed["helper-1"]}})
    refused(signed_again(more), "not for all helpers", document=TWO)


def test_a_replaced_part_breaks_the_signature():
    data = made().encode()
    part = said(data).sealed["helper-1"].seed
    other = said(made().encode()).sealed["helper-1"].seed
    refused(data.replace(part.encode(), other.encode()), "not signed by helper-0")


def test_every_byte_of_the_message_counts():
    signed = made()
    for place in range(0, len(signed.message), 31):
        letter = "0" if signed.message[place] != "0" else "1"
        changed = signed.message[:place] + letter + signed.message[place + 1 :]
        refused(signed.model_copy(update={"message": changed}).encode(), "not signed by helper-0")


def test_another_key_under_the_first_helpers_certificate_is_refused():
    signature = SigningKey(bytes(32)).sign(shared_seed.LABEL, made().message.encode()).hex()
    refused(made().model_copy(update={"signature": signature}).encode(), "not signed by helper-0")


def test_a_signature_over_something_else_is_refused():
    signed = made()
    signature = FIRST.key.sign("maskedlark v2 receipt", signed.message.encode()).hex()
    refused(signed.model_copy(update={"signature": signature}).encode(), "not signed by helper-0")


def test_another_helpers_certificate_is_refused():
    refused(made(signer=Signs(1).current(NOW)).encode(), "not signed by helper-0: .*receipt key")


def test_a_certificate_that_another_identity_signed_is_refused():
    certificate = Certificate(
        helper="helper-0", key=FIRST.key.verifying.public.hex(), not_before=0, not_after=1 << 40
    )
    forged = certify(certificate, cases.HELPER_KEYS[1])
    refused(made(signer=(FIRST.key, forged)).encode(), "not signed by helper-0: .*receipt key")


@pytest.mark.parametrize("now", [NOW - 1001, NOW + 31_536_000])
def test_a_key_outside_its_time_signs_no_seed(now):
    refused(made(now=now).encode(), "outside its time")


def test_the_last_and_first_moment_of_a_key_are_its_own():
    for now in (NOW - 1000, NOW + 31_535_999):
        assert opened(made(now=now).encode()) == SEED


def test_the_maker_is_the_documents_first_helper():
    message = said(made().encode())
    refused(signed_again(message.model_copy(update={"helper": "helper-1"})), "not helper-0's")


def test_a_key_that_is_gone_is_said():
    other = OpeningKey.generate(FixedRandomness(b"another"))
    refused(made().encode(), "key that is gone", keys={other.key_id: other})


def test_a_message_has_one_form():
    data = made().encode()
    refused(data + b" ", "one form")
    refused(json.dumps(json.loads(data), indent=1).encode(), "one form")
    body = SignedSeed.model_validate_json(data).message
    refused(signed_again(json.dumps(json.loads(body), indent=1).encode()), "one form")


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"message": 1}'])
def test_anything_else_is_no_seed(data):
    refused(data, "no signed seed")


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"format":2}'])
def test_what_the_first_helper_signs_must_be_a_seed(body):
    refused(signed_again(body), "no seed")
