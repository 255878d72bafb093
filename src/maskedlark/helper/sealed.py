"""A sealed dataset, as questions see it: its columns are mapped when they are first asked for."""

import threading
from pathlib import Path

from maskedlark.core.purpose import Purpose
from maskedlark.core.records import Records
from maskedlark.helper import columns
from maskedlark.helper.columns import Contents
from maskedlark.parameters.document import Document


class SealedDataset:
    """Never changes. Threads may share it."""

    def __init__(
        self,
        digest: bytes,
        document: Document,
        purpose: Purpose,
        expires: int,
        folder: Path,
        contents: Contents,
    ) -> None:
        self.digest, self.document, self.purpose, self.expires = digest, document, purpose, expires
        self._folder, self._contents = folder, contents
        self._lock = threading.Lock()
        self._mapped: dict[str | None, Records] = {}

    def size(self, tag: str | None) -> int:
        """How many records it has, of this model. No file is touched."""
        return self._contents.records.get(tag or "", 0)

    def records(self, tag: str | None) -> Records:
        """Its columns and shares. Checked once, when they are mapped."""
        with self._lock:
            if tag not in self._mapped:
                self._mapped[tag] = self._open(tag)
            return self._mapped[tag]

    def _open(self, tag: str | None) -> Records:
        if tag is None:
            return columns.read_measured(self._folder, self._contents, self.document.measure)
        return columns.read_trained(self._folder, self._contents, self.document.declared_models, tag)
