"""Every decoder refuses every mutation of a valid message, or the mutation is itself a valid message.

Sealed parts and signed configurations are authenticated: every mutation of one must be refused. Prefixes,
cells and payloads are not by themselves, so a changed byte may spell another valid message; then it must be
in its one encoding, which decoding and encoding again shows.
"""

from collections.abc import Callable
from typing import Any

import pytest

from maskedlark.core.purpose import Purpose
from maskedlark.errors import MaskedLarkError
from maskedlark.randomness import FixedRandomness
from maskedlark.wire import columns, keys, report
from maskedlark.wire.columns import SALT_BYTES
from maskedlark.wire.payload import Payload, PayloadLayout
from maskedlark.wire.signatures import VerifyingKey
from tests.property.mutating import mutate
from vectors import documents, good, load

Decoder = Callable[[bytes], bytes]
RECORDS = [*range(12), -1]
"""Of the report vectors: the shapes of two helpers, and one of five."""


def refusing(decode: Callable[[bytes], object]) -> Decoder:
    """For authenticated messages: what is returned can equal no mutation."""

    def check(data: bytes) -> bytes:
        decode(data)
        return b"accepted a mutation"

    return check


def targets() -> dict[str, tuple[bytes, Decoder]]:
    made: dict[str, tuple[bytes, Decoder]] = {}
    vectors, known = load("reports"), documents.documents()
    for vector in [vectors[number] for number in RECORDS]:
        document, purpose = known[vector["document"]], Purpose(vector["purpose"])
        layout = document.layout(purpose)
        made[f"prefix to {vector['name']}"] = layout.prefix, prefix_again
        for place, helper in enumerate(vector["helpers"][:2]):
            opener = good.opener(document, purpose, place)
            name = f"{helper['name']} to {vector['name']}"
            made[f"part of {name}"] = bytes.fromhex(helper["part"]), refusing(opener.open)
            made[f"payload of {name}"] = (
                bytes.fromhex(helper["payload"]),
                payload_again(opener.payload),
            )
    for vector in load("columns"):
        if vector["kind"] == "key":
            made[f"key {vector['key']!r}"] = bytes.fromhex(vector["cell"]), cell_again
    for vector in load("keys"):
        made[f"{len(vector['keys'])} keys of a helper"] = (
            bytes.fromhex(vector["message"]),
            refusing(verifying(vector)),
        )
    return made


def prefix_again(data: bytes) -> bytes:
    encoded = report.decode_prefix(data).encode()
    return encoded + data[len(encoded) :]


def cell_again(data: bytes) -> bytes:
    return columns.encode_key(columns.decode_key(data.ljust(columns.CELL_BYTES, b"\0"))).ljust(len(data))


def verifying(vector: dict[str, Any]) -> Callable[[bytes], object]:
    identity = VerifyingKey(bytes.fromhex(vector["identity"]))
    return lambda data: keys.verify(data, vector["helper"], identity)


def payload_again(layout: PayloadLayout) -> Decoder:
    """Bound by its right hash, as a hostile browser does: nothing but its form can refuse it."""

    def again(data: bytes) -> bytes:
        place = data[SALT_BYTES] if layout.purpose is Purpose.TRAIN and len(data) > SALT_BYTES else 0
        record = layout.records[min(place, len(layout.records) - 1)]
        bound = columns.digest(data[: record.columns.stop], layout.purpose)
        payload = layout.decode(data, bound)
        shown = data[record.columns] if payload.model else encode_keys(payload)
        return (data[:SALT_BYTES] + shown + payload.secret).ljust(layout.size, b"\0")

    return again


def encode_keys(payload: Payload) -> bytes:
    return b"".join(columns.encode_key(key) for key in payload.keys)


def fuzz(name: str, mutations: int) -> int:
    """How many mutations were refused; the others must have been valid messages in their one form."""
    message, decoder = targets()[name]
    rng, refused = FixedRandomness(name.encode()), 0
    for _ in range(mutations):
        mutation = mutate(message, rng)
        if int(rng.below(4, 1)[0]) == 0:
            mutation = mutate(mutation or b"\0", rng)
        if name.startswith("key "):  # a cell is cut out of a row, so it always has its size
            mutation = mutation.ljust(columns.CELL_BYTES, b"\0")[: columns.CELL_BYTES]
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
    assert fuzz(name, 250) > 20


@pytest.mark.long
@pytest.mark.parametrize("name", targets())
def test_many_mutations_are_refused(name):
    """Some 80 messages, 5,000 mutations each: 400,000."""
    assert fuzz(name, 5_000) > 400


def test_a_single_flipped_bit_anywhere_in_an_authenticated_message_is_refused():
    for name, (message, decoder) in targets().items():
        if not name.startswith("part of helper-0.example to two helpers, profit") and "keys of" not in name:
            continue
        for bit in range(8 * len(message)):
            mutation = bytearray(message)
            mutation[bit // 8] ^= 1 << bit % 8
            with pytest.raises(MaskedLarkError):
                decoder(bytes(mutation))
