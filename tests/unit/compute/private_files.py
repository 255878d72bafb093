"""Files that only one process may read, as if the others ran as another user."""

import os
from dataclasses import dataclass
from typing import BinaryIO

from maskedlark.helper.dataset_files import LocalFiles


@dataclass(frozen=True)
class PrivateFiles(LocalFiles):
    owner: int

    def open(self, name: str) -> BinaryIO:
        if os.getpid() != self.owner:
            raise PermissionError(13, "not for you")
        return super().open(name)
