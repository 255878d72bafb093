"""What a helper that colludes tells the ad server about a release: the noise that it added.

Run by an auditor who plays that helper and has its folder. Against the noise of the others it is no help.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select, text

from maskedlark.dp import mechanisms
from maskedlark.dp.mechanisms import Sensitivity
from maskedlark.helper.keyring import Keyring
from maskedlark.helper.seeds import SEEDS
from maskedlark.ledger.receipt import ReleaseReceipt
from maskedlark.parameters.document import Document
from maskedlark.release import release
from maskedlark.release import shared_seed as sealed_seed
from maskedlark.storage.engine import open_database


@contextmanager
def reading(folder: Path) -> Iterator[Connection]:
    """The helper's own database. It may run meanwhile, and is not asked."""
    database = open_database(f"sqlite:///{folder / 'database' / 'helper.sqlite'}", make=False)
    try:
        with database.read() as connection:
            yield connection
    finally:
        database.close()


def release_noise(
    folder: Path, document: Document, released: ReleaseReceipt, sensitivity: Sensitivity, size: int
) -> NDArray[np.int64]:
    """What a helper added to the one column of a release."""
    with reading(folder) as connection:
        query = text("SELECT seed FROM ledger_lines WHERE number = :number")
        stored = bytes(connection.execute(query, {"number": released.number}).scalar_one())
    seed = mechanisms.root(stored, [shared_seed(folder, document, each) for each in released.datasets])
    law = released.released.mechanism, released.released.noise
    return mechanisms.draw(*law, sensitivity, release.column_seed(seed, 0, 0), size)


def shared_seed(folder: Path, document: Document, dataset: str) -> bytes:
    """What batches and masks of a dataset follow from: every helper has the same."""
    with reading(folder) as connection:
        query = select(SEEDS.c.message).where(SEEDS.c.dataset == bytes.fromhex(dataset))
        message = bytes(connection.execute(query).scalar_one())
    helper = folder.parent.name
    keys = Keyring(folder / "keys", helper).opening_keys(0)
    return sealed_seed.unseal(message, document, bytes.fromhex(dataset), helper, keys)
