import json
import os
import stat
from pathlib import Path

import pytest

from maskedlark.errors import NotDeclared
from maskedlark.helper.errors import NoCheckSecret, NoKeys, NoReceiptKey
from maskedlark.helper.keyring import DAY_S, SLOW_CLOCK_S, Keyring, Span, read
from maskedlark.helper.keyring import NAME as FILE
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.web import files
from maskedlark.web.errors import BadKeyFile
from maskedlark.wire import keys
from maskedlark.wire.errors import NoValidKey
from maskedlark.wire.keys import MAX_KEYS
from maskedlark.wire.signatures import SigningKey

NOW = 1_900_000_000
NAME, ADDRESS = "helper-0", "https://helper-0.example"
IDENTITY, OTHER = (SigningKey(FixedRandomness(seed).bytes(32)) for seed in (b"identity", b"other"))
SPAN = Span(30 * DAY_S, 10 * DAY_S)
KEEP_S = 20 * DAY_S


def ring(folder):
    return Keyring(folder / "keys", NAME, KEEP_S)


def rotate(keyring, now=NOW, identity=IDENTITY, **changes):
    return keyring.rotate(identity, ADDRESS, now, SystemRandomness(), SPAN, **changes)


def path(folder):
    return folder / "keys" / FILE


def test_what_is_published_was_signed_by_the_identity_and_opens_here(tmp_path):
    made = rotate(ring(tmp_path))
    found = keys.verify(ring(tmp_path).configuration, NAME, IDENTITY.verifying)
    assert found == made
    assert (found.address, found.sequence, len(found.keys)) == (ADDRESS, 1, 1)
    opening = ring(tmp_path).opening_keys(NOW)[found.current(NOW).key_id]
    assert opening.open(found.current(NOW).seal(b"report", b"info"), b"info") == b"report"
    assert ring(tmp_path).identity == IDENTITY.verifying


def test_receipts_are_signed_with_the_newest_key_that_the_identity_certified(tmp_path):
    keyring = ring(tmp_path)
    rotate(keyring)
    first, _ = keyring.current(NOW)
    rotate(keyring, NOW + DAY_S)
    key, certificate = keyring.current(NOW + DAY_S)
    assert key.verifying != first.verifying
    claimed = certificate.open(NAME, IDENTITY.verifying)
    assert claimed.key == key.verifying.public.hex()
    # A clock that was put back: the new key is not certified for that moment, the old one is.
    assert keyring.current(NOW)[0].verifying == first.verifying


def test_without_a_certified_key_it_says_to_rotate(tmp_path):
    keyring = ring(tmp_path)
    rotate(keyring)
    end = NOW + SPAN.valid_s + SPAN.overlap_s
    keyring.current(end - 1)
    for moment in (end, NOW - SLOW_CLOCK_S - 1):
        with pytest.raises(NoReceiptKey, match="helper rotate"):
            keyring.current(moment)


def test_browsers_always_find_a_key_while_rotations_are_in_time(tmp_path):
    keyring, seen = ring(tmp_path), []
    for turn in range(6):
        now = NOW + turn * SPAN.valid_s
        made = rotate(keyring, now)
        seen.append(made.current(now).key_id)
        assert made.sequence == turn + 1
        # A browser that has an old copy of the configuration, until the day of the next rotation.
        assert made.current(now + SPAN.valid_s + SPAN.overlap_s - 1).key_id == seen[-1]
        # Two at a time: the one before is past its time when the next but one comes.
        assert [each.key.key_id for each in made.keys] == seen[-2:]
    assert len(set(seen)) == 6


def test_a_key_opens_late_reports_and_is_then_gone_from_the_disk(tmp_path):
    keyring = ring(tmp_path)
    old = rotate(keyring).current(NOW)
    secret = json.loads(path(tmp_path).read_text())["opening"][0]["secret"]
    end = NOW + SPAN.valid_s + SPAN.overlap_s
    rotate(keyring, end - 1)
    assert old.key_id in keyring.opening_keys(end + KEEP_S - 1)
    assert old.key_id not in keyring.opening_keys(end + KEEP_S)
    assert keyring.forget(end - 1) == 0
    assert keyring.forget(end) == 1  # The receipt key: nothing is signed with it any more.
    assert keyring.forget(end + KEEP_S) == 0, "what is published is not deleted"
    rotate(keyring, end)
    assert keyring.forget(end + KEEP_S - 1) == 0
    assert secret in path(tmp_path).read_text()
    assert keyring.forget(end + KEEP_S) == 1
    assert secret not in path(tmp_path).read_text()
    assert len(keyring.opening_keys(end + KEEP_S)) == 2
    keyring.current(end + KEEP_S)


