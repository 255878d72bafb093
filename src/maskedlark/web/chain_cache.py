"""One origin's chain on disk: a file a version, verified again whenever it is read, and never replaced.

`seen` holds the highest version, written after it, so that a lost file is noticed and not taken for an older
chain. Evidence of a fork stays beside it, and the origin is refused until a person has removed it.
"""

import hashlib
from pathlib import Path

from maskedlark.errors import BadSignature, BrokenChain, Forked, InvalidDocument, MaskedLarkError
from maskedlark.parameters import chain
from maskedlark.parameters.chain import Signed
from maskedlark.parameters.document import Document
from maskedlark.web import files
from maskedlark.web.errors import CorruptCache
from maskedlark.wire.signatures import VerifyingKey


class ChainCache:
    """What a browser or a helper has seen of one origin: verified documents, the newest last."""

    def __init__(self, folder: Path, origin: str, pinned: VerifyingKey, service_key: VerifyingKey) -> None:
        self.origin = origin
        self.folder = folder / files.named(origin)
        self.signed: list[Signed] = []
        self.documents: list[Document] = []
        self._pinned = pinned
        self._service_key = service_key

    def load(self) -> None:
        """Read what this or another process has stored since."""
        while (path := self._path(len(self.signed) + 1)).exists():
            self._read(path)
        if len(self.signed) < (seen := self._seen()):
            raise CorruptCache(
                f"{self.folder} lacks version {len(self.signed) + 1} of {self.origin}, but {seen} was seen: "
                "restore it, or remove the folder to begin anew"
            )

    def append(self, found: Signed) -> None:
        """Verify the next document, store it durably, then count it as seen."""
        with files.locked(self.folder):
            self.load()
            if found.body in (known.body for known in self.signed):
                return  # Another process was faster.
            opened = self.follow(found, len(self.documents) + 1)
            files.write(self._path(opened.version), found.encode())
            files.write(self.folder / "seen", f"{opened.version}\n".encode())
        self.signed.append(found)
        self.documents.append(opened)

    def follow(self, found: Signed, version: int) -> Document:
        """The document, if service and origin signed it as this version of our chain."""
        found.published(self._service_key)
        before = self.documents[version - 2] if version > 1 else None
        opened = chain.follow(found, before, self._pinned)
        if opened.origin != self.origin:
            raise BrokenChain(f"a document of {opened.origin} in the chain of {self.origin}")
        return opened

    def accuse(self, theirs: Signed) -> None:
        """Keep the proof and raise, if the origin signed this beside another document of the same version.

        Returns if it is the very document that we have. Raises what is wrong with it if it proves nothing.
        """
        _, version = theirs.names()
        ours = self.signed[version - 1]
        if theirs.body == ours.body:
            return
        self.follow(theirs, version)
        for proof in (ours, theirs):
            name = f"{version}-{hashlib.sha256(proof.body).hexdigest()}.json"
            files.write(self.folder / "evidence" / name, proof.encode())
        self.refuse_forked()

    def refuse_forked(self) -> None:
        """Refuse an origin that has signed two documents for one version."""
        if any((self.folder / "evidence").glob("*.json")):
            raise Forked(
                f"{self.origin} signed two documents for one version, kept in {self.folder / 'evidence'}: "
                "show them to others, and remove them to trust the origin again"
            )

    def _path(self, version: int) -> Path:
        return self.folder / f"{version}.json"

    def _read(self, path: Path) -> None:
        try:
            found = chain.decode(path.read_bytes())
            opened = self.follow(found, len(self.documents) + 1)
        except (BadSignature, BrokenChain, InvalidDocument) as error:
            raise corrupt(path, error) from None
        self.signed.append(found)
        self.documents.append(opened)

    def _seen(self) -> int:
        path = self.folder / "seen"
        try:
            return int(path.read_text())
        except FileNotFoundError:
            return 0
        except ValueError as error:
            raise corrupt(path, error) from None


def corrupt(path: Path, error: MaskedLarkError | ValueError) -> CorruptCache:
    """The error for a file that should have been verified when it was written."""
    return CorruptCache(
        f"{path} was damaged or changed ({type(error).__name__}): "
        "restore it, or remove its folder to begin anew"
    )
