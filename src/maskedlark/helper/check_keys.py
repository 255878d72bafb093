"""The keys that reports are checked with, one per document: derived by its first helper, pinned by all.

Run by a helper. The same report checked under two keys would give two points of its polynomial, and two say
something of its secrets. So a document's key follows from the first helper's identity, which is never
rotated: no lost disk makes a second one. And every helper, the first too, pins the first key that it sees in
the origin's chain of receipts, and refuses another for good. The pin is the key's digest; the key itself is
stored as it was sealed to us, and may be sealed anew.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from sqlalchemy import Column, LargeBinary, MetaData, String, Table, delete, select

from maskedlark.clock import Clock
from maskedlark.helper.seeds import Recipients
from maskedlark.ledger.ledger import Ledger, Signer
from maskedlark.parameters.document import Document
from maskedlark.release import shared_seed
from maskedlark.release.errors import BadCheckKey
from maskedlark.storage.engine import Database
from maskedlark.storage.schema import prepare
from maskedlark.web.errors import NoCheckKey
from maskedlark.wire.hpke import OpeningKey
from maskedlark.wire.report import MAX_ORIGIN

SCHEMA_VERSION = 1
_TABLES = MetaData()
_MESSAGES = Table(
    "check_keys",
    _TABLES,
    Column("origin", String(MAX_ORIGIN), primary_key=True),
    Column("parameters", LargeBinary, primary_key=True),
    Column("message", LargeBinary, nullable=False),
)


class CheckSigner(Signer, Protocol):
    """A helper's keys, with the secret that its check keys follow from."""

    @property
    def check_secret(self) -> bytes:
        """It follows from the helper's identity."""


class CheckKey(NamedTuple):
    """A document's key, and its digest, which is public."""

    key: bytes
    digest: bytes

    def __repr__(self) -> str:
        return f"CheckKey(digest={self.digest.hex()})"


def derive(secret: bytes, document: Document) -> CheckKey:
    """The check key of a document. Run by its first helper."""
    parts = shared_seed.CHECK_LABEL.encode(), document.origin.encode(), document.digest
    bound = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return _of(hmac.digest(secret, bound, "sha256"))


def _of(key: bytes) -> CheckKey:
    return CheckKey(key, hashlib.sha256(key).digest())


class CheckKeys:
    """All check keys of a helper. Threads may share it."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        signer: CheckSigner,
        keys: Callable[[], Mapping[bytes, OpeningKey]],
        recipients: Recipients,
        clock: Clock,
    ) -> None:
        prepare(database, "check keys", SCHEMA_VERSION, _TABLES)
        self._database, self._ledger, self.signer = database, ledger, signer
        self._keys, self._recipients, self._clock = keys, recipients, clock
        self._known: dict[tuple[str, bytes], CheckKey] = {}

    def make(self, document: Document) -> bytes:
        """A message for all helpers: always the same key, sealed to their current keys."""
        first = document.helpers[0].name
        if first != self.signer.helper:
            raise BadCheckKey(f"check keys are made by {first}: ask it, and relay the answer")
        recipients, now = self._recipients(document), self._clock.now()
        key = derive(self.signer.check_secret, document)
        self._pin(document, key)
        return shared_seed.make(key.key, document, None, recipients, self.signer.current(now), now).encode()

    def accept(self, document: Document, message: bytes) -> None:
        """Pin the key that the first helper made, and store its message. Idempotent."""
        self._pin(document, self._unseal(document, message))
        named = _MESSAGES.c.origin == document.origin, _MESSAGES.c.parameters == document.digest
        with self._database.write() as connection:
            # A later message holds the same key, and is sealed to a newer one of ours.
            connection.execute(delete(_MESSAGES).where(*named))
            row = (document.origin, document.digest, message)
            self._database.insert_new(connection, _MESSAGES, [row])

    def of(self, document: Document) -> CheckKey:
        """The pinned key of a document. Its pin is anchored when this returns."""
        if (pinned := self._ledger.pinned(document)) is None:
            raise NoCheckKey("the helpers of this document share no check key yet: relay the first helper's")
        name = document.origin, document.digest
        key = self._known.get(name) or self._stored(document)
        _check(key, pinned)  # Before it is remembered: the right key file may be put back.
        self._known[name] = key
        return key

    def _stored(self, document: Document) -> CheckKey:
        if document.helpers[0].name == self.signer.helper:
            return derive(self.signer.check_secret, document)
        named = _MESSAGES.c.origin == document.origin, _MESSAGES.c.parameters == document.digest
        with self._database.read() as connection:
            message = connection.scalar(select(_MESSAGES.c.message).where(*named))
        if message is None:
            raise NoCheckKey("the check key of this document is not here: relay the first helper's again")
        return self._unseal(document, message)

    def _unseal(self, document: Document, message: bytes) -> CheckKey:
        return _of(shared_seed.unseal(message, document, None, self.signer.helper, self._keys()))

    def _pin(self, document: Document, key: CheckKey) -> None:
        _check(key, self._ledger.pin(document, key.digest))


def _check(key: CheckKey, pinned: bytes) -> None:
    if key.digest != pinned:
        raise BadCheckKey(
            "another check key is pinned for this document, for good: publish a new document if the first "
            "helper has lost that key"
        )