def test_a_clock_far_ahead_costs_no_key_that_is_published(tmp_path):
    keyring = ring(tmp_path)
    published = rotate(keyring).current(NOW)
    assert keyring.forget(NOW + 4000 * DAY_S) == 0
    assert published.key_id in keyring.opening_keys(NOW)
    keyring.current(NOW)


def test_a_rotation_deletes_what_is_past_its_time_too(tmp_path):
    keyring = ring(tmp_path)
    old = rotate(keyring).current(NOW)
    late = NOW + SPAN.valid_s + SPAN.overlap_s + KEEP_S
    made = rotate(keyring, late)
    assert old.key_id not in {each.key.key_id for each in made.keys}
    assert len(json.loads(path(tmp_path).read_text())["opening"]) == 1
    with pytest.raises(NoValidKey):
        made.current(NOW)


def test_no_more_keys_are_published_than_fit_and_all_still_open(tmp_path):
    keyring = ring(tmp_path)
    for turn in range(MAX_KEYS + 2):
        made = rotate(keyring, NOW + turn)
    assert len(made.keys) == MAX_KEYS
    assert len(keyring.opening_keys(NOW)) == MAX_KEYS + 2
    keys.verify(keyring.configuration, NAME, IDENTITY.verifying)


def test_a_running_helper_sees_a_rotation_by_another_process(tmp_path):
    running, other = ring(tmp_path), ring(tmp_path)
    rotate(other)
    before, message = set(running.opening_keys(NOW)), running.configuration
    made = rotate(other, NOW + 1)
    assert running.configuration != message
    assert set(running.opening_keys(NOW)) == before | {made.current(NOW + 1).key_id}
    assert running.current(NOW + 1)[0].verifying == other.current(NOW + 1)[0].verifying


def test_a_lost_folder_goes_on_behind_what_is_published(tmp_path):
    assert rotate(ring(tmp_path), least_sequence=7).sequence == 7
    assert rotate(ring(tmp_path), least_sequence=3).sequence == 8


def test_another_identity_is_another_helper(tmp_path):
    rotate(ring(tmp_path))
    before = path(tmp_path).read_bytes()
    with pytest.raises(NotDeclared, match="another identity"):
        rotate(ring(tmp_path), identity=OTHER)
    assert path(tmp_path).read_bytes() == before


class Crash(BaseException):
    """The machine stops."""


def _crash(*_, **__):
    raise Crash


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("point", ["fsync", "replace", "sync", "sign"])
def test_a_crash_leaves_the_old_keys_or_the_new_ones(tmp_path, monkeypatch, point, first):
    keyring, old = ring(tmp_path), None
    if not first:
        rotate(keyring)
        old = keyring.configuration
    with monkeypatch.context() as patch:
        where = {
            "fsync": (os, "fsync"),  # the new file is half there
            "replace": (Path, "replace"),  # it is whole, and has no name
            "sync": (files, "sync"),  # it has its name, which may be lost
            "sign": (keys.KeyConfiguration, "sign"),  # secrets are made, nothing is signed
        }
        patch.setattr(*where[point], _crash)
        with pytest.raises(Crash):
            rotate(keyring, NOW + DAY_S)
    after = ring(tmp_path)
    if point != "sync" and first:
        with pytest.raises(NoKeys):
            _ = after.configuration
        return
    assert (after.configuration == old) == (point != "sync")
    # Whichever it is: all that is published opens, and receipts can be signed.
    found = keys.verify(after.configuration, NAME, IDENTITY.verifying)
    assert {each.key.key_id for each in found.keys} <= after.opening_keys(NOW).keys()
    after.current(NOW + DAY_S)
    rotate(after, NOW + 2 * DAY_S)


