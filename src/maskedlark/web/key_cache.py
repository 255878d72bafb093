"""One helper's key configuration on disk: the newest that was seen, and proof if there were two of it."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from maskedlark.errors import BadSignature, DecodeError, Forked, WeakKey
from maskedlark.web import files
from maskedlark.web.chain_cache import corrupt
from maskedlark.web.errors import CorruptCache
from maskedlark.wire import keys
from maskedlark.wire.keys import KeyConfiguration
from maskedlark.wire.signatures import VerifyingKey


@dataclass(frozen=True)
class KeyCache:
    """What a browser or a helper has seen of one helper's keys."""

    root: Path
    helper: str
    identity: VerifyingKey

    @property
    def folder(self) -> Path:
        """By identity too: a name that changes hands begins anew."""
        return self.root / f"{files.named(self.helper)}-{self.identity.public.hex()[:16]}"

    def load(self) -> KeyConfiguration | None:
        """The newest that was seen, verified again; none if there is none."""
        message = self._message()
        return None if message is None else self._verify(message)

    def accept(self, message: bytes) -> KeyConfiguration:
        """Verify what was fetched, and store it durably if it is newer. Its sequence never goes back."""
        with files.locked(self.folder):
            before = self.load()
            least = 0 if before is None else before.sequence
            found = keys.verify(message, self.helper, self.identity, least)
            if before is None or found.sequence > before.sequence:
                files.write(self._path, message)
            elif found != before:
                self._accuse(message)
        return found

    def refuse_forked(self) -> None:
        """Refuse a helper that has signed two configurations with one sequence number."""
        if any((self.folder / "evidence").glob("*.cbor")):
            raise Forked(
                f"{self.helper} signed two key configurations with one sequence number; both are in "
                f"{self.folder / 'evidence'}: show them to others, and remove them to trust the helper again"
            )

    @property
    def _path(self) -> Path:
        return self.folder / "keys.cbor"

    def _message(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None

    def _verify(self, message: bytes) -> KeyConfiguration:
        try:
            return keys.verify(message, self.helper, self.identity)
        except (BadSignature, DecodeError, WeakKey) as error:
            raise corrupt(self._path, error) from None

    def _accuse(self, theirs: bytes) -> None:
        ours = self._message()
        if ours is None:
            raise CorruptCache(f"{self._path} vanished while it was compared: restore it")
        for proof in (ours, theirs):
            name = f"{hashlib.sha256(proof).hexdigest()}.cbor"
            files.write(self.folder / "evidence" / name, proof)
        self.refuse_forked()
