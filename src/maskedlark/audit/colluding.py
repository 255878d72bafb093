"""What a colluding helper can tell the ad server: the noise it added, and who was in each batch.

Run by an auditor who has that helper's folder. It reveals nothing about the other helpers' noise.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select, text

from maskedlark.audit.canaries import Floats
from maskedlark.core.purpose import Purpose
from maskedlark.core.records import TrainingRecords
from maskedlark.dp import mechanisms
from maskedlark.dp.mechanisms import Sensitivity
from maskedlark.helper.columns import Contents
from maskedlark.helper.dataset_files import LocalFiles
from maskedlark.helper.keyring import Keyring
from maskedlark.helper.seeds import SEEDS
from maskedlark.helper.shards import FrozenDataset
from maskedlark.helper.tables import DATASETS
from maskedlark.ledger import session_rows, sessions
from maskedlark.ledger.receipt import OpenedReceipt, ReleaseReceipt
from maskedlark.parameters.document import Document
from maskedlark.release import release
from maskedlark.release import shared_seed as sealed_seed
from maskedlark.release.parts import Batches
from maskedlark.release.session import body_digest
from maskedlark.storage.engine import open_database

if TYPE_CHECKING:  # It needs torch, which auditing releases does not.
    from maskedlark.functions.gradient import GradientQuery, GradientSteps


@contextmanager
def reading(folder: Path) -> Iterator[Connection]:
    """Read the helper's database directly, even while the helper runs."""
    address = f"sqlite:///{folder / 'database' / 'helper.sqlite'}"
    with closing(open_database(address, make=False)) as database, database.read() as connection:
        yield connection


def release_noise(
    folder: Path, document: Document, released: ReleaseReceipt, sensitivity: Sensitivity, size: int
) -> NDArray[np.int64]:
    """The noise that a helper added to the only column of a release."""
    stored = release_seed(folder, released)
    seed = mechanisms.root(stored, [shared_seed(folder, document, each) for each in released.datasets])
    law = released.charge.mechanism, released.charge.noise
    return mechanisms.draw(*law, sensitivity, release.column_seed(seed, 0, 0), size)


def release_seed(folder: Path, released: ReleaseReceipt) -> bytes:
    """What a helper drew for the noise of a release, as its ledger stores it."""
    with reading(folder) as connection:
        query = text("SELECT seed FROM ledger_lines WHERE number = :number")
        return bytes(connection.execute(query, {"number": released.number}).scalar_one())


def shared_seed(folder: Path, document: Document, dataset: str) -> bytes:
    """The seed of a dataset's batches and masks, which all helpers share."""
    with reading(folder) as connection:
        query = select(SEEDS.c.message).where(SEEDS.c.dataset == bytes.fromhex(dataset))
        message = bytes(connection.execute(query).scalar_one())
    helper = folder.parent.name
    keys = Keyring(folder / "keys", helper).opening_keys(0)
    return sealed_seed.unseal(message, document, bytes.fromhex(dataset), helper, keys)


def step_noise(
    folder: Path, document: Document, opened: OpenedReceipt, asked: "GradientSteps", bodies: Sequence[bytes]
) -> Floats:
    """The noise that a helper added to every step of a session, in reals: (steps, size)."""
    assert opened.session_charge is not None, "a session with noise has a charge"
    session, noise = session_seed(folder, document, opened), []
    for number, body in enumerate(bodies):
        seed = sessions.noise_seed(session, number, body_digest(body, ()))
        query = cast("GradientQuery", asked.at(body, b""))
        (column,), size = query.columns, query.network.size
        drawn = mechanisms.draw("gaussian", opened.session_charge.noise, column.sensitivity, seed, size)
        noise.append(drawn * 2.0**-query.step.exponent)
    return np.array(noise)


def batches(
    folder: Path, document: Document, opened: OpenedReceipt, tag: str, count: int, size: int
) -> NDArray[np.bool_]:
    """Which records of the session's only dataset, in stored order, each step used: (count, size)."""
    (dataset,), members = opened.datasets, np.zeros((count, size), np.bool_)
    drawn = Batches(opened.sampling, tag, [shared_seed(folder, document, dataset)], opened.slots, [size])
    for number in range(count):
        work = drawn.work(number)
        members[number, work.rows[0][work.counted]] = True
    return members


def session_seed(folder: Path, document: Document, opened: OpenedReceipt) -> bytes:
    """The seed of a helper's noise in a session."""
    stored = stored_session_seed(folder, document, opened)
    return mechanisms.root(stored, [shared_seed(folder, document, each) for each in opened.datasets])


def stored_session_seed(folder: Path, document: Document, opened: OpenedReceipt) -> bytes:
    """The part of that seed stored in the ledger."""
    with reading(folder) as connection:
        stored = session_rows.find(connection, document.origin, bytes.fromhex(opened.request)).seed
    assert stored is not None, "its datasets are still there"
    return stored


def records(folder: Path, document: Document, dataset: str, tag: str) -> TrainingRecords:
    """A dataset as the helper stores it, with its own shares."""
    with reading(folder) as connection:
        row = connection.execute(select(DATASETS).where(DATASETS.c.digest == bytes.fromhex(dataset))).one()
    files = LocalFiles(folder / "columns" / str(row.number) / row.folder)
    contents = Contents.model_validate_json(row.contents)
    frozen = FrozenDataset(row.digest, document, Purpose.TRAIN, row.expires, files, contents)
    return cast("TrainingRecords", frozen.records(tag))
