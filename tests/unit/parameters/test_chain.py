"""A signed document stands as it was signed, in its one place: every change to it is refused."""

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import rfc8785

from maskedlark.errors import BadSignature, BrokenChain, InvalidDocument, RolledBack, WeakKey
from maskedlark.parameters import chain, document
from maskedlark.parameters.chain import Signed
from tests.unit.parameters.cases import DOCUMENT_KEY, HELPER_KEYS, REQUEST_KEY, SERVICE_KEY, make

PINNED, SERVICE, STRANGER = DOCUMENT_KEY.verifying, SERVICE_KEY.verifying, HELPER_KEYS[2]
FIRST = make()
PUBLISHED = chain.countersign(chain.sign(FIRST, DOCUMENT_KEY), SERVICE_KEY)
Place = tuple[str | int, ...]


def leaves(item: Any, place: Place = ()) -> Iterator[Place]:
    children = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else None
    if children is None:
        yield place
    else:
        for name, child in children:
            yield from leaves(child, (*place, name))


def branches(item: Any, place: Place = ()) -> Iterator[Place]:
    if isinstance(item, dict | list):
        yield place
        for name, child in item.items() if isinstance(item, dict) else enumerate(item):
            yield from branches(child, (*place, name))


def at(item: Any, place: Place) -> Any:
    for name in place:
        item = item[name]
    return item


