"""A helper's keys: what its identity has signed, with the secrets. The identity itself is elsewhere.

Everything is in one private file, written durably and atomically. So a rotation happened or it did not, and
no key is ever published whose secret is not on disk. A running service notices a rotation without a restart.
"""

import hashlib
import stat
import threading
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, StringConstraints, ValidationError

from maskedlark.errors import BadSignature, DecodeError, NotDeclared, WeakKey
from maskedlark.helper.errors import KeysBehind, NoCheckSecret, NoKeys, NoReceiptKey
from maskedlark.ledger import receipt
from maskedlark.ledger.errors import BadReceipt
from maskedlark.ledger.receipt import Certificate, SignedCertificate
from maskedlark.parameters.settings import Name, PublicKey, Seconds
from maskedlark.randomness import Randomness
from maskedlark.web import files
from maskedlark.web.errors import BadKeyFile
from maskedlark.wire import keys
from maskedlark.wire.hpke import OpeningKey, SealingKey
from maskedlark.wire.keys import MAX_KEYS, KeyConfiguration, PublishedKey
from maskedlark.wire.message import Hex32, Hex64, Settings
from maskedlark.wire.signatures import SigningKey, VerifyingKey

NAME = "keys.json"
CHECK_LABEL = "maskedlark v2 check secret"
DAY_S = 86_400
KEEP_S = 180 * DAY_S
"""How long a secret key opens reports after browsers have stopped sealing to it."""
SLOW_CLOCK_S = 3600
"""A key begins this long before now, so that browsers and auditors with slow clocks accept it."""
Stamp = tuple[int, int, int]
"""The file's inode, time and size, which change whenever its contents do."""
Secret = Annotated[Hex32, Field(repr=False)]


class Span(NamedTuple):
    """How long keys live: `valid_s` until they should be replaced, then `overlap_s` in which they can be."""

    valid_s: int = 30 * DAY_S
    overlap_s: int = 30 * DAY_S

    def of(self, now: int) -> tuple[int, int]:
        """The start and end of a key made now."""
        return max(0, now - SLOW_CLOCK_S), now + self.valid_s + self.overlap_s


class ReportKey(Settings):
    """A secret HPKE key, and the time in which browsers may seal to it."""

    secret: Secret
    not_before: Seconds
    not_after: Seconds

    @cached_property
    def key(self) -> OpeningKey:
        """The key that opens reports."""
        return OpeningKey(bytes.fromhex(self.secret))


class ReceiptKey(Settings):
    """A key that signs receipts, and its certificate by the identity."""

    secret: Secret
    certificate: SignedCertificate

    @cached_property
    def key(self) -> SigningKey:
        """The key that signs."""
        return SigningKey(bytes.fromhex(self.secret))


class KeyFile(Settings):
    """Everything in a helper's key file, the newest keys last. Nearly all of it is secret."""

    format: Literal[1] = 1
    helper: Name
    identity: PublicKey
    opening: tuple[ReportKey, ...]
    writing: tuple[ReceiptKey, ...]
    configuration: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2})+$")]
    """As the identity signed it."""
    check: Hex32 | None = Field(default=None, repr=False)
    """What check keys are derived from. It follows from the identity, so that it is never another one. None
    in a file that an earlier version wrote."""
    check_signature: Hex64 | None = None
    """The identity's, over the digest of `check`: who has no identity cannot derive it again to compare."""

    @cached_property
    def published(self) -> KeyConfiguration:
        """The configuration, verified."""
        identity = VerifyingKey(bytes.fromhex(self.identity))
        return keys.verify(bytes.fromhex(self.configuration), self.helper, identity)

    def verify(self) -> None:
        """Return if everything was signed by the identity, and every secret is a key."""
        _ = [each.key for each in self.opening]
        for each in self.writing:
            certified = each.certificate.open(self.helper, self.published.identity).key
            if certified != each.key.verifying.public.hex():
                raise BadReceipt("a certificate of another key")
        if self.check is not None and self.check_signature is not None:
            signature = bytes.fromhex(self.check_signature)
            self.published.identity.verify(CHECK_LABEL, _digest(bytes.fromhex(self.check)), signature)


