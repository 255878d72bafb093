"""What a helper that colludes tells the ad server about a release: the noise that it added.

Run by an auditor who plays that helper and has its folder. Against the noise of the others it is no help.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, text

from maskedlark.privacy import mechanisms, release
from maskedlark.privacy.mechanisms import Kind, Sensitivity
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
    folder: Path, number: int, kind: Kind, noise: float, sensitivity: Sensitivity, size: int
) -> NDArray[np.int64]:
    """What a helper added to the one column of a release, by its receipt's number."""
    with reading(folder) as connection:
        query = text("SELECT seed FROM ledger_lines WHERE number = :number")
        seed = bytes(connection.execute(query, {"number": number}).scalar_one())
    return mechanisms.draw(kind, noise, sensitivity, release.column_seed(seed, 0, 0), size)
