"""Every decoder refuses every mutation of a valid message, or the mutation is itself a valid message.

Sealed parts and signed configurations are authenticated: every mutation of one must be refused. Public
parts, reports and columns are not by themselves, so a changed byte may spell another valid message; then it
must be in its one encoding, which decoding and encoding again shows.
"""

from collections.abc import Callable
from typing import Any

import pytest

from maskedlark.core.purpose import Purpose
from maskedlark.errors import MaskedLarkError
from maskedlark.randomness import FixedRandomness
from maskedlark.wire import columns, keys, payload, report
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.report import Opener
from maskedlark.wire.signatures import VerifyingKey
from tests.property.mutating import mutate
from vectors import generate, load

Decoder = Callable[[bytes], bytes]


def refusing(decode: Callable[[bytes], object]) -> Decoder:
    """For authenticated messages: what is returned can equal no mutation."""

    def check(data: bytes) -> bytes:
        decode(data)
        return b"accepted a mutation"

    return check


def targets() -> dict[str, tuple[bytes, Decoder]]:
    found: dict[str, tuple[bytes, Decoder]] = {}
    for vector, (_, declared, helpers) in zip(load("reports"), generate.records(), strict=True):
        purpose = f"{vector['purpose']}, {helpers} helpers"
        found[f"report to {purpose}"] = (
            bytes.fromhex(vector["report"]),
            lambda data: report.decode(data).encode(),
        )
        public = bytes.fromhex(vector["public"])
        found[f"public part to {purpose}"] = public, lambda data: report.decode_public(data).encode()
        for place, helper in enumerate(vector["helpers"]):
            key = OpeningKey(bytes.fromhex(helper["secret_key"]))
            opener = Opener(helper["name"], place, {key.key_id: key}, declared, payload.size([declared]))
            found[f"part of {helper['name']} to {purpose}"] = (
                bytes.fromhex(helper["part"]),
                refusing(opener.open),
            )
    for vector in load("payloads"):
        purpose = f"{vector['purpose']}, {len(vector['secrets'])} helpers"
        found[f"columns to {purpose}"] = bytes.fromhex(vector["columns"]), columns_again(vector)
        for place, padded in enumerate(vector["payloads"]):
            found[f"payload {place} to {purpose}"] = (
                bytes.fromhex(padded),
                payload_again(vector, place),
            )
    [vector] = load("keys")
    identity = VerifyingKey(bytes.fromhex(vector["identity"]))
    found["key configuration"] = (
        bytes.fromhex(vector["message"]),
        refusing(lambda data: keys.verify(data, vector["helper"], identity)),
    )
    return found


def columns_again(vector: dict[str, Any]) -> Decoder:
    return lambda data: columns.decode(data, Purpose(vector["purpose"])).encode()


def payload_again(vector: dict[str, Any], place: int) -> Decoder:
    purpose, digest, salt = (
        Purpose(vector["purpose"]),
        bytes.fromhex(vector["column_hash"]),
        bytes.fromhex(vector["salt"]),
    )

    def again(data: bytes) -> bytes:
        found = payload.decode(payload.unpad(data), purpose, place, digest)
        return payload.pad(payload.body(salt, found.secret, found.columns.encode()), len(data))

    return again


def fuzz(name: str, mutations: int) -> int:
    """How many mutations were refused; the others must have been valid messages in their one form."""
    message, decoder = targets()[name]
    rng, refused = FixedRandomness(name.encode()), 0
    for _ in range(mutations):
        mutation = mutate(message, rng)
        if int(rng.below(4, 1)[0]) == 0:
            mutation = mutate(mutation or b"\0", rng)
        if mutation == message:
            continue
        try:
            decoded = decoder(mutation)
        except MaskedLarkError:
            refused += 1
            continue
        assert decoded == mutation, mutation.hex()
    return refused


@pytest.mark.parametrize("name", targets())
def test_mutations_are_refused(name):
    assert fuzz(name, 600) > 200


@pytest.mark.long
@pytest.mark.parametrize("name", targets())
def test_many_mutations_are_refused(name):
    """24 messages, 15,000 mutations each: 360,000."""
    assert fuzz(name, 15_000) > 5_000


def test_a_single_flipped_bit_anywhere_in_an_authenticated_message_is_refused():
    for name, (message, decoder) in targets().items():
        if not name.startswith(("part of helper-0", "key")):
            continue
        for bit in range(8 * len(message)):
            mutation = bytearray(message)
            mutation[bit // 8] ^= 1 << bit % 8
            with pytest.raises(MaskedLarkError):
                decoder(bytes(mutation))
