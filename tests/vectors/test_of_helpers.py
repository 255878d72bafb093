"""The vectors in `vectors/v2` are what the generator makes, and the twins agree with every one of them."""

import hashlib
import hmac
import json

import pytest

from maskedlark.errors import MaskedLarkError
from maskedlark.functions import model, weights
from maskedlark.release import check_messages, shared_seed
from maskedlark.wire.hpke import OpeningKey
from tests.twins import batches, exact, zero_sum
from tests.unit.exact.cases import twin_network
from vectors import SECOND, documents, load, of_helpers
from vectors.good import NOW

DOCUMENTS = documents.documents()


@pytest.mark.parametrize("name", of_helpers.FILES)
def test_the_stored_vectors_are_the_generated_ones(name):
    assert (SECOND / f"{name}.json").read_text() == of_helpers.text(name)


def of_kind(kind):
    return [each for each in load("batches", SECOND) if each["kind"] == kind]


@pytest.mark.parametrize("vector", [each for each in of_kind("poisson") if each["records"] <= 400])
def test_poisson_batches(vector):
    seed, tag, slot = bytes.fromhex(vector["seed"]), vector["tag"], vector["slot"]
    found = batches.poisson(seed, tag, slot, vector["rate"], vector["records"])
    assert found == (vector["batch"], vector["rows"])
    assert batches.room(vector["rate"], vector["records"]) == vector["room"]


@pytest.mark.parametrize("vector", of_kind("held out"))
def test_held_out(vector):
    seed, records = bytes.fromhex(vector["seed"]), vector["records"]
    given = seed, vector["tag"], vector["share"], records
    assert [each for each in range(records) if batches.is_held_out(*given, each)] == vector["rows"]


@pytest.mark.parametrize("vector", of_kind("partition"))
def test_partitions(vector):
    seed, count = bytes.fromhex(vector["seed"]), len(vector["batches"])
    for number, rows in enumerate(vector["batches"]):
        for row in rows:
            given = seed, vector["tag"], vector["slot"], count, vector["records"], row
            assert batches.place(*given) == number
    rows = [row for batch in vector["batches"] for row in batch]
    assert sorted(rows) == list(range(vector["records"]))


@pytest.mark.parametrize("vector", load("answer-masks", SECOND))
def test_masks_on_answers(vector):
    seeds = [bytes.fromhex(each) for each in vector["seeds"]]
    bound = [
        bytes.fromhex(part) if isinstance(part, str) else [bytes.fromhex(each) for each in part]
        for part in vector["bound"]
    ]
    key = zero_sum.key(seeds, *bound)
    assert key.hex() == vector["key"]
    answers = [[int(number) for number in each] for each in vector["answers"]]
    for place, (answer, masked) in enumerate(zip(answers, vector["masked"], strict=True)):
        assert [str(each) for each in zero_sum.masked(answer, key, place, len(answers))] == masked
    totals = [sum(map(int, column)) % zero_sum.P for column in zip(*vector["masked"], strict=True)]
    assert totals == [sum(column) % zero_sum.P for column in zip(*answers, strict=True)]


