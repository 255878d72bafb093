"""Files that only one process may read, or write, as if the others ran as another user."""

import os
from dataclasses import dataclass
from typing import BinaryIO

from maskedlark.helper.dataset_files import LocalFiles, Write


@dataclass(frozen=True)
class PrivateFiles(LocalFiles):
    owner: int

    def open(self, name: str) -> BinaryIO:
        if os.getpid() != self.owner:
            raise PermissionError(13, "not for you")
        return super().open(name)


@dataclass(frozen=True)
class ReadOnlyFiles(LocalFiles):
    owner: int

    def write(self, name: str, write: Write) -> None:
        if os.getpid() != self.owner:
            raise PermissionError(13, "not for you")
        super().write(name, write)
