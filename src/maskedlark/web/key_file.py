"""A signing key in a file that only its owner can read. Run by every party that signs."""

import os
import re
from pathlib import Path

from maskedlark.randomness import Randomness
from maskedlark.web.errors import BadKeyFile
from maskedlark.wire.signatures import SigningKey, VerifyingKey

_HEAD = "maskedlark-signing-key-1 "
_KEY = re.compile("[0-9a-f]{64}")
_FILE = re.compile(f"{_HEAD}({_KEY.pattern})\n?")


def create(path: Path, rng: Randomness) -> SigningKey:
    """A fresh key in a new file; never overwrites one. Run by whoever needs an identity."""
    secret = rng.bytes(32)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise BadKeyFile(f"{path} exists already; a key is never overwritten, choose another name") from None
    except OSError as error:
        raise BadKeyFile(f"{path} cannot be written: {error.strerror}") from None
    with os.fdopen(handle, "w") as file:
        file.write(f"{_HEAD}{secret.hex()}\n")
        file.flush()
        os.fsync(file.fileno())
    return SigningKey(secret)


def read(path: Path) -> SigningKey:
    """The key in a file. Refuses a file that others may read, and never shows its content."""
    try:
        if path.stat().st_mode & 0o077:
            raise BadKeyFile(f"{path} is open to others: chmod 600 it, and make a new key if it was read")
        text = path.read_text()
    except OSError as error:
        raise BadKeyFile(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        text = ""
    match = _FILE.fullmatch(text)
    if match is None:
        raise BadKeyFile(f"{path} is no signing key; make one with `maskedlark parameters keys`")
    return SigningKey(bytes.fromhex(match[1]))


def public(text: str) -> VerifyingKey:
    """A public key from its hexadecimal form, as `maskedlark parameters keys` prints it."""
    if not _KEY.fullmatch(text):
        raise BadKeyFile(f"{text[:80]!r} is no public key: give its 64 hexadecimal digits")
    return VerifyingKey(bytes.fromhex(text))