@pytest.mark.parametrize("vector", load("moments", SECOND))
def test_moments(vector):
    network = model.decode(vector["model"]).network
    net = twin_network(network, weights.decode(network, bytes.fromhex(vector["weights"])))
    bound = {"r": vector["clip"], "norm": vector["norm"], "fraction": vector["model"]["fraction"]}
    features = [list(bytes.fromhex(row)) for row in vector["features"]]
    rows = [exact.represented(net, bound, row) for row in features]
    assert rows == list(zip(vector["numbers"], vector["factors"], strict=True))
    totals = []
    for label, shown in enumerate(vector["candidates"]):
        first = sum(len(each[0]) for each in vector["candidates"][:label])
        for shares, answer in zip(vector["shares"], vector["answers"], strict=True):
            records = [
                {
                    "features": row,
                    "candidates": {label: own},
                    "masks": {label: list(map(int, masks[first : first + len(own)]))},
                }
                for row, own, masks in zip(features, shown, shares, strict=True)
            ]
            assert list(map(str, exact.moments(net, bound, records, label))) == answer[label]
        columns = zip(*(answer[label] for answer in vector["answers"]), strict=True)
        sums = [sum(map(int, column)) % exact.P for column in columns]
        totals.append([str(each - exact.P if each > exact.P // 2 else each) for each in sums])
    assert totals == vector["sums"]


def test_moments_of_all_shapes_are_among_the_vectors():
    made = load("moments", SECOND)
    assert {len(each["shares"]) for each in made} == {2, 3}
    assert {each["norm"] for each in made} == {"l1", "l2"}
    factors = [(each["model"]["fraction"], factor) for each in made for factor in each["factors"]]
    assert {True, False} == {factor == 1 << fraction for fraction, factor in factors}


@pytest.mark.parametrize("vector", load("cells", SECOND))
def test_cells(vector):
    net = None
    if vector["model"] is not None:
        network = model.decode(vector["model"]).network
        net = twin_network(network, weights.decode(network, bytes.fromhex(vector["weights"])))
    features = [list(bytes.fromhex(row)) for row in vector["features"]]
    widths = [len(shown[0]) for shown in vector["candidates"]]
    for number, (table, found) in enumerate(zip(vector["tables"], vector["cells"], strict=True)):
        assert [exact.cell(net, table["cells"], row) for row in features] == found
        label = table["label"]
        first = sum(widths[:label])
        for shares, answer in zip(vector["shares"], vector["answers"], strict=True):
            records = [
                {
                    "features": row,
                    "candidates": {label: own},
                    "masks": {label: list(map(int, masks[first : first + len(own)]))},
                }
                for row, own, masks in zip(features, vector["candidates"][label], shares, strict=True)
            ]
            counted, _ = exact.cells(
                net, table["cells"], records, label, vector["spaces"][label], table["ones"]
            )
            assert [str(each) for row in counted for each in row] == answer[number]
        columns = zip(*(answer[number] for answer in vector["answers"]), strict=True)
        assert [str(sum(map(int, column)) % exact.P) for column in columns] == vector["sums"][number]
        counts = list(map(int, vector["sums"][number]))
        assert min(counts) >= 0
        assert table["ones"] or sum(counts) == len(features) - 1, "one is a fake"


def test_cells_of_all_kinds_are_among_the_vectors():
    made = load("cells", SECOND)
    tables = [table for each in made for table in each["tables"]]
    assert {table["cells"]["kind"] for table in tables} == {"largest", "buckets", "hash"}
    assert {table["ones"] for table in tables} == {True, False}
    assert {len(each["shares"]) for each in made} == {2, 3}


def framed(*parts):
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


@pytest.mark.parametrize("vector", load("check-keys", SECOND))
def test_check_keys(vector):
    """What a helper opens, bound to the document and its own name and key; and what it refuses."""
    document, message = DOCUMENTS[vector["document"]], vector["message"].encode()
    key, name = OpeningKey(bytes.fromhex(vector["secret_key"])), document.helpers[vector["place"]].name
    arguments = message, document, None, name, {key.key_id: key}
    if vector["error"]:
        with pytest.raises(MaskedLarkError) as caught:
            shared_seed.unseal(*arguments)
        assert type(caught.value).__name__ == vector["error"]
        return
    assert shared_seed.unseal(*arguments).hex() == vector["check_key"]
    sealed = json.loads(json.loads(message)["message"])
    assert (sealed["dataset"], sealed["helper"]) == (None, document.helpers[0].name)
    assert list(sealed["sealed"]) == sorted(each.name for each in document.helpers)
    own = sealed["sealed"][name]
    parts = document.origin.encode(), document.digest, b"", name.encode(), bytes.fromhex(own["key"])
    opened = key.open(bytes.fromhex(own["seed"]), framed(b"maskedlark v2 check key", *parts))
    bound = framed(b"maskedlark v2 check key", document.origin.encode(), document.digest)
    secret = documents.identity(document.helpers[0].name).derive("maskedlark v2 check secret")
    assert opened.hex() == vector["check_key"] == hmac.digest(secret, bound, "sha256").hex()


def good_messages(name):
    return [each for each in load("check-messages", SECOND) if each["document"] == name and not each["error"]]


@pytest.mark.parametrize("name", ["two helpers, checked", "three helpers, checked"])
def test_check_messages(name):
    """Key, body and verdict by plain Python; the signature by the package."""
    document, messages = DOCUMENTS[name], good_messages(name)
    origin, total = document.origin.encode(), []
    for place, vector in enumerate(messages):
        bound = framed(b"maskedlark v2 check key", origin, document.digest)
        key = hmac.digest(bytes.fromhex(vector["check_secret"]), bound, "sha256")
        assert (vector["place"], vector["check_key"]) == (place, key.hex())
        assert vector["key_digest"] == hashlib.sha256(key).hexdigest()
        message = bytes.fromhex(vector["message"])
        body = message[5 : 5 + int.from_bytes(message[1:5], "big")]
        head = bytes([2, place]) + NOW.to_bytes(8, "big") + bytes([len(origin)]) + origin
        head += document.digest + hashlib.sha256(key).digest()
        rows = [
            bytes.fromhex(name) + b"".join(int(number).to_bytes(8, "little") for number in numbers)
            for name, numbers in zip(vector["ids"], vector["numbers"], strict=True)
        ]
        assert body == head + b"".join(rows)
        found = check_messages.verify(message, document, place, hashlib.sha256(key).digest())
        assert found.encode() == body
        total.append([[int(number) for number in numbers] for numbers in vector["numbers"]])
    sums = [[sum(column) for column in zip(*rows, strict=True)] for rows in zip(*total, strict=True)]
    assert [(f * (f - 1) - g) % (2**61 - 1) == 0 for f, g in sums] == messages[0]["valid"]


@pytest.mark.parametrize("vector", [each for each in load("check-messages", SECOND) if each["error"]])
def test_bad_check_messages(vector):
    with pytest.raises(MaskedLarkError) as caught:
        check_messages.verify(
            bytes.fromhex(vector["message"]),
            DOCUMENTS[vector["document"]],
            vector["place"],
            bytes.fromhex(vector["key_digest"]),
        )
    assert type(caught.value).__name__ == vector["error"]
