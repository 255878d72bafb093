"""What a helper that colludes tells the ad server about a session: its noise, and who was in each batch.

Run by an auditor who plays that helper and has its folder.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select

from maskedlark.audit.colluding import reading
from maskedlark.core.records import Trained
from maskedlark.functions.gradient import GradientQuestion, GradientSteps
from maskedlark.helper import columns
from maskedlark.helper.columns import Contents
from maskedlark.helper.seeds import SEEDS
from maskedlark.helper.tables import DATASETS
from maskedlark.privacy import mechanisms, parts, sessions, slots, steps
from maskedlark.privacy.document import Document
from maskedlark.privacy.receipt import OpenedReceipt

Floats = NDArray[np.float64]


def step_noise(
    folder: Path, origin: str, opened: OpenedReceipt, asked: GradientSteps, bodies: Sequence[bytes]
) -> Floats:
    """What a helper added to every step of a session, in reals: (steps, size)."""
    session = session_seed(folder, origin, opened.request)
    found = []
    for number, body in enumerate(bodies):
        seed = sessions.noise_seed(session, number, steps.body_digest(body, ()))
        found.append(_step(opened, asked, body, seed))
    return np.array(found)


def batches(folder: Path, opened: OpenedReceipt, tag: str, count: int, size: int) -> NDArray[np.bool_]:
    """Which records of a session's one dataset, as they lie there, were in so many steps: (count, size)."""
    (dataset,), (slot,) = opened.datasets, opened.slots
    seed, found = batch_seed(folder, dataset), np.zeros((count, size), np.bool_)
    for number in range(count):
        found[number, parts.batch(opened.sampling, seed, tag, slot, number, size)] = True
    return found


def session_seed(folder: Path, origin: str, session: str) -> bytes:
    """What a helper's noise of a whole session follows from."""
    with reading(folder) as connection:
        return slots.find(connection, origin, bytes.fromhex(session)).seed


def batch_seed(folder: Path, dataset: str) -> bytes:
    """What all batches of a dataset follow from: every helper has the same."""
    with reading(folder) as connection:
        query = select(SEEDS.c.seed).where(SEEDS.c.dataset == bytes.fromhex(dataset))
        return bytes(connection.execute(query).scalar_one())


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
