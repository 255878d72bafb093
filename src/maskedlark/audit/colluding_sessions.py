"""What a helper that colludes tells the ad server about a session: its noise, and who was in each batch.

Run by an auditor who plays that helper and has its folder.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select

from maskedlark.audit.colluding import reading, shared_seed
from maskedlark.core.records import Trained
from maskedlark.dp import mechanisms
from maskedlark.functions.gradient import GradientQuestion, GradientSteps
from maskedlark.helper import columns
from maskedlark.helper.columns import Contents
from maskedlark.helper.tables import DATASETS
from maskedlark.ledger import session_rows, sessions
from maskedlark.ledger.receipt import OpenedReceipt
from maskedlark.parameters.document import Document
from maskedlark.release.parts import Batches
from maskedlark.release.session import body_digest

Floats = NDArray[np.float64]


def step_noise(
    folder: Path, document: Document, opened: OpenedReceipt, asked: GradientSteps, bodies: Sequence[bytes]
) -> Floats:
    """What a helper added to every step of a session, in reals: (steps, size)."""
    session = session_seed(folder, document, opened)
    found = []
    for number, body in enumerate(bodies):
        seed = sessions.noise_seed(session, number, body_digest(body, ()))
        found.append(_step(opened, asked, body, seed))
    return np.array(found)


def batches(
    folder: Path, document: Document, opened: OpenedReceipt, tag: str, count: int, size: int
) -> NDArray[np.bool_]:
    """Which records of a session's one dataset, as they lie there, were in so many steps: (count, size)."""
    (dataset,), found = opened.datasets, np.zeros((count, size), np.bool_)
    drawn = Batches(opened.sampling, tag, [shared_seed(folder, document, dataset)], opened.slots, [size])
    for number in range(count):
        work = drawn.work(number)
        found[number, work.rows[0][work.counted]] = True
    return found


def session_seed(folder: Path, document: Document, opened: OpenedReceipt) -> bytes:
    """What a helper's noise of a whole session follows from."""
    with reading(folder) as connection:
        stored = session_rows.find(connection, document.origin, bytes.fromhex(opened.request)).seed
    assert stored is not None, "its datasets are still there"
    return mechanisms.root(stored, [shared_seed(folder, document, each) for each in opened.datasets])


def records(folder: Path, document: Document, dataset: str, tag: str) -> Trained:
    """A dataset of the document as it lies at the helper, with its own shares."""
    with reading(folder) as connection:
        row = connection.execute(select(DATASETS).where(DATASETS.c.digest == bytes.fromhex(dataset))).one()
    lying = folder / "columns" / str(row.number) / row.folder
    contents = Contents.model_validate_json(row.contents)
    return columns.read_trained(lying, contents, document.declared_models, tag)


def _step(opened: OpenedReceipt, asked: GradientSteps, body: bytes, seed: bytes) -> Floats:
    question = asked.at(body, b"")
    assert isinstance(question, GradientQuestion)
    assert opened.course is not None, "a session with noise has a course"
    (column,) = question.columns
    drawn = mechanisms.draw("gaussian", opened.course.noise, column.sensitivity, seed, question.network.size)
    return drawn.astype(np.float64) * 2.0**-question.step.exponent
