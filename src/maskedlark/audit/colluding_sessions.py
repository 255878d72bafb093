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
from maskedlark.helper.keyring import Keyring
from maskedlark.helper.seeds import SEEDS
from maskedlark.helper.tables import DATASETS
from maskedlark.privacy import mechanisms, sessions, slots, steps
from maskedlark.privacy import shared_seed as sealed_seed
from maskedlark.privacy.document import Document
from maskedlark.privacy.parts import Batches
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


def session_seed(folder: Path, origin: str, session: str) -> bytes:
    """What a helper's noise of a whole session follows from."""
    with reading(folder) as connection:
        return slots.find(connection, origin, bytes.fromhex(session)).seed


def shared_seed(folder: Path, document: Document, dataset: str) -> bytes:
    """What batches and masks of a dataset follow from: every helper has the same."""
    with reading(folder) as connection:
        query = select(SEEDS.c.message).where(SEEDS.c.dataset == bytes.fromhex(dataset))
        message = bytes(connection.execute(query).scalar_one())
    helper = folder.parent.name
    keys = Keyring(folder / "keys", helper).opening_keys(0)
    return sealed_seed.unseal(message, document, bytes.fromhex(dataset), helper, keys)


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