class Keyring:
    """The keys in a folder. Threads and processes may share it."""

    def __init__(self, folder: Path, helper: str, keep_s: int = KEEP_S) -> None:
        self.helper = helper
        self._folder = folder
        self._keep_s = keep_s
        self._lock = threading.Lock()
        self._seen: tuple[Stamp, KeyFile] | None = None

    @property
    def configuration(self) -> bytes:
        """The signed key configuration, as it is published."""
        return bytes.fromhex(self._stored().configuration)

    @property
    def identity(self) -> VerifyingKey:
        """The key that signed it."""
        return self._stored().published.identity

    def opening_keys(self, now: int) -> Mapping[bytes, OpeningKey]:
        """Every key that reports may still be sealed to, by id. Run where reports are opened."""
        return {each.key.key_id: each.key for each in self._stored().opening if self._is_kept(each, now)}

    def sealing_key(self, now: int) -> SealingKey:
        """The key that others seal to us with now."""
        return self._stored().published.current(now)

    def current(self, now: int) -> tuple[SigningKey, SignedCertificate]:
        """The newest key that signs receipts at that moment, and its certificate by the identity."""
        for each in reversed(self._stored().writing):
            claimed = each.certificate.claimed()
            if claimed.not_before <= now < claimed.not_after:
                return each.key, each.certificate
        raise NoReceiptKey(
            f"no key of {self.helper} is certified to sign receipts now: run `maskedlark helper rotate`"
        )

    def check(self, now: int, published: KeyConfiguration | None) -> None:
        """Return if keys for receipts and reports are valid, and none is published that is not here."""
        self.current(now)
        self.sealing_key(now)
        # A rotation first writes keys, then publishes them: what is published was here before.
        valid = [each.key.key_id for each in (published.keys if published else ()) if each.valid_at(now)]
        if not self.opening_keys(now).keys() >= set(valid):
            raise KeysBehind(
                f"keys of {self.helper} are published that it does not have: run `maskedlark helper rotate`"
            )

    @property
    def check_secret(self) -> bytes:
        """What this helper derives the check keys of documents from, if it is their first."""
        stored = self._stored()
        # One that nobody signed may be damaged, and what it seals in storage could not be read again.
        if stored.check is None or stored.check_signature is None:
            raise NoCheckSecret(
                f"the keys of {self.helper} are of an earlier version, without a signed secret for "
                "checks: run `maskedlark helper rotate`"
            )
        return bytes.fromhex(stored.check)

    def ends(self) -> Mapping[str, int]:
        """When the last key of each kind ends: those that browsers seal to, and those that sign receipts."""
        stored = self._stored()
        return {
            "reports": max(each.not_after for each in stored.published.keys),
            "receipts": max(each.certificate.claimed().not_after for each in stored.writing),
        }

    def rotate(
        self,
        identity: SigningKey,
        address: str,
        now: int,
        rng: Randomness,
        span: Span | None = None,
        least_sequence: int = 0,
    ) -> KeyConfiguration:
        """Make new keys and publish them with those still valid. Run where the identity is."""
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        with files.locked(self._folder):
            reports, receipts, published, sequence = self._before(identity)
            not_before, not_after = (span or Span()).of(now)
            opening = ReportKey(secret=rng.bytes(32).hex(), not_before=not_before, not_after=not_after)
            key = SigningKey(secret := rng.bytes(32))
            certificate = Certificate(
                helper=self.helper, key=key.verifying.public.hex(), not_before=not_before, not_after=not_after
            )
            signed = ReceiptKey(secret=secret.hex(), certificate=receipt.certify(certificate, identity))
            # The new key after those that browsers may still seal to, so that there is always one.
            valid = [each for each in published if now < each.not_after]
            listed = (*valid, PublishedKey(opening.key.sealing, not_before, not_after))[-MAX_KEYS:]
            sequence = max(sequence + 1, least_sequence)
            made = KeyConfiguration(self.helper, identity.verifying, address, sequence, listed)
            file = KeyFile(
                helper=self.helper,
                identity=identity.verifying.public.hex(),
                opening=(*reports, opening),
                writing=(*receipts, signed),
                configuration=made.sign(identity).hex(),
                check=(derived := identity.derive(CHECK_LABEL)).hex(),
                check_signature=identity.sign(CHECK_LABEL, _digest(derived)).hex(),
            )
            self._write(self._needed(file, now))
        return made

    def forget(self, now: int) -> int:
        """Delete secrets that nothing needs any more; returns how many. Run by the service, every hour."""
        with files.locked(self._folder):
            before = read(self._folder, self.helper)
            kept = self._needed(before, now)
            gone = len(before.opening + before.writing) - len(kept.opening + kept.writing)
            if gone:
                self._write(kept)
        return gone

    def _needed(self, file: KeyFile, now: int) -> KeyFile:
        """The same without secrets that no late report and no receipt needs."""
        # Whatever the clock says, browsers seal to what is published.
        listed = {each.key.key_id for each in file.published.keys}
        opening = [each for each in file.opening if each.key.key_id in listed or self._is_kept(each, now)]
        writing = [each for each in file.writing if now < each.certificate.claimed().not_after]
        # The last one stays: one wrong clock must not cost what only a rotation brings back.
        kept = {"opening": tuple(opening), "writing": tuple(writing) or file.writing[-1:]}
        return file.model_copy(update=kept)

    def _is_kept(self, opening: ReportKey, now: int) -> bool:
        return now < opening.not_after + self._keep_s

    def _write(self, file: KeyFile) -> None:
        """Durably replace the file before returning. Run under the folder's lock."""
        # Its mode is 0600 from the beginning, as that of every temporary file.
        files.write(self._folder / NAME, file.model_dump_json().encode())

    def _stored(self) -> KeyFile:
        """What is on disk now. Read again only if it has changed."""
        with self._lock:
            now = stamp(self._folder)
            if self._seen is None or self._seen[0] != now:
                self._seen = now, read(self._folder, self.helper)
            return self._seen[1]

    def _before(
        self, identity: SigningKey
    ) -> tuple[tuple[ReportKey, ...], tuple[ReceiptKey, ...], tuple[PublishedKey, ...], int]:
        """Keys that open reports, that sign receipts, and that are published; and the last sequence."""
        try:
            file = read(self._folder, self.helper)
        except NoKeys:
            return (), (), (), 0
        if file.published.identity != identity.verifying:
            raise NotDeclared(
                f"the keys of {self.helper} were signed by another identity: rotate with that one; documents "
                "name a helper by its identity, so a new one is a new helper with a folder of its own"
            )
        return file.opening, file.writing, file.published.keys, file.published.sequence


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def stamp(folder: Path) -> Stamp:
    """The file's stamp, which shows whether it was replaced. Refuses a file that others may read."""
    path = folder / NAME
    try:
        status = path.stat()
    except FileNotFoundError:
        raise NoKeys(f"{folder} holds no keys: make them with `maskedlark helper rotate`") from None
    except OSError as error:
        raise BadKeyFile(f"{path} cannot be read: {error.strerror}") from None
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise BadKeyFile(f"{path} is open to others: chmod 600 it, and rotate if somebody may have read it")
    return status.st_ino, status.st_mtime_ns, status.st_size


def read(folder: Path, helper: str) -> KeyFile:
    """The file's contents, verified: the identity that it names signed everything."""
    stamp(folder)
    path = folder / NAME
    try:
        file = KeyFile.model_validate_json(path.read_bytes())
        file.verify()
    except OSError as error:
        raise BadKeyFile(f"{path} cannot be read: {error.strerror}") from None
    except (ValidationError, BadReceipt, BadSignature, DecodeError, WeakKey):
        raise BadKeyFile(
            f"{path} was damaged or changed: put a copy back. New keys made in its place cannot open the "
            "reports that are sealed to the old ones"
        ) from None
    if file.helper != helper:
        raise BadKeyFile(f"{path} holds the keys of {file.helper}, not of {helper}: name another folder")
    return file
