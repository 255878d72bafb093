from dataclasses import replace

import pytest

from maskedlark.errors import BadSignature, NotDeclared, NoValidKey
from maskedlark.randomness import SystemRandomness
from maskedlark.wire import keys
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
    assert keys.verify(CONFIGURATION.sign(IDENTITY), IDENTITY.verifying) == CONFIGURATION


def test_the_newest_valid_key_is_current():
    assert [CONFIGURATION.current(at) for at in (10, 19, 20, 29, 39)] == [OLD, OLD, NEW, NEW, NEW]
    for moment in (9, 40):
        with pytest.raises(NoValidKey, match="fetch its keys again"):
            CONFIGURATION.current(moment)


def test_only_the_identity_itself_signs_its_configuration():
    with pytest.raises(NotDeclared, match="another identity"):
        CONFIGURATION.sign(SigningKey.generate(RNG))
    with pytest.raises(BadSignature):
        keys.verify(CONFIGURATION.sign(IDENTITY), SigningKey.generate(RNG).verifying)


def test_identity_keys_that_are_no_points_do_not_verify():
    with pytest.raises(BadSignature):
        VerifyingKey(bytes([255] * 32)).verify("label", b"message", bytes(64))
    with pytest.raises(BadSignature):
        VerifyingKey(b"short").verify("label", b"message", bytes(64))


def test_a_signature_is_for_one_label():
    signature = IDENTITY.sign("ab", b"c")
    IDENTITY.verifying.verify("ab", b"c", signature)
    with pytest.raises(BadSignature):
        IDENTITY.verifying.verify("a", b"bc", signature)


def test_signing_keys_print_as_their_public_half():
    secret = RNG.bytes(32)
    assert secret.hex() not in repr(SigningKey(secret))
    assert repr(replace(CONFIGURATION, helper="x")).count("SealingKey") == 2