def test_files_are_their_owner_s_alone(tmp_path):
    rotate(ring(tmp_path))
    assert stat.S_IMODE(path(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(path(tmp_path).parent.stat().st_mode) == 0o700
    keyring = ring(tmp_path)
    keyring.opening_keys(NOW)
    path(tmp_path).chmod(0o640)
    for use in (keyring, ring(tmp_path)):
        with pytest.raises(BadKeyFile, match="open to others"):
            use.opening_keys(NOW)


def test_a_helper_that_was_never_rotated_says_so(tmp_path):
    with pytest.raises(NoKeys, match="helper rotate"):
        ring(tmp_path).opening_keys(NOW)


def _changed(tmp_path, change):
    found = json.loads(path(tmp_path).read_text())
    change(found)
    path(tmp_path).write_text(json.dumps(found))


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.update(more=1),
        lambda found: found.pop("writing"),
        lambda found: found.update(format=2),
        lambda found: found.update(identity=OTHER.verifying.public.hex()),
        lambda found: found.update(identity="00" * 32),
        lambda found: found.update(configuration=found["configuration"][:-2] + "ff"),
        lambda found: found["opening"][0].update(secret="zz" * 32),
        lambda found: found["writing"][0].update(secret="11" * 32),
        lambda found: found["writing"][0]["certificate"].update(signature="11" * 64),
    ],
)
def test_a_damaged_file_is_refused_and_not_shown(tmp_path, change):
    rotate(ring(tmp_path))
    secrets = path(tmp_path).read_text()
    _changed(tmp_path, change)
    with pytest.raises(BadKeyFile, match="damaged") as raised:
        ring(tmp_path).opening_keys(NOW)
    assert json.loads(secrets)["opening"][0]["secret"] not in str(raised.value)
    with pytest.raises(BadKeyFile, match="damaged"):
        rotate(ring(tmp_path))  # It would throw away the secrets that may still be saved.


def test_keys_of_another_helper_are_refused(tmp_path):
    rotate(ring(tmp_path))
    with pytest.raises(BadKeyFile, match="the keys of helper-0, not of helper-1"):
        Keyring(tmp_path / "keys", "helper-1").opening_keys(NOW)


def test_secrets_do_not_print(tmp_path):
    keyring = ring(tmp_path)
    rotate(keyring)
    secret = json.loads(path(tmp_path).read_text())["opening"][0]["secret"]
    stored = read(tmp_path / "keys", NAME)
    shown = repr(stored) + repr(keyring.opening_keys(NOW)) + repr(keyring.current(NOW))
    assert secret not in shown
    assert repr(bytes.fromhex(secret)) not in shown


def test_the_check_secret_is_the_same_for_good_also_in_a_file_made_anew(tmp_path):
    """So that a lost disk never makes a second check key of a document."""
    keyring = ring(tmp_path)
    rotate(keyring)
    secret = keyring.check_secret
    rotate(keyring, NOW + DAY_S)
    assert keyring.check_secret == secret
    path(tmp_path).unlink()
    rotate(ring(tmp_path), NOW + 2 * DAY_S)
    assert ring(tmp_path).check_secret == secret
    rotate(ring(tmp_path / "other"), identity=OTHER)
    assert ring(tmp_path / "other").check_secret != secret
    assert secret.hex() not in repr(read(tmp_path / "keys", NAME))


def test_a_check_secret_that_is_not_the_identitys_is_refused(tmp_path):
    """It would make another check key, and a key to storage that opens nothing."""
    rotate(ring(tmp_path))
    stored = json.loads(path(tmp_path).read_bytes())
    rotate(ring(tmp_path / "other"), identity=OTHER)
    other = json.loads(path(tmp_path / "other").read_bytes())
    one_bit = f"{int(stored['check'], 16) ^ 1:064x}"
    for changed in (
        {"check": one_bit},
        {"check": other["check"]},
        {"check": other["check"], "check_signature": other["check_signature"]},
    ):
        files.write(path(tmp_path), json.dumps(stored | changed).encode())
        with pytest.raises(BadKeyFile, match="damaged or changed"):
            ring(tmp_path).check_secret  # noqa: B018


@pytest.mark.parametrize("lacks", [["check", "check_signature"], ["check_signature"]])
def test_a_file_of_an_earlier_version_is_read_and_a_rotation_gives_it_a_check_secret(tmp_path, lacks):
    rotate(ring(tmp_path))
    stored = json.loads(path(tmp_path).read_bytes())
    for name in lacks:
        del stored[name]
    files.write(path(tmp_path), json.dumps(stored).encode())
    assert ring(tmp_path).current(NOW)
    with pytest.raises(NoCheckSecret, match="helper rotate"):
        ring(tmp_path).check_secret  # noqa: B018
    rotate(ring(tmp_path))
    assert len(ring(tmp_path).check_secret) == 32
