"""What a helper that colludes tells the ad server about a session: its noise, and who was in each batch.

Run by an auditor who plays that helper and has its folder.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskedlark.audit.colluding import database
from maskedlark.functions.gradient import GradientQuestion, GradientSteps
from maskedlark.helper.seeds import SEEDS
from maskedlark.privacy import mechanisms, parts, sessions, slots, steps
from maskedlark.privacy.receipt import OpenedReceipt

Floats = NDArray[np.float64]


def step_noise(
    folder: Path, origin: str, opened: OpenedReceipt, asked: GradientSteps, bodies: Sequence[bytes]
) -> Floats:
    """What a helper added to every step of a session, in reals: (steps, size)."""
    own = database(folder)
    try:
        with own.read() as connection:
            session = slots.find(connection, origin, bytes.fromhex(opened.request)).seed
    finally:
        own.close()
    found = []
    for number, body in enumerate(bodies):
        seed = sessions.noise_seed(session, number, steps.body_digest(body, ()))
        found.append(_step(opened, asked, body, seed))
    return np.array(found)


def batches(folder: Path, opened: OpenedReceipt, tag: str, count: int, records: int) -> NDArray[np.bool_]:
    """Which records, as they lie at the helper, were in each of so many steps: (steps, records)."""
    own = database(folder)
    try:
        with own.read() as connection:
            seed = bytes(connection.execute(SEEDS.select()).one().seed)
    finally:
        own.close()
    found = np.zeros((count, records), np.bool_)
    for number in range(count):
        found[number, parts.batch(opened.sampling, seed, tag, opened.slots[0], number, records)] = True
    return found


def features(folder: Path, width: int) -> NDArray[np.uint8]:
    """The features of its one dataset to train, in the order in which its records lie."""
    (path,) = folder.glob("**/0-features")
    return np.fromfile(path, np.uint8).reshape(-1, width)


def _step(opened: OpenedReceipt, asked: GradientSteps, body: bytes, seed: bytes) -> Floats:
    question = asked.at(body, b"")
    assert isinstance(question, GradientQuestion)
    assert opened.course is not None, "a session with noise has a course"
    (column,) = question.columns
    drawn = mechanisms.draw("gaussian", opened.course.noise, column.sensitivity, seed, question.network.size)
    return drawn.astype(np.float64) * 2.0**-question.step.exponent
