"""What a client has seen, on disk: one origin's chain, one helper's keys. Both only go forward.

Everything is verified whenever it is read, and stored durably before it is used. Evidence of a fork is kept
too, and its signer is refused until a person removes it. Run by browsers, helpers and the ad server.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from maskedlark.errors import BadSignature, BrokenChain, DecodeError, Forked, InvalidDocument, WeakKey
from maskedlark.parameters import chain
from maskedlark.parameters.chain import Signed
from maskedlark.parameters.document import Document
from maskedlark.web import files
from maskedlark.web.errors import CorruptCache
from maskedlark.wire import keys
from maskedlark.wire.keys import KeyConfiguration
from maskedlark.wire.signatures import VerifyingKey


class _Cache:
    """A folder with what one party has signed, and with proof against it."""

    def __init__(self, folder: Path, accusation: str) -> None:
        self.folder = folder
        self._accusation = accusation
        self._evidence = folder / "evidence"

    def refuse_forked(self) -> None:
        """Refuse a party that has signed two things where there can only be one."""
        if any(self._evidence.glob("[!.]*")):
            raise Forked(
                f"{self._accusation}; both are in {self._evidence}: "
                "show them to others, and remove them to trust it again"
            )

    def _accuse(self, proofs: Mapping[str, bytes]) -> None:
        """Store the proofs, by file name, and raise."""
        for name, proof in proofs.items():
            files.write(self._evidence / name, proof)
        self.refuse_forked()


class ChainCache(_Cache):
    """What was seen of one origin: verified documents, the newest last. A file per version, never replaced.

    `seen` holds the highest version, written after it: a lost file is noticed, not taken for an older chain.
    """

    def __init__(self, root: Path, origin: str, pinned: VerifyingKey, service_key: VerifyingKey) -> None:
        super().__init__(root / files.named(origin), f"{origin} signed two documents for one version")
        self.origin = origin
        self.signed: list[Signed] = []
        self.documents: list[Document] = []
        self._pinned = pinned
        self._service_key = service_key

    def load(self) -> None:
        """Read what this or another process has stored since the last call."""
        # First: a version that another process stores meanwhile may be read below, and must not be missed.
        seen, path = 0, self.folder / "seen"
        with suppress(FileNotFoundError), _intact(path):
            seen = int(path.read_text())
        while (path := self._path(len(self.signed) + 1)).exists():
            with _intact(path):
                signed = chain.decode(path.read_bytes())
                document = self.follow(signed, len(self.documents) + 1)
            self.signed.append(signed)
            self.documents.append(document)
        if len(self.signed) < seen:
            raise CorruptCache(
                f"{self.folder} lacks version {len(self.signed) + 1} of {self.origin}, but {seen} was seen: "
                "restore it, or remove the folder to begin anew"
            )

    def append(self, signed: Signed) -> None:
        """Verify the next document, store it durably, then count it as seen."""
        with files.locked(self.folder):
            self.load()
            if signed.body in (known.body for known in self.signed):
                return  # Another process was faster.
            document = self.follow(signed, len(self.documents) + 1)
            files.write(self._path(document.version), signed.encode())
            files.write(self.folder / "seen", f"{document.version}\n".encode())
        self.signed.append(signed)
        self.documents.append(document)

    def follow(self, signed: Signed, version: int) -> Document:
        """The document, if service and origin signed it as this version of our chain."""
        signed.published(self._service_key)
        before = self.documents[version - 2] if version > 1 else None
        document = chain.follow(signed, before, self._pinned)
        if document.origin != self.origin:
            raise BrokenChain(f"a document of {document.origin} in the chain of {self.origin}")
        return document

    def accuse(self, theirs: Signed) -> None:
        """Store the proof and raise, if the origin signed this besides another document of the same version.

        Returns if it is the document that we have. If it proves nothing, raises what is wrong with it.
        """
        _, version = theirs.names()
        ours = self.signed[version - 1]
        if theirs.body == ours.body:
            return
        self.follow(theirs, version)
        signed = [(hashlib.sha256(proof.body).hexdigest(), proof) for proof in (ours, theirs)]
        self._accuse({f"{version}-{digest}.json": proof.encode() for digest, proof in signed})

    def _path(self, version: int) -> Path:
        return self.folder / f"{version}.json"


class KeyCache(_Cache):
    """What was seen of one helper's keys: the newest configuration."""

    def __init__(self, root: Path, helper: str, identity: VerifyingKey) -> None:
        # By identity too: if a name gets another identity, its cache starts afresh.
        super().__init__(
            root / f"{files.named(helper)}-{identity.public.hex()[:16]}",
            f"{helper} signed two key configurations with one sequence number",
        )
        self.helper = helper
        self._identity = identity
        self._path = self.folder / "keys.bin"

    def load(self) -> KeyConfiguration | None:
        """The newest one seen, verified again, or None."""
        return self._load()[1]

    def accept(self, message: bytes) -> KeyConfiguration:
        """Verify what was fetched, and store it durably if it is newer. Its sequence never goes back."""
        with files.locked(self.folder):
            stored, before = self._load()
            least = 0 if before is None else before.sequence
            configuration = keys.verify(message, self.helper, self._identity, least)
            if before is None or configuration.sequence > before.sequence:
                files.write(self._path, message)
            elif configuration != before:
                proofs = (stored, message)
                self._accuse({f"{hashlib.sha256(proof).hexdigest()}.bin": proof for proof in proofs})
        return configuration

    def _load(self) -> tuple[bytes, KeyConfiguration | None]:
        with suppress(FileNotFoundError), _intact(self._path):
            message = self._path.read_bytes()
            return message, keys.verify(message, self.helper, self._identity)
        return b"", None


@contextmanager
def _intact(path: Path) -> Iterator[None]:
    """Turn a failed check into `CorruptCache`: the file was verified before it was written."""
    try:
        yield
    except (BadSignature, BrokenChain, DecodeError, InvalidDocument, WeakKey, ValueError) as error:
        raise CorruptCache(
            f"{path} was damaged or changed ({type(error).__name__}): "
            "restore it, or remove its folder to begin anew"
        ) from None