def other(value: Any) -> Any:
    """A value of the same type, as near as can be."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value[:-1] + ("1" if value[-1:] != "1" else "2")
        case _:
            return 1


BODY = json.loads(PUBLISHED.body)


def tampered() -> Iterator[tuple[str, Any]]:
    for place in leaves(BODY):
        changed = deepcopy(BODY)
        at(changed, place[:-1])[place[-1]] = other(at(BODY, place))
        yield f"change {place}", changed
        removed = deepcopy(BODY)
        del at(removed, place[:-1])[place[-1]]
        yield f"remove {place}", removed
    for place in branches(BODY):
        added = deepcopy(BODY)
        branch = at(added, place)
        branch.update(extra=1) if isinstance(branch, dict) else branch.append(1)
        yield f"add to {place}", added
        if place:
            removed = deepcopy(BODY)
            del at(removed, place[:-1])[place[-1]]
            yield f"remove {place}", removed


TAMPERED = dict(tampered())


def test_the_walk_reaches_every_setting():
    assert {place[0] for place in leaves(BODY)} >= BODY.keys() - {"decoys"}
    assert len(TAMPERED) > 150


@pytest.mark.parametrize("deed", TAMPERED)
def test_a_tampered_document_is_refused(deed):
    """By its origin's signature, and by the service's."""
    body = rfc8785.dumps(TAMPERED[deed])
    assert body != PUBLISHED.body
    forged = replace(PUBLISHED, body=body)
    with pytest.raises(BadSignature, match="parameter document"):
        forged.open(PINNED)
    with pytest.raises(BadSignature, match="published document"):
        forged.published(SERVICE)
    with pytest.raises(BadSignature):
        chain.verify([forged], "ads.example", PINNED, SERVICE)


@pytest.mark.parametrize("field", ["origin_signature", "service_signature"])
def test_every_bit_of_a_signature_counts(field):
    good = getattr(PUBLISHED, field)
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadSignature):
            chain.verify([replace(PUBLISHED, **{field: bytes(bad)})], "ads.example", PINNED, SERVICE)


def test_an_envelope_comes_back_and_no_other_does():
    assert chain.decode(PUBLISHED.encode()) == PUBLISHED
    good = json.loads(PUBLISHED.encode())
    bad = [{**good, "extra": 1}, {**good, "document": 1}, {**good, "origin_signature": "00"}]
    bad += [{**good, "origin_signature": None}, {**good, "service_signature": "zz" * 64}]
    bad += [{name: good[name] for name in good if name != lacking} for lacking in good]
    wrong: list[Any] = [*bad, [], "x", None]
    for each in wrong:
        with pytest.raises(InvalidDocument):
            chain.decode(json.dumps(each).encode())
    with pytest.raises(InvalidDocument):
        chain.decode(b"{")


def test_one_party_s_signature_is_not_another_s():
    swapped = Signed(PUBLISHED.body, PUBLISHED.service_signature or b"", PUBLISHED.origin_signature)
    with pytest.raises(BadSignature):
        chain.verify([swapped], "ads.example", PINNED, SERVICE)
    with pytest.raises(BadSignature):
        chain.verify(
            [chain.countersign(chain.sign(FIRST, STRANGER), SERVICE_KEY)], "ads.example", PINNED, SERVICE
        )
    with pytest.raises(BadSignature):
        chain.verify(
            [chain.countersign(chain.sign(FIRST, DOCUMENT_KEY), STRANGER)], "ads.example", PINNED, SERVICE
        )
    with pytest.raises(BadSignature, match="not countersigned"):
        chain.verify([chain.sign(FIRST, DOCUMENT_KEY)], "ads.example", PINNED, SERVICE)


def test_a_chain_changes_its_key_by_declaring_another():
    new = STRANGER
    second = make(version=2, previous=FIRST.digest.hex(), document_key=new.verifying.public.hex())
    third = make(version=3, previous=second.digest.hex(), document_key=new.verifying.public.hex())
    signed = [chain.sign(second, DOCUMENT_KEY), chain.sign(third, new)]
    good = [PUBLISHED, *(chain.countersign(each, SERVICE_KEY) for each in signed)]
    assert chain.verify(good, "ads.example", PINNED, SERVICE) == [FIRST, second, third]
    with pytest.raises(BadSignature):
        chain.follow(chain.sign(third, DOCUMENT_KEY), second, PINNED)


def by_a_thief(drafted):
    """Signed with the request key, and countersigned."""
    stolen = Signed(drafted.encode(), REQUEST_KEY.sign(chain.ORIGIN_LABEL, drafted.encode()))
    return chain.countersign(stolen, SERVICE_KEY)


@pytest.mark.parametrize("taken", ["document_key", "request_key"])
def test_the_request_key_signs_no_document(taken):
    """Whatever the thief declares: to keep the chain, or to keep on asking."""
    second = make(version=2, previous=FIRST.digest.hex(), **{taken: STRANGER.verifying.public.hex()})
    with pytest.raises(BadSignature):
        chain.verify([PUBLISHED, by_a_thief(second)], "ads.example", PINNED, SERVICE)
    with pytest.raises(BadSignature):
        chain.verify([by_a_thief(FIRST)], "ads.example", PINNED, SERVICE)


def test_a_key_that_signs_requests_signs_nothing_else_even_if_it_was_pinned():
    first = make(document_key=STRANGER.verifying.public.hex())
    with pytest.raises(BadSignature, match=r"this is the request key, .* sign with the document key"):
        chain.verify([by_a_thief(first)], "ads.example", REQUEST_KEY.verifying, SERVICE)
    with pytest.raises(BadSignature, match=r"this is the request key, .* sign with the document key"):
        chain.sign(first, REQUEST_KEY)


def test_a_document_changes_the_request_key():
    second = follow(request_key=STRANGER.verifying.public.hex())
    assert second.document_key == FIRST.document_key
    assert second.request_key == STRANGER.verifying.public.hex()


def test_a_document_of_format_1_says_what_to_do():
    old = {name: value for name, value in BODY.items() if name not in ("document_key", "request_key")}
    body = rfc8785.dumps(old | {"format": 1, "signing_key": PINNED.public.hex()})
    signature = DOCUMENT_KEY.sign("maskedlark v1 parameter document", body)
    both = SERVICE_KEY.sign("maskedlark v1 published document", body + signature)
    for use, found in ((chain.decode, Signed(body, signature, both).encode()), (document.parse, body)):
        with pytest.raises(InvalidDocument, match="format 1 is no longer accepted: begin a new chain"):
            use(found)


def follow(**changes):
    changed = make(**{"version": 2, "previous": FIRST.digest.hex(), **changes})
    return chain.follow(chain.sign(changed, DOCUMENT_KEY), FIRST, PINNED)


def test_what_does_not_follow_is_refused():
    assert follow().version == 2
    with pytest.raises(RolledBack, match="published already"):
        follow(version=1, previous=None)
    with pytest.raises(BrokenChain, match="does not follow"):
        follow(version=3)
    with pytest.raises(BrokenChain, match="does not follow"):
        follow(previous="00" * 32)
    with pytest.raises(BrokenChain, match="in the chain of"):
        follow(origin="other.example")
    with pytest.raises(BrokenChain, match="is version 1"):
        chain.follow(chain.sign(make(version=2, previous="00" * 32), DOCUMENT_KEY), None, PINNED)


def test_order_repetition_and_gaps_break_a_chain():
    second = make(version=2, previous=FIRST.digest.hex())
    follower = chain.countersign(chain.sign(second, DOCUMENT_KEY), SERVICE_KEY)
    for wrong in (
        [follower],
        [follower, PUBLISHED],
        [PUBLISHED, PUBLISHED],
        [PUBLISHED, follower, PUBLISHED],
    ):
        with pytest.raises(BrokenChain):
            chain.verify(wrong, "ads.example", PINNED, SERVICE)


def test_nothing_follows_a_document_that_declares_a_weak_key():
    with pytest.raises((WeakKey, InvalidDocument)):
        chain.follow(PUBLISHED, make(document_key="01" + "00" * 31), PINNED)


def test_names_are_read_from_the_text_alone():
    assert PUBLISHED.names() == (FIRST.origin, 1)
    assert replace(PUBLISHED, body=b'{"origin":"a.example","version":7,"k":null}').names() == ("a.example", 7)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"origin":"a.example"}',
        b'{"origin":"a.example","version":"1"}',
        b'{"origin":"a.example","version":true}',
        b'{"origin":"a.example","version":1.0}',
        b'{"origin":"a.example","version":0}',
        b'{"origin":"a.example","version":' + b"9" * 5000 + b"}",
        b'{"origin":7,"version":1}',
        b'{"origin":"A\\n","version":1}',
        b'{"origin":"' + b"a" * 100_000 + b'","version":1}',
    ],
)
def test_names_of_nothing_are_refused(body):
    with pytest.raises(InvalidDocument):
        replace(PUBLISHED, body=body).names()
