import os
import stat

import pytest

from maskedlark.errors import WeakKey
from maskedlark.randomness import FixedRandomness, SystemRandomness
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web import files, key_file
from maskedlark.web.errors import BadKeyFile


def test_a_failed_write_leaves_the_old_bytes_and_no_rest(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "file"
    files.write(path, b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageUnavailable):
        files.write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def test_the_bytes_are_synced_before_the_name_is_given(tmp_path, monkeypatch):
    seen, path, real = [], tmp_path / "file", os.fsync

    def sync(handle):
        seen.append(path.exists())
        real(handle)

    monkeypatch.setattr(os, "fsync", sync)
    files.write(path, b"new")
    assert seen == [False, True]  # the file, then its folder


@pytest.mark.parametrize("text", ["..", "../../etc/passwd", "a/b", "x" * 300, "ads.example:8443", "", "é\n"])
def test_names_from_outside_are_no_paths(tmp_path, text):
    name = files.named(text)
    assert "/" not in name
    assert len(name) < 80
    (tmp_path / name).write_bytes(b"")
    assert files.named(text + "x") != name


def test_a_key_file_is_its_owner_s_alone(tmp_path):
    path = tmp_path / "origin.key"
    made = key_file.create(path, SystemRandomness())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key_file.read(path).verifying == made.verifying
    before = path.read_bytes()
    with pytest.raises(BadKeyFile, match="never overwritten"):
        key_file.create(path, SystemRandomness())
    assert path.read_bytes() == before
    path.chmod(0o640)
    with pytest.raises(BadKeyFile, match="chmod 600"):
        key_file.read(path)


@pytest.mark.parametrize(
    "change", [lambda t: t[:-3], lambda t: t + "0", lambda t: t.upper(), lambda t: "", lambda t: "\udcff"]
)
def test_a_damaged_key_file_is_refused_without_its_content(tmp_path, change):
    path = tmp_path / "key"
    secret = FixedRandomness(b"key").bytes(32).hex()
    key_file.create(path, FixedRandomness(b"key"))
    path.write_bytes(change(path.read_text()).encode(errors="surrogateescape"))
    with pytest.raises(BadKeyFile, match="is no signing key") as caught:
        key_file.read(path)
    assert secret[:8] not in str(caught.value)


def test_missing_and_unwritable_key_files(tmp_path):
    with pytest.raises(BadKeyFile, match="cannot be read"):
        key_file.read(tmp_path / "none")
    with pytest.raises(BadKeyFile, match="cannot be written"):
        key_file.create(tmp_path / "none" / "key", SystemRandomness())


def test_public_keys_are_64_digits_and_strong():
    key = key_file.public("ab" * 32)
    assert key.public.hex() == "ab" * 32
    for wrong in ("", "ab" * 31, "AB" * 32, " " + "ab" * 31 + "a"):
        with pytest.raises(BadKeyFile):
            key_file.public(wrong)
    with pytest.raises(WeakKey):
        key_file.public("01" + "00" * 31)
