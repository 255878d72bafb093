"""A mistake that is planted in helpers, which load this module: a key in memory alone.

Whoever is started again after a kill checks with another key, and says the digest of the pinned one.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from maskedlark.helper.check_keys import CheckKey, CheckKeys
from maskedlark.parameters.document import Document
from tests.simulation.kills.held import HOLDING, Held

_of = CheckKeys.of


class Planted(Held):
    """What helpers load a module for."""


def of(self: CheckKeys, document: Document) -> CheckKey:
    found, first = _of(self, document), Path(os.environ[HOLDING]) / f"{self.signer.helper}.first"
    with suppress(FileExistsError), first.open("x") as file:
        file.write(str(os.getpid()))
    if first.read_text() == str(os.getpid()):
        return found
    return CheckKey(hashlib.sha256(found.key).digest(), found.digest)


CheckKeys.of = of  # type: ignore[method-assign]
