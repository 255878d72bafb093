"""A helper's keys: what its identity has signed, and the secrets behind it. The identity itself is elsewhere.

Everything is in one file, written durably and atomically. So a rotation happened or it did not, and no key is
ever published whose secret is not on the disk. A running service sees a rotation without being started again.
"""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from maskedlark.errors import NotDeclared
from maskedlark.helper import key_store
from maskedlark.helper.errors import NoKeys, NoReceiptKey
from maskedlark.helper.key_store import Opening, Stored, Writing
from maskedlark.ledger import receipt
from maskedlark.ledger.receipt import Certificate, SignedCertificate
from maskedlark.randomness import Randomness
from maskedlark.web import files
from maskedlark.wire.hpke import OpeningKey, SealingKey
from maskedlark.wire.keys import MOST_KEYS, KeyConfiguration, PublishedKey
from maskedlark.wire.signatures import SigningKey, VerifyingKey

DAY_S = 86_400
KEEP_S = 180 * DAY_S
"""How long a secret key opens reports after browsers have stopped sealing to it."""
SLOW_CLOCK_S = 3600
"""A key begins so much before now: a browser or an auditor whose clock is behind finds it valid too."""


class Span(NamedTuple):
    """How long keys live: `valid_s` until they should be replaced, `overlap_s` more in which they can be."""

    valid_s: int = 30 * DAY_S
    overlap_s: int = 30 * DAY_S

    def of(self, now: int) -> tuple[int, int]:
        """The time of a key that is made now: from its beginning until its end."""
        return max(0, now - SLOW_CLOCK_S), now + self.valid_s + self.overlap_s


class Keyring:
    """The keys in a folder. Threads and processes may share it."""

    def __init__(self, folder: Path, helper: str, keep_s: int = KEEP_S) -> None:
        self.helper = helper
        self._folder = folder
        self._keep_s = keep_s
        self._lock = threading.Lock()
        self._seen: tuple[key_store.Stamp, Stored] | None = None

    @property
    def configuration(self) -> bytes:
        """The signed key configuration, as it is published."""
        return self._stored().message

    @property
    def identity(self) -> VerifyingKey:
        """Who signed it."""
        return self._stored().configuration.identity

    def opening_keys(self, now: int) -> Mapping[bytes, OpeningKey]:
        """Every key that reports may still be sealed to, by its id. Run where reports are opened."""
        return {each.key.key_id: each.key for each in self._stored().opening if self._is_kept(each, now)}

    def sealing_key(self, now: int) -> SealingKey:
        """What others seal to us with, now."""
        return self._stored().configuration.current(now)

    def current(self, now: int) -> tuple[SigningKey, SignedCertificate]:
        """The newest key that signs receipts at that moment, and the identity's certificate of it."""
        for each in reversed(self._stored().writing):
            claimed = each.certificate.claimed()
            if claimed.not_before <= now < claimed.not_after:
                return each.key, each.certificate
        raise NoReceiptKey(
            f"no key of {self.helper} is certified to sign receipts now: run `maskedlark helper rotate`"
        )

    def ends(self) -> Mapping[str, int]:
        """When the last key of each kind ends: those that browsers seal to, and those that sign receipts."""
        stored = self._stored()
        sealing = max(each.not_after for each in stored.configuration.keys)
        return {
            "reports": sealing,
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
        """Make new keys and publish them beside those that are still valid. Run where the identity is."""
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        with files.locked(self._folder):
            before = self._before(identity)
            not_before, not_after = (span or Span()).of(now)
            opening = _opening(not_before, not_after, rng)
            writing = self._writing(identity, not_before, not_after, rng)
            sequence = max(before.configuration.sequence + 1 if before else 1, least_sequence)
            keys = _published(before, opening, now)
            made = KeyConfiguration(self.helper, identity.verifying, address, sequence, keys)
            kept, signing = self._kept(before, now, made)
            stored = Stored((*kept, opening), (*signing, writing), made.sign(identity), made)
            key_store.write(self._folder, stored)
        return made

    def forget(self, now: int) -> int:
        """Delete secrets that nothing needs any more, and say how many. Run by the service, every hour."""
        with files.locked(self._folder):
            before = key_store.read(self._folder, self.helper)
            opening, writing = self._kept(before, now, before.configuration)
            # The last one stays: a clock that is wrong once must not cost what only a rotation brings back.
            writing = writing or before.writing[-1:]
            gone = len(before.opening) - len(opening) + len(before.writing) - len(writing)
            if gone:
                key_store.write(self._folder, before._replace(opening=opening, writing=writing))
        return gone

    def _stored(self) -> Stored:
        """What is on the disk now. Read again only when it has changed."""
        with self._lock:
            stamp = key_store.stamp(self._folder)
            if self._seen is None or self._seen[0] != stamp:
                self._seen = stamp, key_store.read(self._folder, self.helper)
            return self._seen[1]

    def _before(self, identity: SigningKey) -> Stored | None:
        try:
            before = key_store.read(self._folder, self.helper)
        except NoKeys:
            return None
        if before.configuration.identity != identity.verifying:
            raise NotDeclared(
                f"the keys of {self.helper} were signed by another identity: rotate with that one; documents "
                "name a helper by its identity, so a new one is a new helper with a folder of its own"
            )
        return before

    def _writing(self, identity: SigningKey, not_before: int, not_after: int, rng: Randomness) -> Writing:
        key = SigningKey(secret := rng.bytes(32))
        certificate = Certificate(
            helper=self.helper, key=key.verifying.public.hex(), not_before=not_before, not_after=not_after
        )
        return Writing(secret, key, receipt.certify(certificate, identity))

    def _kept(
        self, before: Stored | None, now: int, published: KeyConfiguration
    ) -> tuple[tuple[Opening, ...], tuple[Writing, ...]]:
        """Secrets that are still needed: to open late reports, and to sign receipts."""
        if before is None:
            return (), ()
        # Whatever the clock says, browsers seal to what is published.
        listed = {each.key.key_id for each in published.keys}
        opening = tuple(
            each for each in before.opening if each.key.key_id in listed or self._is_kept(each, now)
        )
        writing = tuple(each for each in before.writing if now < each.certificate.claimed().not_after)
        return opening, writing

    def _is_kept(self, opening: Opening, now: int) -> bool:
        return now < opening.not_after + self._keep_s


def _opening(not_before: int, not_after: int, rng: Randomness) -> Opening:
    secret = rng.bytes(32)
    return Opening(secret, OpeningKey(secret), not_before, not_after)


def _published(before: Stored | None, opening: Opening, now: int) -> tuple[PublishedKey, ...]:
    """The new key behind those that browsers may still seal to: whoever looks finds one."""
    added = PublishedKey(opening.key.sealing, opening.not_before, opening.not_after)
    valid = [each for each in before.configuration.keys if now < each.not_after] if before else []
    return (*valid, added)[-MOST_KEYS:]
