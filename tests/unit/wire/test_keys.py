from dataclasses import replace

import pytest

from maskedlark.errors import (
    BadSignature,
    NotDeclared,
    RolledBack,
    UnsupportedVersion,
    WeakKey,
    WrongLength,
    WrongType,
)
from maskedlark.randomness import SystemRandomness
from maskedlark.wire import binary, keys
from maskedlark.wire.binary import number
from maskedlark.wire.errors import DuplicateKey, NoValidKey, OutOfRange, TrailingBytes, Truncated
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.keys import KeyConfiguration, PublishedKey
from maskedlark.wire.signatures import SigningKey, VerifyingKey

RNG = SystemRandomness()
IDENTITY = SigningKey.generate(RNG)
OLD, NEW = (OpeningKey.generate(RNG).sealing for _ in range(2))
CONFIGURATION = KeyConfiguration(
    "helper",
    IDENTITY.verifying,
    "https://helper.example",
    3,
    (PublishedKey(OLD, 10, 30), PublishedKey(NEW, 20, 40)),
)


def test_a_signed_configuration_comes_back():
    assert keys.verify(CONFIGURATION.sign(IDENTITY), "helper", IDENTITY.verifying) == CONFIGURATION


def test_the_newest_valid_key_is_current():
    assert [CONFIGURATION.current(at) for at in (10, 19, 20, 29, 39)] == [OLD, OLD, NEW, NEW, NEW]
    for moment in (9, 40):
        with pytest.raises(NoValidKey, match="fetch its keys again"):
            CONFIGURATION.current(moment)


def test_only_the_identity_itself_signs_its_configuration():
    with pytest.raises(NotDeclared, match="another identity"):
        CONFIGURATION.sign(SigningKey.generate(RNG))
    with pytest.raises(BadSignature):
        keys.verify(CONFIGURATION.sign(IDENTITY), "helper", SigningKey.generate(RNG).verifying)


def test_another_helper_s_name_and_an_older_configuration_are_refused():
    message = CONFIGURATION.sign(IDENTITY)
    with pytest.raises(BadSignature, match="not of somebody"):
        keys.verify(message, "somebody", IDENTITY.verifying)
    assert keys.verify(message, "helper", IDENTITY.verifying, least_sequence=3) == CONFIGURATION
    with pytest.raises(RolledBack):
        keys.verify(message, "helper", IDENTITY.verifying, least_sequence=4)


def test_of_two_keys_that_begin_together_the_last_listed_is_current():
    both = replace(CONFIGURATION, keys=(PublishedKey(OLD, 10, 30), PublishedKey(NEW, 10, 30)))
    assert both.current(15) == NEW


def signed(body: bytes) -> bytes:
    """What a hostile helper publishes: anything, with its own signature."""
    return b"\2" + binary.vector(body, 2) + IDENTITY.sign(keys._LABEL, body)


ONE = replace(CONFIGURATION, keys=CONFIGURATION.keys[:1])
BODY = ONE.encode()
KEY = len(BODY) - 48
BAD = {
    "nothing": (b"", Truncated),
    "another version": (b"\1" + signed(BODY)[1:], UnsupportedVersion),
    "more than the message": (signed(BODY) + b"\0", TrailingBytes),
    "no signature": (signed(BODY)[:-1], Truncated),
    "no body": (b"\2\0\0" + bytes(64), WrongLength),
    "a body of another version": (signed(b"\1" + BODY[1:]), UnsupportedVersion),
    "a body cut short": (signed(BODY[:30]), Truncated),
    "no key": (signed(BODY[:KEY]), WrongLength),
    "half a key": (signed(BODY + bytes(20)), Truncated),
    "too many keys": (signed(BODY[:KEY] + BODY[KEY:] * 65), WrongLength),
    "a key twice": (signed(BODY + BODY[KEY:]), DuplicateKey),
    "a key that ends before it begins": (signed(BODY[:-16] + number(30, 8) + number(30, 8)), OutOfRange),
    "a key of a far future": (signed(BODY[:-8] + number(1 << 40, 8)), OutOfRange),
    "a weak key": (signed(BODY[:KEY] + bytes(32) + BODY[-16:]), WeakKey),
    "an empty name": (signed(replace(ONE, helper="").encode()), WrongLength),
    "a long name": (signed(replace(ONE, helper="x" * 65).encode()), WrongLength),
    "a name that is not UTF-8": (signed(BODY.replace(b"helper", b"\xff" * 6, 1)), WrongType),
    "an empty address": (signed(replace(ONE, address="").encode()), WrongLength),
    "a long address": (signed(replace(ONE, address="x" * 513).encode()), WrongLength),
    "another body": (signed(BODY)[:40] + b"x" + signed(BODY)[41:], BadSignature),
}


@pytest.mark.parametrize(("message", "error"), BAD.values(), ids=BAD)
def test_what_is_no_configuration_has_its_own_error(message, error):
    assert keys.verify(signed(BODY), "helper", IDENTITY.verifying) == ONE
    with pytest.raises(error) as raised:
        keys.verify(message, "helper", IDENTITY.verifying)
    assert type(raised.value) is error


PRIME = 2**255 - 19
ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826


def doubled(height: int) -> int:
    """The height of twice a point of the Edwards curve, from its height alone."""
    square, d = height * height % PRIME, -121665 * pow(121666, -1, PRIME) % PRIME
    x_square = (square - 1) * pow(d * square + 1, -1, PRIME) % PRIME
    return (square + x_square) * pow(2 - square + x_square, -1, PRIME) % PRIME


def test_the_heights_of_small_order_are_just_those():
    """Doubling three times ends at the neutral element, and their halves are all among them."""
    heights = {0, 1, PRIME - 1, ORDER_8, PRIME - ORDER_8}
    for height in heights:
        assert doubled(doubled(doubled(height))) == 1
    assert [doubled(ORDER_8), doubled(0), doubled(PRIME - 1)] == [0, PRIME - 1, 1]


@pytest.mark.parametrize("height", [0, 1, PRIME - 1, ORDER_8, PRIME - ORDER_8, PRIME, PRIME + 1, 2**255 - 1])
@pytest.mark.parametrize("sign", [0, 1])
def test_identities_that_would_verify_anything_are_refused(height, sign):
    with pytest.raises(WeakKey):
        VerifyingKey((height | sign << 255).to_bytes(32, "little"))


def test_identities_that_are_no_points_or_no_keys_are_refused():
    with pytest.raises(WeakKey):
        VerifyingKey(b"short")
    with pytest.raises(BadSignature):
        VerifyingKey((2).to_bytes(32, "little")).verify("label", b"message", bytes(64))


def test_a_signature_is_for_one_label():
    signature = IDENTITY.sign("ab", b"c")
    IDENTITY.verifying.verify("ab", b"c", signature)
    with pytest.raises(BadSignature):
        IDENTITY.verifying.verify("a", b"bc", signature)


def test_signing_keys_print_as_their_public_half():
    secret = RNG.bytes(32)
    assert secret.hex() not in repr(SigningKey(secret))
    assert repr(replace(CONFIGURATION, helper="x")).count("SealingKey") == 2
