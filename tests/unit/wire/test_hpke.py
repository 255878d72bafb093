import pytest

from maskedlark.errors import WeakKey
from maskedlark.randomness import SystemRandomness
from maskedlark.wire.errors import CannotOpen
from maskedlark.wire.hpke import OVERHEAD, OpeningKey, SealingKey
from tests.twins import hpke as twin

RNG = SystemRandomness()


def test_the_twin_agrees_with_the_vector_of_rfc_9180_a_1_1():
    sealed = twin.seal(
        plaintext=bytes.fromhex("4265617574792069732074727574682c20747275746820626561757479"),
        public=bytes.fromhex("3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d"),
        info=bytes.fromhex("4f6465206f6e2061204772656369616e2055726e"),
        ephemeral=bytes.fromhex("52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736"),
        aad=bytes.fromhex("436f756e742d30"),
    )
    assert sealed.hex() == (
        "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"
        "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a"
    )


def test_what_the_twin_seals_we_open():
    key = OpeningKey.generate(RNG)
    assert key.open(twin.seal(b"secret", key.sealing.public, b"info", RNG.bytes(32)), b"info") == b"secret"


def test_sealing_hides_repetition_and_adds_a_known_size():
    key = OpeningKey.generate(RNG)
    sealed = [key.sealing.seal(b"same", b"info") for _ in range(2)]
    assert sealed[0] != sealed[1]
    assert {len(each) for each in sealed} == {4 + OVERHEAD}
    assert {key.open(each, b"info") for each in sealed} == {b"same"}


@pytest.mark.parametrize("sealed", [b"", bytes(47), bytes(48), bytes(300)])
def test_what_was_never_sealed_does_not_open(sealed):
    with pytest.raises(CannotOpen):
        OpeningKey.generate(RNG).open(sealed, b"info")


def test_another_info_or_key_does_not_open():
    key, other = OpeningKey.generate(RNG), OpeningKey.generate(RNG)
    sealed = key.sealing.seal(b"secret", b"info")
    with pytest.raises(CannotOpen):
        key.open(sealed, b"inf0")
    with pytest.raises(CannotOpen):
        other.open(sealed, b"info")


@pytest.mark.parametrize(
    "public",
    [
        bytes(32),
        (1).to_bytes(32, "little"),
        (2**255 - 20).to_bytes(32, "little"),
        bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),  # order 8
        (2**255 - 19).to_bytes(32, "little"),
        bytes([255] * 32),
        b"short",
    ],
)
def test_keys_of_small_order_or_in_another_form_are_refused(public):
    with pytest.raises(WeakKey):
        SealingKey(public)


def test_keys_print_as_their_id():
    secret = RNG.bytes(32)
    key = OpeningKey(secret)
    assert repr(key) == f"OpeningKey({key.key_id.hex()})"
    assert secret.hex() not in repr(key) + repr(key.sealing) + repr(vars(key))
    assert SealingKey(key.sealing.public) == key.sealing
    assert hash(SealingKey(key.sealing.public)) == hash(key.sealing)
