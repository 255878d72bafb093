"""The file of a helper's keys: only its owner may read it, and all of it is replaced at once."""

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import StringConstraints, ValidationError

from maskedlark.errors import BadSignature, DecodeError, WeakKey
from maskedlark.helper.errors import NoKeys
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import SignedCertificate
from maskedlark.parameters.settings import Hex32, Name, PublicKey, Seconds, Settings
from maskedlark.web import files
from maskedlark.web.errors import BadKeyFile
from maskedlark.wire import keys
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.keys import KeyConfiguration
from maskedlark.wire.signatures import SigningKey, VerifyingKey

NAME = "keys.json"
Stamp = tuple[int, int, int]
"""Which file it is, when it was written, and its size: all three change together with what is in it."""


@dataclass(frozen=True, repr=False)
class Opening:
    """A secret HPKE key, and the time in which browsers may seal to it."""

    secret: bytes
    key: OpeningKey
    not_before: int
    not_after: int


@dataclass(frozen=True, repr=False)
class Writing:
    """A key that signs receipts, and the identity's certificate of it."""

    secret: bytes
    key: SigningKey
    certificate: SignedCertificate


class Stored(NamedTuple):
    """Everything that a helper's file holds, the newest keys last."""

    opening: tuple[Opening, ...]
    writing: tuple[Writing, ...]
    message: bytes
    """The configuration as its identity signed it."""
    configuration: KeyConfiguration


class _Opening(Settings):
    secret: Hex32
    not_before: Seconds
    not_after: Seconds


class _Writing(Settings):
    secret: Hex32
    certificate: SignedCertificate


class _File(Settings):
    """What stands in the file. Never printed: nearly all of it is secret."""

    format: Literal[1] = 1
    helper: Name
    identity: PublicKey
    opening: tuple[_Opening, ...]
    writing: tuple[_Writing, ...]
    configuration: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2})+$")]


def write(folder: Path, stored: Stored) -> None:
    """Replace the file, durably, before returning. Run under the folder's lock."""
    configuration = stored.configuration
    file = _File(
        helper=configuration.helper,
        identity=configuration.identity.public.hex(),
        opening=tuple(
            _Opening(secret=each.secret.hex(), not_before=each.not_before, not_after=each.not_after)
            for each in stored.opening
        ),
        writing=tuple(
            _Writing(secret=each.secret.hex(), certificate=each.certificate) for each in stored.writing
        ),
        configuration=stored.message.hex(),
    )
    # Its mode is 0600 from the beginning: a temporary file is made so.
    files.write(folder / NAME, file.model_dump_json().encode())


def stamp(folder: Path) -> Stamp:
    """Whether the file is another one than before. Refuses one that others may read."""
    path = folder / NAME
    try:
        found = path.stat()
    except FileNotFoundError:
        raise NoKeys(f"{folder} holds no keys: make them with `maskedlark helper rotate`") from None
    except OSError as error:
        raise BadKeyFile(f"{path} cannot be read: {error.strerror}") from None
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise BadKeyFile(f"{path} is open to others: chmod 600 it, and rotate if somebody may have read it")
    return found.st_ino, found.st_mtime_ns, found.st_size


def read(folder: Path, helper: str) -> Stored:
    """What the file holds, verified: everything was signed by the identity that it names."""
    stamp(folder)
    path = folder / NAME
    try:
        file = _File.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadKeyFile(f"{path} cannot be read: {error.strerror}") from None
    except (ValidationError, WeakKey):
        raise _damaged(path) from None
    if file.helper != helper:
        raise BadKeyFile(f"{path} holds the keys of {file.helper}, not of {helper}: name another folder")
    try:
        return _verified(file)
    except (BadReceipt, BadSignature, DecodeError, WeakKey):
        raise _damaged(path) from None


def _verified(file: _File) -> Stored:
    identity = VerifyingKey(bytes.fromhex(file.identity))
    message = bytes.fromhex(file.configuration)
    return Stored(
        tuple(_opening(each) for each in file.opening),
        tuple(_writing(each, file.helper, identity) for each in file.writing),
        message,
        keys.verify(message, file.helper, identity),
    )


def _opening(each: _Opening) -> Opening:
    secret = bytes.fromhex(each.secret)
    return Opening(secret, OpeningKey(secret), each.not_before, each.not_after)


def _writing(each: _Writing, helper: str, identity: VerifyingKey) -> Writing:
    secret = bytes.fromhex(each.secret)
    key = SigningKey(secret)
    if each.certificate.open(helper, identity).key != key.verifying.public.hex():
        raise BadReceipt("a certificate of another key")
    return Writing(secret, key, each.certificate)


def _damaged(path: Path) -> BadKeyFile:
    return BadKeyFile(
        f"{path} was damaged or changed: put a copy back. New keys made in its place cannot open the reports "
        "that are sealed to the old ones"
    )
