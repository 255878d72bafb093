"""The vectors in `vectors/v1` are what the generator makes, and the package agrees with every one of them."""

import numpy as np
import pytest

from maskedlark import errors
from maskedlark.core import field, sharing
from maskedlark.core.candidates import ALL, Pair, Sample
from maskedlark.core.declared import Model
from maskedlark.core.labels import LabelSpace
from maskedlark.core.purpose import Purpose
from maskedlark.randomness import Randomness
from maskedlark.wire import columns, keys, payload, report
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.report import Opener
from maskedlark.wire.signatures import VerifyingKey
from tests.twins import sharing as twin
from vectors import FOLDER, generate, load


class Replayed(Randomness):
    """Gives out the bytes that a vector says were drawn."""

    def __init__(self, drawn: bytes) -> None:
        self.left = drawn

    def bytes(self, count: int) -> bytes:
        drawn, self.left = self.left[:count], self.left[count:]
        assert len(drawn) == count
        return drawn


@pytest.mark.parametrize("name", generate.FILES)
def test_the_stored_vectors_are_the_generated_ones(name):
    assert (FOLDER / f"{name}.json").read_text() == generate.text(name)


@pytest.mark.parametrize("vector", load("shares"))
def test_shares(vector):
    ids = sharing.byte_rows(bytes.fromhex(vector["report_id"]), 16)
    carried = [bytes.fromhex(data) for data in vector["carried"]]
    purpose = Purpose(vector["purpose"])
    for helper, (data, expected) in enumerate(zip(carried, vector["shares"], strict=True)):
        share = sharing.recover([data], ids, purpose, helper, 5)
        assert [str(number) for number in share[0]] == expected
    secret = [int(number) for number in vector["secret"]]
    totals = [sum(map(int, column)) % field.P for column in zip(*vector["shares"], strict=True)]
    assert totals == secret
    assert [str(x) for x in twin.explicit(secret, carried[1:], ids.tobytes(), purpose.value)] == vector[
        "shares"
    ][0]


@pytest.mark.parametrize("vector", load("quantisation"))
def test_quantisation(vector):
    space = LabelSpace.reals(vector["low"], vector["high"], vector["buckets"])
    assert list(space.values) == vector["space"]
    rng = Replayed(bytes.fromhex(vector["drawn"]))
    assert space.quantise([vector["label"]], rng).tolist() == [vector["quantised"]]
    assert rng.left == b""


@pytest.mark.parametrize("vector", load("masks"))
def test_masks(vector):
    policy = {"all": ALL, "pair": Pair(), "sample of 3": Sample(3)}[vector["policy"]]
    model = Model("tag", (), (LabelSpace(tuple(vector["space"])),), policy)
    rng = Replayed(bytes.fromhex(vector["drawn"]))
    shown, secret = model.mask([[vector["label"] or 0]], np.array([vector["label"] is not None]), rng)
    assert shown[0][0].tolist() == vector["candidates"]
    assert secret[0].tolist() == vector["secret"]
    assert rng.left == b""


@pytest.mark.parametrize("vector", load("payloads"))
def test_payloads(vector):
    purpose, digest = Purpose(vector["purpose"]), bytes.fromhex(vector["column_hash"])
    encoded, salt = bytes.fromhex(vector["columns"]), bytes.fromhex(vector["salt"])
    assert columns.decode(encoded, purpose).encode() == encoded
    assert columns.digest(encoded, salt, purpose) == digest
    for place, (padded, secret) in enumerate(zip(vector["payloads"], vector["secrets"], strict=True)):
        assert len(padded) == 2 * vector["size"]
        found = payload.decode(payload.unpad(bytes.fromhex(padded)), purpose, place, digest)
        assert found == (columns.decode(encoded, purpose), bytes.fromhex(secret))


@pytest.mark.parametrize(("vector", "record"), list(zip(load("reports"), generate.records(), strict=True)))
def test_reports(vector, record):
    _, declared, helpers = record
    assert len(vector["helpers"]) == helpers
    made = report.decode(bytes.fromhex(vector["report"]))
    assert made.encode().hex() == vector["report"]
    assert made.public.hex() == vector["public"]
    public = report.decode_public(made.public)
    assert public.encode() == made.public
    assert [public.id.hex(), public.hour, public.origin] == [vector["id"], vector["hour"], vector["origin"]]
    assert [public.purpose, public.parameters.hex()] == [vector["purpose"], vector["parameters"]]
    for place, helper in enumerate(vector["helpers"]):
        key = OpeningKey(bytes.fromhex(helper["secret_key"]))
        assert key.key_id.hex() == helper["key_id"]
        assert made.part(place).hex() == helper["part"]
        opener = Opener(helper["name"], place, {key.key_id: key}, declared, payload.size([declared]))
        addressed = opener.address(made.part(place))
        assert addressed.info.hex() == helper["info"]
        assert addressed.open().hex() == helper["payload"]
        assert opener.open(made.part(place))[0] == public


@pytest.mark.parametrize("vector", load("keys"))
def test_keys(vector):
    identity = VerifyingKey(bytes.fromhex(vector["identity"]))
    found = keys.verify(bytes.fromhex(vector["message"]), vector["helper"], identity)
    assert [found.helper, found.address, found.sequence] == [
        vector["helper"],
        vector["address"],
        vector["sequence"],
    ]
    expected = [(k["id"], k["public"], k["not_before"], k["not_after"]) for k in vector["keys"]]
    assert [
        (k.key.key_id.hex(), k.key.public.hex(), k.not_before, k.not_after) for k in found.keys
    ] == expected
    assert {moment: found.current(int(moment)).key_id.hex() for moment in vector["current"]} == vector[
        "current"
    ]


def decode(vector):
    """Give a bad message to the decoder that its vector names."""
    data = bytes.fromhex(vector["data"])
    match vector["decoder"]:
        case "public":
            report.decode_public(data)
        case "report":
            report.decode(data)
        case "payload":
            digest = bytes.fromhex(vector["column_hash"])
            payload.decode(payload.unpad(data), Purpose(vector["purpose"]), vector["place"], digest)
        case "columns":
            columns.decode(data, Purpose(vector["purpose"]))
        case "part":
            key = generate.opening_keys()[0]
            declared = generate.MODEL if vector["purpose"] == "train" else generate.MEASURE
            size = payload.size([generate.MODEL])
            Opener(vector["helper"], vector["place"], {key.key_id: key}, declared, size).open(data)
        case "keys":
            keys.verify(data, vector["helper"], VerifyingKey(bytes.fromhex(vector["identity"])))
        case other:
            pytest.fail(f"no decoder {other}")


@pytest.mark.parametrize("vector", load("bad"), ids=lambda vector: f"{vector['decoder']}: {vector['name']}")
def test_bad_messages_are_refused_with_the_error_that_they_name(vector):
    with pytest.raises(errors.MaskedLarkError) as refused:
        decode(vector)
    assert type(refused.value).__name__ == vector["error"]
